"""The runs of a comparison in fresh processes: a prediction, training runs, then the controls that explain them."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

from dure import errors
from dure.advise import ahead, child, together
from dure.advise.cause import needed, replicas
from dure.advise.machine import this_machine
from dure.advise.quantity import seconds_text
from dure.advise.record import Control, Facts, Failure, Probe, Record, Settings, Trial, trial_from_dict
from dure.errors import StepError

__all__ = ["Plan", "Progress", "measure"]

PROBE_PASSES = 2
"""How many processes measure each control; every other one in turned-around order."""

PROBE_S = 1.5
"""How long a measuring run measures, after compiling."""

START_GUESS_S = 5.0
"""What a process is taken to need to start until one was seen."""

PROBE_GUESS_S = 2.5
"""What a measuring run is taken to need until one was seen: it compiles too."""

SETTLED = 2.0
"""A strategy that took so many times the base's seconds in the first of two runs is not run again: repeats scatter far
less. Whoever asks for more than two gets them."""

Progress = Callable[[str], None]
"""Takes a line that says how far it is."""


class Plan(NamedTuple):
    """A comparison that was checked and can be measured.

    Attributes:
        settings: What was asked.
        request: What every child process is told: model, data and seed.
        folder: The private folder with the model's and the data's files.
        command: What measures the same again.
    """

    settings: Settings
    request: dict[str, Any]
    folder: tempfile.TemporaryDirectory[str]
    command: str


def measure(asked: Plan, say: Progress) -> Record:
    """Runs everything that a plan needs, one process or one group of processes after the other.

    Args:
        asked: The plan; its folder is removed at the end.
        say: Takes the lines of progress.

    Returns:
        What was measured; on Ctrl-C what was measured so far, marked as interrupted.

    Raises:
        SpecError: The model, the data or the strategy is refused by the first process that tries it.
        DataError: So are the data.
    """
    begin = time.monotonic()
    bench = _Bench(asked, say)
    with asked.folder:
        interrupted = False
        try:
            bench.foretell()
            for run in bench.runs:
                bench.do(run)
        except KeyboardInterrupt:
            interrupted = True
            say("stopped: ending the process that runs")
    return replace(bench.record(), took_s=time.monotonic() - begin, interrupted=interrupted)


class _Run(NamedTuple):
    """A child process to come, or a group of them: a training run, or the measuring runs of some controls.

    Attributes:
        strategy: what trains, or, for measuring runs, the largest strategy that can run all of them.
        number: which repeat, from 0.
        controls: what is measured, one after the other; nothing for a training run.
    """

    strategy: str
    number: int
    controls: tuple[Control, ...] = ()

    def label(self, settings: Settings) -> str:
        if not self.controls:
            return f"{self.strategy}, run {self.number + 1} of {settings.repeat}"
        number = replicas(self.strategy)
        what = "process" if self.is_group else "device"
        ending = "" if number == 1 else "es" if self.is_group else "s"
        return f"measuring steps of {number} {what}{ending}, run {self.number + 1} of {PROBE_PASSES}"

    @property
    def kind(self) -> tuple[str, bool]:
        """What it has in common with its repeats: the strategy, and whether it measures steps."""
        return self.strategy, bool(self.controls)

    @property
    def is_group(self) -> bool:
        """Whether it needs several processes."""
        return self.strategy.startswith("multi-worker")


@dataclass
class _Bench:
    """What was measured so far, and what is to come."""

    asked: Plan
    say: Progress
    trials: list[Trial] = field(default_factory=list)
    samples: dict[Control, list[float]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    versions: dict[str, str] = field(default_factory=dict)
    took: dict[tuple[str, bool], list[float]] = field(default_factory=dict)
    began: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    lost: set[tuple[str, bool]] = field(default_factory=set)
    done: int = 0
    basis: ahead.Basis | None = None
    unpredicted: str = ""

    @cached_property
    def runs(self) -> tuple[_Run, ...]:
        """All runs in their order: training first, then measuring, each turned around in every other pass."""
        settings = self.asked.settings
        return tuple(_order(settings))

    def foretell(self) -> None:
        """Measures what a prediction needs, before any strategy runs; without it the comparison goes on."""
        if not self.asked.settings.predicts:
            return
        self.say("to predict each run before it is made:")
        try:
            say, heard = self._say_below, self._heard
            self.basis = ahead.measure(self.asked.request, self.asked.settings, say, hear=heard)
        except StepError as error:
            self.unpredicted = error.message
            self.say(f"  nothing is predicted: {error.message}")

    def _say_below(self, line: str) -> None:
        self.say(f"  {line}")

    def do(self, run: _Run) -> None:
        """Runs one process, or one group of them, and keeps what it measured."""
        settings = self.asked.settings
        label = run.label(settings)
        head = f"[{self.done + 1}/{len(self.runs)}] {label}"
        reason = self._hopeless(run)
        if reason:
            self.done += 1
            self.say(f"{head}: left out, because {reason}")
            return
        self.say(f"{head}{self._left()}")
        begin = time.monotonic()
        ended = self._run(run)
        self.took.setdefault(run.kind, []).append(time.monotonic() - begin)
        self.done += 1
        if ended.result is None:
            self._refuse_if_all_would_fail(ended)
            self.lost.add(run.kind)
            self.failures.append(Failure(label, "" if run.controls else run.strategy, ended.reason, ended.tail))
            self.say("\n".join([f"  failed: {ended.reason}", *(f"  | {line}" for line in ended.tail)]))
        elif run.controls:
            for control, step_s in zip(self._wanted(run), ended.result["steps_s"], strict=True):
                self.samples.setdefault(control, []).append(float(step_s))
                self.say(f"  {control}: {seconds_text(float(step_s))} a step")
        else:
            trial = trial_from_dict({**ended.result["trial"], "strategy": run.strategy, "repeat": run.number})
            self.trials.append(trial)
            self.say(f"  {seconds_text(trial.seconds)}, {trial.steps:,} steps")

    def record(self) -> Record:
        """What was measured so far."""
        probes = tuple(Probe(control, tuple(samples)) for control, samples in self.samples.items())
        forecasts, reason = ahead.forecasts(self.basis, self.asked.settings, self.facts.rows)
        return Record(
            settings=self.asked.settings,
            machine=this_machine(self.versions),
            facts=self.facts,
            trials=tuple(self.trials),
            probes=probes,
            failures=tuple(self.failures),
            command=self.asked.command,
            began=self.began,
            forecasts=forecasts,
            unpredicted=self.unpredicted or reason,
        )

    def _run(self, run: _Run) -> child.Ended:
        settings = self.asked.settings
        request = {**self.asked.request, "batch_size": settings.batch_size, "epochs": settings.epochs}
        request |= {"strategy": run.strategy, "sync_every": settings.sync_every}
        if run.controls:
            request |= {"controls": [dataclasses.asdict(control) for control in self._wanted(run)]}
            request |= {"measure_s": PROBE_S}
        number = replicas(run.strategy)
        if run.is_group:
            return together.run(request, workers=number, timeout_s=settings.timeout_s, on_event=self._heard)
        return child.run(
            request,
            environment=child.environment_for(number),
            timeout_s=settings.timeout_s,
            on_event=self._heard,
        )

    def _wanted(self, run: _Run) -> tuple[Control, ...]:
        """The controls of a run that explain a strategy that gave a result."""
        explaining = needed({trial.strategy for trial in self.trials}, self.asked.settings.batch_size)
        return tuple(control for control in run.controls if control in explaining)

    def _heard(self, event: dict[str, Any]) -> None:
        if event["event"] == "facts":
            self.facts = Facts(**event["facts"])
            self.versions = dict(event["versions"])

    def _hopeless(self, run: _Run) -> str:
        """Why a run would be of no use, or nothing: what died once, or is settled, is not given minutes again."""
        if run.controls and not self._wanted(run):
            return "no strategy that it explains gave a result"
        if run.kind in self.lost:
            return "it failed before"
        base, first = (self._first_s(strategy) for strategy in (self.asked.settings.base, run.strategy))
        is_second = self.asked.settings.repeat == 2 and not run.controls
        if is_second and base and first and first >= SETTLED * base:
            return f"it took {first / base:.1f} times as long as {self.asked.settings.base} in its first run"
        return ""

    def _first_s(self, strategy: str) -> float | None:
        return next((trial.seconds for trial in self.trials if trial.strategy == strategy), None)

    def _refuse_if_all_would_fail(self, ended: child.Ended) -> None:
        """Raises what a child refused if it concerns the model or the data, and so every other child too."""
        if ended.error is not None and ended.error.get("stage") in ("model", "data"):
            raise errors.from_dict(ended.error)

    def _left(self) -> str:
        """How long the rest will take, as far as one can tell; nothing before a training run was seen."""
        seen = [seconds for (_, is_probe), times in self.took.items() if not is_probe for seconds in times]
        if not seen:
            return ""
        left_s = 0.0
        for run in self.runs[self.done :]:
            if not run.controls and self._hopeless(run):
                continue
            known = self.took.get(run.kind)
            guess = START_GUESS_S + len(run.controls) * PROBE_GUESS_S if run.controls else max(seen)
            left_s += sum(known) / len(known) if known else guess
        minutes = f"{left_s / 60:.0f} min" if left_s >= 90 else f"{left_s:.0f} s"
        return f" (about {minutes} left)"


def _order(settings: Settings) -> Iterator[_Run]:
    for number in range(settings.repeat):
        turned = settings.strategies[::-1] if number % 2 else settings.strategies
        yield from (_Run(strategy, number) for strategy in turned)
    wanted = _shared(needed(settings.strategies, settings.batch_size))
    for number in range(PROBE_PASSES):
        if number % 2:
            yield from (_Run(run.strategy, number, run.controls[::-1]) for run in wanted[::-1])
        else:
            yield from (_Run(run.strategy, number, run.controls) for run in wanted)


def _shared(controls: tuple[Control, ...]) -> list[_Run]:
    """The controls by the processes that can measure them: most of a short run is the start of its process."""
    places: dict[str, list[Control]] = {}
    for control in controls:
        kind = control.kind if control.kind == "multi-worker" else "mirrored"
        places.setdefault(f"{kind}:{control.devices}", []).append(control)
    return [_Run(place, 0, tuple(measured)) for place, measured in places.items()]
