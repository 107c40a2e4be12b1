"""The runs of a comparison, each in a fresh process: training runs, then the controls that explain them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

from dure import errors
from dure.advise import child
from dure.advise.cause import needed, replicas
from dure.advise.machine import this_machine
from dure.advise.quantity import seconds_text
from dure.advise.record import Control, Facts, Failure, Probe, Record, Settings, Trial, trial_from_dict

__all__ = ["Plan", "Progress", "measure"]

PROBE_PASSES = 2
"""How many processes measure each control; every other one in turned-around order."""

PROBE_S = 2.5
"""How long a measuring run measures, after compiling."""

PROBE_GUESS_S = 9.0
"""What a measuring run is taken to need until one was seen: most of it is starting and compiling."""

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
    """Runs everything that a plan needs, one process after the other.

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
            for run in bench.runs:
                bench.do(run)
        except KeyboardInterrupt:
            interrupted = True
            say("stopped: ending the process that runs")
    return replace(bench.record(), took_s=time.monotonic() - begin, interrupted=interrupted)


class _Run(NamedTuple):
    """One child process to come: a training run, or a measuring run of one control."""

    strategy: str
    number: int
    control: Control | None = None

    def label(self, settings: Settings) -> str:
        if self.control is not None:
            return f"measuring {self.control}"
        return f"{self.strategy}, run {self.number + 1} of {settings.repeat}"


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
    took: dict[tuple[str, Control | None], list[float]] = field(default_factory=dict)
    began: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    done: int = 0

    @cached_property
    def runs(self) -> tuple[_Run, ...]:
        """All runs in their order: training first, then measuring, each turned around in every other pass."""
        settings = self.asked.settings
        return tuple(_order(settings))

    def do(self, run: _Run) -> None:
        """Runs one process and keeps what it measured."""
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
        devices = run.control.devices if run.control else replicas(run.strategy)
        ended = child.run(
            self._request(run),
            environment=child.environment_for(devices),
            timeout_s=settings.timeout_s,
            on_event=self._heard,
        )
        self.took.setdefault((run.strategy, run.control), []).append(time.monotonic() - begin)
        self.done += 1
        if ended.result is None:
            self._refuse_if_all_would_fail(ended)
            self.failures.append(Failure(label, "" if run.control else run.strategy, ended.reason, ended.tail))
            self.say("\n".join([f"  failed: {ended.reason}", *(f"  | {line}" for line in ended.tail)]))
        elif run.control is not None:
            self.samples.setdefault(run.control, []).append(float(ended.result["step_s"]))
            self.say(f"  {seconds_text(float(ended.result['step_s']))} a step")
        else:
            trial = trial_from_dict({**ended.result["trial"], "strategy": run.strategy, "repeat": run.number})
            self.trials.append(trial)
            self.say(f"  {seconds_text(trial.seconds)}, {trial.steps:,} steps")

    def record(self) -> Record:
        """What was measured so far."""
        probes = tuple(Probe(control, tuple(samples)) for control, samples in self.samples.items())
        return Record(
            settings=self.asked.settings,
            machine=this_machine(self.versions),
            facts=self.facts,
            trials=tuple(self.trials),
            probes=probes,
            failures=tuple(self.failures),
            command=self.asked.command,
            began=self.began,
        )

    def _request(self, run: _Run) -> dict[str, Any]:
        settings = self.asked.settings
        request = {**self.asked.request, "batch_size": settings.batch_size, "epochs": settings.epochs}
        request |= {"strategy": run.strategy, "sync_every": settings.sync_every}
        if run.control is not None:
            control = run.control
            name = control.kind if control.kind == "single" else f"{control.kind}:{control.devices}"
            request |= {"strategy": name, "batch_size": control.batch_size, "measure_s": PROBE_S}
            request |= {"exchange": control.exchange}
        return request

    def _heard(self, event: dict[str, Any]) -> None:
        if event["event"] == "facts":
            self.facts = Facts(**event["facts"])
            self.versions = dict(event["versions"])

    def _hopeless(self, run: _Run) -> str:
        """Why a run would be of no use, or nothing: what died once is not given minutes again."""
        settings = self.asked.settings
        if run.control is None:
            failed = any(failure.strategy == run.strategy for failure in self.failures)
            return "it failed before" if failed else ""
        trained = {trial.strategy for trial in self.trials}
        if run.control not in needed(trained, settings.batch_size):
            return "no strategy that it explains gave a result"
        failed = any(failure.what == run.label(settings) for failure in self.failures)
        return "it failed before" if failed else ""

    def _refuse_if_all_would_fail(self, ended: child.Ended) -> None:
        """Raises what a child refused if it concerns the model or the data, and so every other child too."""
        if ended.error is not None and ended.error.get("stage") in ("model", "data"):
            raise errors.from_dict(ended.error)

    def _left(self) -> str:
        """How long the rest will take, as far as one can tell; nothing before a training run was seen."""
        seen = [seconds for (_, control), times in self.took.items() if control is None for seconds in times]
        if not seen:
            return ""
        left_s = 0.0
        for run in self.runs[self.done :]:
            known = self.took.get((run.strategy, run.control))
            guess = PROBE_GUESS_S if run.control is not None else max(seen)
            left_s += sum(known) / len(known) if known else guess
        minutes = f"{left_s / 60:.0f} min" if left_s >= 90 else f"{left_s:.0f} s"
        return f" (about {minutes} left)"


def _order(settings: Settings) -> Iterator[_Run]:
    for number in range(settings.repeat):
        turned = settings.strategies[::-1] if number % 2 else settings.strategies
        yield from (_Run(strategy, number) for strategy in turned)
    wanted = needed(settings.strategies, settings.batch_size)
    for number in range(PROBE_PASSES):
        turned_controls = wanted[::-1] if number % 2 else wanted
        yield from (_Run("", number, control) for control in turned_controls)
