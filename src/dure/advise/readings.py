"""From the times of a calibration's loops to what the cost model reads. Pure: no clock, no devices."""

from __future__ import annotations

from collections.abc import Mapping

from dure.advise.calibration import Exchange, Point, Team

__all__ = [
    "APART",
    "ARRAYS",
    "MANY",
    "PRODUCT",
    "SIZES",
    "STREAM",
    "Times",
    "between",
    "bytes_per_s",
    "flops_per_s",
    "inside",
    "product",
    "update",
]

SIZES = (2**16, 2**21, 2**24)
"""Bytes of weights: inside a core's own cache, beyond it, beyond the cache that cores share."""

APART = (2**12, *SIZES[1:])
"""The same between processes: there the smallest message is all latency, and caches do not matter."""

ARRAYS, MANY = 2, 8
"""Weights of a loop; and how many it takes to see what each costs by itself."""

PRODUCT = 384
"""Side of the square product that stands for computing: its matrices fit a core's own cache."""

MOMENTS = 3
"""A weight and Adam's two moments of it."""

Times = Mapping[str, float]
"""Seconds a step, by loop."""


def product(how: str) -> str:
    """Name of the loop of square products, `alone` or `together`."""
    return f"product {how}"


STREAM = "stream"
"""Name of the loop of an update whose gradients cost nothing, on one device, of the largest size."""


def update(how: str, arrays: int, size_bytes: int) -> str:
    """Name of the loop of gradients and update: `alone`, `together`, in a `branch`, or exchanged by `sum` or `flat`."""
    return f"update {how} {arrays} {size_bytes}"


def flops_per_s(alone: Times) -> float:
    """Operations a second of a product."""
    return 2 * PRODUCT**3 / alone[product("alone")]


def bytes_per_s(alone: Times) -> float:
    """Bytes a second that an update reads and writes in main memory."""
    return 2 * MOMENTS * SIZES[-1] / alone[STREAM]


def inside(
    number: int, times: Times, full: Times, one: Times | None, cores: int, copy_s_per_byte: float | None = None
) -> Team:
    """Several devices of one process.

    Args:
        number: how many.
        times: what they did together.
        full: what one did alone, with all cores.
        one: the same with one thread; None where devices share no cores.
        cores: how many.
        copy_s_per_byte: as another team has it; None reads it from the times.
    """

    def slower(name_together: str, name_alone: str) -> float:
        alone_s = full[name_alone]
        if one is not None:
            # Each has its part of the cores, or its turn: more than that is what they cost one another.
            threads = max(1.0, cores / number)
            spread = 0.0 if cores == 1 else (1 / threads - 1 / cores) / (1 - 1 / cores)
            alone_s += max(0.0, one[name_alone] - alone_s) * spread
            alone_s *= max(1.0, number / cores)
        return max(1.0, times[name_together] / alone_s)

    computing = slower(product("together"), product("alone"))
    names = {size: (update("together", ARRAYS, size), update("alone", ARRAYS, size)) for size in SIZES[1:]}
    moving = [Point(SIZES[0], computing), *(Point(size, slower(*pair)) for size, pair in names.items())]
    few_s = _exchange_s(times, "sum", ARRAYS, SIZES[0])
    array_s = max(0.0, _exchange_s(times, "sum", MANY, SIZES[0]) - few_s) / (MANY - ARRAYS)
    sizes = tuple(Point(size, _exchange_s(times, "sum", ARRAYS, size)) for size in SIZES)
    if copy_s_per_byte is None:
        copied_s = times[update("branch", ARRAYS, SIZES[-1])] - times[update("together", ARRAYS, SIZES[-1])]
        copy_s_per_byte = max(0.0, copied_s) / (MOMENTS * SIZES[-1])
    return Team(
        number,
        computing,
        tuple(moving),
        Exchange(_rising(sizes), ARRAYS, array_s),
        copy_s_per_byte=copy_s_per_byte,
    )


def between(number: int, times: Times, start_s: float, copy_s_per_byte: float) -> Team:
    """Several processes that compute by themselves and exchange all arrays as one.

    Args:
        number: how many.
        times: what one did alone and all did together.
        start_s: seconds until they were joined.
        copy_s_per_byte: as it was measured inside a process.
    """
    computing = max(1.0, times[product("together")] / times[product("alone")])
    ratios = [times[update("together", ARRAYS, size)] / times[update("alone", ARRAYS, size)] for size in SIZES[1:]]
    moving = [computing, *(max(1.0, ratio) for ratio in ratios)]
    points = tuple(Point(size, ratio) for size, ratio in zip(SIZES, moving, strict=True))
    sizes = tuple(Point(size, _exchange_s(times, "flat", ARRAYS, size)) for size in APART)
    exchange = Exchange(_rising(sizes), array_s=sizes[0].seconds)
    return Team(number, computing, points, exchange, start_s, copy_s_per_byte)


def _exchange_s(times: Times, how: str, arrays: int, size_bytes: int) -> float:
    """What an exchange adds to the loop that has none."""
    return max(0.0, times[update(how, arrays, size_bytes)] - times[update("together", arrays, size_bytes)])


def _rising(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """The points, none below the one before: more bytes never take less."""
    risen: list[Point] = []
    for point in points:
        risen.append(Point(point.size, max(point.seconds, risen[-1].seconds if risen else 0.0)))
    return tuple(risen)
