"""Records of comparisons, made by hand: each says what was measured, a test says what follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dure.advise.cause import controls, needed, replicas
from dure.advise.record import Control, Facts, Machine, Probe, Record, Settings, Trial

MS = 1e-3


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


def loses_to(cause: str) -> Record:
    """mirrored:2 takes twice single's time, and one cause takes far more of its step than the others."""
    extra = {"batch": 0, "strategy": 1, "cores": 2, "exchange": 3}[cause]
    steps = [0.3 * MS, 0.15 * MS]  # one device at 25 rows; a share of it takes exactly half
    for place in range(4):
        added = 0.35 * MS if place == extra else 0.01 * MS
        steps.append(steps[-1] + added)
    full, _, *chain = steps
    return record(
        {"single": (8.0, 8.1), "mirrored:2": (16.0, 16.2)},
        probes("mirrored:2", 25, [full, *chain], noise=0.002 * MS),
    )


__all__ = ["MS", "Control", "curve", "loses_to", "needed", "probes", "record", "trial"]
