"""The model on one device, measured in fresh processes: what the cost model has to know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dure import errors
from dure.advise import child
from dure.advise.calibration import Point
from dure.advise.cost import Load, Network
from dure.errors import StepError

__all__ = ["batch_sizes", "measure", "network_of"]

MEASURE_S = 0.6
"""How long a step is measured at each batch size, seconds."""

Hear = Callable[[child.Event], None]
"""Takes what a child sends on its way."""


def batch_sizes(batch_size: int, replicas: Iterable[int]) -> tuple[int, ...]:
    """The rows at which to measure: the whole batch, the smallest share of it, and one between them.

    Args:
        batch_size: rows of the global batch.
        replicas: how many share it, for each strategy to be predicted.

    Returns:
        Up to three, ascending, from the smallest share to the whole; never only one, since a line needs two.

    Example:
        >>> batch_sizes(25, [1, 2, 4]), batch_sizes(1024, [1, 2]), batch_sizes(64, [1]), batch_sizes(1, [2])
        ((7, 13, 25), (512, 1024), (32, 64), (1, 2))
    """
    shares = sorted({-(-batch_size // number) for number in (*replicas, 1)})
    if shares == [1]:
        return (1, 2)
    if len(shares) == 1:
        return (-(-batch_size // 2), batch_size)
    between = shares[len(shares) // 2] if len(shares) > 2 else shares[0]
    return tuple(dict.fromkeys((shares[0], between, shares[-1])))


def measure(
    request: Mapping[str, Any],
    sizes: Sequence[int],
    say: Callable[[str], None],
    *,
    shares: bool = True,
    counted: bool = True,
    measure_s: float = MEASURE_S,
    timeout_s: float = 120.0,
    hear: Hear = lambda _: None,
) -> Network:
    """Measures one device's training step at some batch sizes, each setting in a fresh process.

    Args:
        request: what every child is told, as for `dure compare`: `model`, `data`, `folder` and `seed`.
        sizes: rows of a step, ascending, two or three; `batch_sizes` chooses them.
        say: takes a line that says what is done.
        shares: also measure with one thread, which is what a process or a device has that shares the cores.
        counted: also what XLA counts of a step, operations and bytes; it compiles each step once more.
        measure_s: how long a step is measured at each size, seconds.
        timeout_s: what each process may take.
        hear: takes each event on the way: `facts` holds what the data turned out to be, as in `record.Facts`.

    Returns:
        The model as the cost model reads it.

    Raises:
        DureError: what the process refused: a model or data that cannot be trained.
        StepError: the process died, or was not done in time.
    """
    threads: tuple[int | None, ...] = (None, 1) if shares else (None,)
    found = []
    for number in threads:
        how = "" if number is None else ", with one thread"
        say(f"measuring one device at {', '.join(map(str, sizes))} rows{how}")
        wanted = {
            **request,
            "strategy": "single",
            "sync_every": "step",
            "profile_rows": list(sizes),
            "measure_s": measure_s,
            "counted": counted and number is None,
        }
        environment = child.environment_for(1, threads=number)
        ended = child.run(wanted, environment=environment, timeout_s=timeout_s, on_event=hear)
        found.append(_profile(ended))
    return network_of(found[0], found[1] if shares else None)


def _profile(ended: child.Ended) -> Mapping[str, Any]:
    """What the process measured; or what it refused, as an error."""
    if ended.error is not None:
        raise errors.from_dict(ended.error)
    if ended.result is None:
        raise StepError(
            f"one device's training step was to be measured, and {ended.reason}; train with `SingleDevice` first. "
            f"Its last lines: {' | '.join(ended.tail[-3:]) or 'none'}"
        )
    profile: Mapping[str, Any] = ended.result["profile"]
    return profile


def network_of(full: Mapping[str, Any], one: Mapping[str, Any] | None) -> Network:
    """From what the processes sent to what the cost model reads.

    Args:
        full: with all cores, what `dure.advise.profile` returns.
        one: with one thread; None where that has no meaning.
    """
    return Network(
        points=_points(full["points"]),
        points_one=_points(one["points"]) if one else (),
        gradients=Load(*full["gradients"]),
        state=Load(*full["state"]),
        state_bytes=float(full["state_bytes"]),
        flops=_points(full["flops"]),
        traffic=_points(full["traffic"]),
        first_step_s=float(full["first_step_s"]),
    )


def _points(pairs: Iterable[Sequence[float]]) -> tuple[Point, ...]:
    return tuple(Point(float(size), float(seconds)) for size, seconds in pairs)
