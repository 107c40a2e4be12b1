"""What a comparison measured, as plain values: all that verdict, table and report are made from."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dure.errors import SpecError

__all__ = ["Control", "Failure", "Facts", "Forecast", "Machine", "Probe", "Record", "Settings", "Trial"]

FORMAT = 2
"""Version of the dictionary form; a reader refuses another one."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What was asked for.

    Attributes:
        model: The model in words, as `module:function` or `the seed network`.
        data: The data in words.
        strategies: As `single`, `mirrored:2` or `multi-worker:2`, in the order asked.
        batch_size: Rows of one global batch.
        epochs: Passes over the training rows.
        repeat: How many times each strategy trains; fewer where the first run settles it.
        sync_every: `step`, `epoch` or a number of steps.
        seed: Seed of weights, shuffle and dropout.
        timeout_s: Deadline of one child process, seconds.
        predicts: Whether times are predicted before they are measured.
    """

    model: str
    data: str
    strategies: tuple[str, ...]
    batch_size: int
    epochs: int
    repeat: int = 1
    sync_every: str | int = "step"
    seed: int = 0
    timeout_s: float = 1800.0
    predicts: bool = True

    @property
    def base(self) -> str:
        """The strategy that the others are set against: `single` where it was asked for, else the first."""
        return "single" if "single" in self.strategies else self.strategies[0]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the data turned out to be.

    Attributes:
        rows: Training rows.
        test_rows: Rows kept for the test; 0 where none were given.
        shape: Of one row of x, as text.
        note: What a reader has to know, as that it is a sample; or empty.
    """

    rows: int = 0
    test_rows: int = 0
    shape: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it was measured.

    Attributes:
        system: Operating system and its release.
        processor: Name of the CPU.
        cores: Cores that this process may use.
        memory_bytes: Main memory.
        versions: Versions of Python and of the packages that matter.
    """

    system: str = ""
    processor: str = ""
    cores: int = 0
    memory_bytes: int = 0
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trial:
    """One training run in a fresh process.

    Attributes:
        strategy: As asked, `mirrored:2`.
        repeat: Which repeat, from 0.
        seconds: The whole of `fit`: compiling, training and waiting for the devices.
        steps: Updates made.
        step_s: Seconds a step once it was compiled.
        first_step_s: Seconds from calling `fit` until the first updates were there.
        peak_bytes: The most resident memory that its process had; of several, the sum.
        devices: How many devices trained.
        kind: Their kind: `cpu`, `gpu`.
        virtual: Whether several of them share one piece of hardware.
        metrics: What `evaluate` said on the test rows.
        curve: Points (updates, seconds since `fit` began, mean training loss since the point before).
        ready_s: Seconds from the start of its process until `fit` was called: imports, data, model, and the joining of
            several processes. `seconds` leaves it out.
    """

    strategy: str
    repeat: int
    seconds: float
    steps: int
    step_s: float
    first_step_s: float
    peak_bytes: int
    devices: int
    kind: str = "cpu"
    virtual: bool = False
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    curve: tuple[tuple[int, float, float], ...] = ()
    ready_s: float = 0.0


@dataclass(frozen=True, slots=True, order=True)
class Control:
    """A measuring run: what differs between two controls is what their difference in time measures.

    Attributes:
        kind: `single`, `mirrored` or `multi-worker`.
        devices: How many; of `multi-worker` in as many processes.
        batch_size: Rows of one global batch.
        exchange: Whether the devices exchange anything; without it each trains its own copy on a share, at the
            same time as the others.
    """

    kind: str
    devices: int
    batch_size: int
    exchange: bool = True

    def __str__(self) -> str:
        name = self.kind if self.kind == "single" else f"{self.kind}:{self.devices}"
        return f"{name} at {self.batch_size} rows{'' if self.exchange else ' without exchange'}"


@dataclass(frozen=True, slots=True)
class Probe:
    """What a control measured.

    Attributes:
        control: What ran.
        step_s: Seconds a step, one number a process; each the lower quartile of that process's windows.
    """

    control: Control
    step_s: tuple[float, ...]

    @property
    def middle_s(self) -> float:
        """The median of the processes, seconds a step."""
        return statistics.median(self.step_s)

    @property
    def spread_s(self) -> float:
        """Half the distance between the slowest and the fastest process, seconds a step."""
        return (max(self.step_s) - min(self.step_s)) / 2


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a strategy was predicted to take before it ran, from a step of one device and the machine's calibration.

    Attributes:
        strategy: As asked.
        seconds: What `Trial.seconds` is.
        step_s: What `Trial.step_s` is.
        cause: What was to cost the most beyond an n-th of one device's step, in words; empty where nothing stands out.
        is_extrapolated: Whether it rests on numbers outside what was measured.
    """

    strategy: str
    seconds: float
    step_s: float
    cause: str = ""
    is_extrapolated: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A child process that gave no result.

    Attributes:
        what: Which run: `mirrored:2, repeat 1`.
        strategy: The strategy it was to train, or empty for a measuring run.
        reason: What happened, in words.
        tail: The last lines that it wrote.
    """

    what: str
    strategy: str
    reason: str
    tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """Everything that one comparison measured.

    Attributes:
        settings: What was asked.
        machine: Where.
        facts: What the data turned out to be.
        trials: The training runs that ended well.
        probes: The measuring runs that ended well.
        failures: The processes that did not.
        command: The command line or call that measures the same again.
        began: When, as ISO 8601 text.
        took_s: How long the whole comparison took, seconds.
        interrupted: Whether it was stopped before its end.
        forecasts: What was predicted, one a strategy; those of which nothing can be said are missing.
        unpredicted: Why something was not predicted, in words; empty where nothing is missing.
    """

    settings: Settings
    machine: Machine = Machine()
    facts: Facts = Facts()
    trials: tuple[Trial, ...] = ()
    probes: tuple[Probe, ...] = ()
    failures: tuple[Failure, ...] = ()
    command: str = ""
    began: str = ""
    took_s: float = 0.0
    interrupted: bool = False
    forecasts: tuple[Forecast, ...] = ()
    unpredicted: str = ""

    def of(self, strategy: str) -> tuple[Trial, ...]:
        """The training runs of one strategy, in the order of their repeats."""
        return tuple(sorted((t for t in self.trials if t.strategy == strategy), key=lambda trial: trial.repeat))

    def seconds(self, strategy: str) -> tuple[float, ...]:
        """Seconds that each repeat of a strategy took."""
        return tuple(trial.seconds for trial in self.of(strategy))

    def probe(self, control: Control) -> Probe | None:
        """What a control measured, or None where it did not run."""
        return next((probe for probe in self.probes if probe.control == control), None)

    def forecast(self, strategy: str) -> Forecast | None:
        """What a strategy was predicted to take, or None where nothing was said."""
        return next((forecast for forecast in self.forecasts if forecast.strategy == strategy), None)

    def error(self, strategy: str) -> float | None:
        """How far the prediction of a strategy's seconds was off, as a share of what was measured; above 0 is too long.

        Returns:
            None where it was not predicted, or not measured.

        Example:
            >>> ran, said = Trial("single", 0, 8.0, 100, 0.07, 1.0, 2**20, 1), Forecast("single", 9.0, 0.08)
            >>> settings = Settings("m:f", "digits", ("single",), batch_size=25, epochs=1)
            >>> Record(settings, trials=(ran,), forecasts=(said,)).error("single")
            0.125
        """
        forecast, times = self.forecast(strategy), self.seconds(strategy)
        return forecast.seconds / statistics.median(times) - 1 if forecast and times else None

    def to_dict(self) -> dict[str, Any]:
        """The record as plain values that JSON can carry.

        Example:
            >>> record = Record(Settings("m:f", "digits", ("single",), batch_size=25, epochs=1))
            >>> Record.from_dict(record.to_dict()) == record
            True
        """
        return {"format": FORMAT, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Record:
        """The record that `to_dict` took apart.

        Raises:
            SpecError: The values are of another version of the format.
        """
        if values.get("format") != FORMAT:
            raise SpecError(
                f"a comparison of format {values.get('format')!r} was given, this version reads format {FORMAT}; "
                "measure again with `dure compare`, or read it with the version that wrote it"
            )
        settings = dict(values["settings"])
        settings["strategies"] = tuple(settings["strategies"])
        return cls(
            settings=Settings(**settings),
            machine=Machine(**values["machine"]),
            facts=Facts(**values["facts"]),
            trials=tuple(trial_from_dict(trial) for trial in values["trials"]),
            probes=tuple(Probe(Control(**probe["control"]), tuple(probe["step_s"])) for probe in values["probes"]),
            failures=tuple(Failure(**{**failure, "tail": tuple(failure["tail"])}) for failure in values["failures"]),
            command=values["command"],
            began=values["began"],
            took_s=values["took_s"],
            interrupted=values["interrupted"],
            forecasts=tuple(Forecast(**forecast) for forecast in values["forecasts"]),
            unpredicted=values["unpredicted"],
        )


def trial_from_dict(values: Mapping[str, Any]) -> Trial:
    """The training run that a child process sent as JSON."""
    curve = tuple((int(step), float(seconds), float(loss)) for step, seconds, loss in values.get("curve", ()))
    return Trial(**{**values, "curve": curve})
