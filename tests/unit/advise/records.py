"""Records of comparisons, made by hand: each says what was measured, a test says what follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dure.advise.calibration import Calibration, Exchange, Point, Team
from dure.advise.cause import controls, needed, replicas
from dure.advise.record import Control, Facts, Forecast, Machine, Probe, Record, Settings, Trial

MS = 1e-3

MACHINE = Calibration(
    device="a processor",
    kind="cpu",
    cores=2,
    dispatch_s=5e-5,
    flops_per_s=5e10,
    bytes_per_s=1e10,
    flops_per_s_one=3e10,
    bytes_per_s_one=7e9,
    inside=(Team(2, 1.1, (Point(1e5, 1.0), Point(1e7, 1.2)), Exchange((Point(1e5, 2e-4), Point(1e7, 2e-3)), 4, 1e-5)),),
    between=(Team(2, 1.0, (Point(1e5, 1.0), Point(1e7, 1.3)), Exchange((Point(1e5, 8e-4), Point(1e7, 9e-3))), 3.0),),
)
"""What a machine of two cores may be measured to do."""


def curve(steps: int, seconds: float) -> tuple[tuple[int, float, float], ...]:
    """Ten points of a loss that falls."""
    return tuple((steps * n // 10, seconds * n / 10, 0.3 + 0.4 * math.exp(-0.4 * n)) for n in range(1, 11))


def trial(strategy: str, repeat: int, seconds: float, **changes: object) -> Trial:
    """A training run of 24,000 steps."""
    steps = 24_000
    values: dict[str, object] = {
        "strategy": strategy,
        "repeat": repeat,
        "seconds": seconds,
        "steps": steps,
        "step_s": (seconds - 1.0) / steps,
        "first_step_s": 1.0,
        "peak_bytes": 600 * 2**20,
        "devices": replicas(strategy),
        "virtual": replicas(strategy) > 1,
        "metrics": {"loss": 0.33, "sparse_categorical_accuracy": 0.88},
        "curve": curve(steps, seconds),
    }
    return Trial(**{**values, **changes})  # type: ignore[arg-type]


def probes(strategy: str, batch_size: int, chain: Sequence[float], noise: float = 0.0) -> tuple[Probe, ...]:
    """What the controls of a strategy measured, in seconds a step, each in two processes `noise` apart."""
    wanted = controls(strategy, batch_size)
    return tuple(
        Probe(control, (step_s - noise / 2, step_s + noise / 2)) for control, step_s in zip(wanted, chain, strict=True)
    )


def record(times: Mapping[str, Sequence[float]], measured: Sequence[Probe] = (), **changes: object) -> Record:
    """A record of the seed network with these seconds of each repeat."""
    repeat = max((len(seconds) for seconds in times.values()), default=1)
    settings = Settings("the seed network", "fashion_mnist", tuple(times), 25, 10, repeat)
    trials = tuple(trial(name, n, s) for name, seconds in times.items() for n, s in enumerate(seconds))
    values: dict[str, object] = {
        "settings": settings,
        "machine": Machine("Linux 6.1", "a processor", 2, 8 * 2**30, {"jax": "0.10.2"}),
        "facts": Facts(60_000, 10_000, "784 float32"),
        "trials": trials,
        "probes": tuple(measured),
        "command": "dure compare",
        "began": "2026-01-01T00:00:00+00:00",
        "took_s": 120.0,
    }
    return Record(**{**values, **changes})  # type: ignore[arg-type]


def loses_to(cause: str, strategy: str = "mirrored:2") -> Record:
    """A strategy takes twice single's time, and one cause takes far more of its step than the others."""
    extra = {"batch": 0, "strategy": 1, "cores": 2, "exchange": 3}[cause]
    steps = [0.3 * MS, 0.15 * MS]  # one device at 25 rows; a share of it takes exactly half
    for place in range(4):
        added = 0.35 * MS if place == extra else 0.01 * MS
        steps.append(steps[-1] + added)
    full, _, *chain = steps
    return record(
        {"single": (8.0, 8.1), strategy: (16.0, 16.2)},
        probes(strategy, 25, [full, *chain], noise=0.002 * MS),
    )


def foretold(measured: Record, seconds: Mapping[str, float]) -> Record:
    """The same record, with these seconds predicted before."""
    forecasts = tuple(Forecast(name, s, (s - 1.0) / 24_000, "the exchange") for name, s in seconds.items())
    return replace(measured, forecasts=forecasts)


__all__ = ["MACHINE", "MS", "Control", "curve", "foretold", "loses_to", "needed", "probes", "record", "trial"]
