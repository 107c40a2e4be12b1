"""What a machine's devices, and the ways between them, were measured to do: plain values that the cost model reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dure.errors import SpecError

__all__ = ["FORMAT", "Calibration", "Exchange", "Point", "Team", "interpolated"]

FORMAT = 1
"""Version of the dictionary form."""


class Point(NamedTuple):
    """A time at a size.

    Attributes:
        size: rows or bytes.
        seconds: a step's.
    """

    size: float
    seconds: float


def interpolated(points: Sequence[Point], size: float) -> float:
    """The time at a size: straight lines between the points, the outer ones going on; never below zero.

    Args:
        points: by size, at least one; a single one holds for all sizes.
        size: where.

    Returns:
        Seconds.

    Example:
        >>> line = [Point(10, 1.0), Point(20, 3.0)]
        >>> interpolated(line, 15), interpolated(line, 30), interpolated(line, 0), interpolated(line[:1], 99)
        (2.0, 5.0, 0.0, 1.0)
    """
    if len(points) == 1:
        return points[0].seconds
    place = next((n for n, point in enumerate(points[1:-1], 1) if size <= point.size), len(points) - 1)
    low, high = points[place - 1], points[place]
    slope = (high.seconds - low.seconds) / (high.size - low.size)
    return max(0.0, low.seconds + slope * (size - low.size))


@dataclass(frozen=True, slots=True)
class Exchange:
    """What an all-reduce takes: a + b x bytes, where b is another one when the arrays leave the caches.

    Attributes:
        sizes: seconds by the bytes that every member brings, in `arrays` messages.
        arrays: how many messages: inside a process one an array, between processes one a dtype.
        array_s: seconds that each further message adds.
    """

    sizes: tuple[Point, ...]
    arrays: int = 1
    array_s: float = 0.0

    def seconds(self, arrays: int, size_bytes: float) -> float:
        """How long one exchange takes.

        Args:
            arrays: how many messages.
            size_bytes: that every member brings.

        Example:
            >>> Exchange((Point(1e3, 1e-4), Point(1e6, 1e-3)), arrays=4, array_s=1e-5).seconds(2, 1e3)
            8e-05
        """
        # Below the smallest size only the latency is left: the line must not go on to zero.
        base_s = interpolated(self.sizes, max(size_bytes, self.sizes[0].size))
        return max(base_s + (arrays - self.arrays) * self.array_s, self.array_s)

    @property
    def s_per_byte(self) -> float:
        """Seconds that each further byte takes beyond the last but one size."""
        if len(self.sizes) == 1:
            return 0.0
        low, high = self.sizes[-2:]
        return (high.seconds - low.seconds) / (high.size - low.size)


@dataclass(frozen=True, slots=True)
class Team:
    """Several devices, or processes, at work at the same time.

    Attributes:
        number: how many.
        computing: how much longer each takes for products than one by itself would with the same cores for itself.
        moving: the same for what moves through memory, by bytes of weights.
        exchange: what one all-reduce among them takes.
        start_s: seconds until they are ready, where they are processes.
        copy_s_per_byte: what local SGD's choice (average or not) adds to a step, by the bytes that go through it.
    """

    number: int
    computing: float
    moving: tuple[Point, ...]
    exchange: Exchange
    start_s: float = 0.0
    copy_s_per_byte: float = 0.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """A machine, measured.

    Attributes:
        device: the device, in words.
        kind: `cpu`, `gpu` or `tpu`.
        cores: cores that CPU devices share.
        dispatch_s: seconds from calling a compiled program that does nothing until it is done.
        flops_per_s: of large products on one device with all cores.
        bytes_per_s: that an update moves on one device with all cores.
        flops_per_s_one: the same with one thread; 0 where that has no meaning.
        bytes_per_s_one: the same with one thread.
        inside: several devices of one process.
        between: several processes with a share of the cores each.
        key: what it holds for: devices, versions, threads.
        made: when, ISO 8601.
        took_s: seconds that measuring took.
        notes: what could not be measured, in words.
    """

    device: str
    kind: str
    cores: int
    dispatch_s: float
    flops_per_s: float
    bytes_per_s: float
    flops_per_s_one: float = 0.0
    bytes_per_s_one: float = 0.0
    inside: tuple[Team, ...] = ()
    between: tuple[Team, ...] = ()
    key: Mapping[str, str] = dataclasses.field(default_factory=dict)
    made: str = ""
    took_s: float = 0.0
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The calibration as plain values that JSON can carry."""
        return {"format": FORMAT, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """The calibration that `to_dict` took apart.

        Raises:
            SpecError: the values are no calibration, or one of another version.
        """
        if values.get("format") != FORMAT:
            raise SpecError(
                f"a calibration of format {values.get('format')!r} was given, this version reads format {FORMAT}; "
                "measure again with `dure devices --calibrate`"
            )
        try:
            fields = {name: value for name, value in values.items() if name != "format"}
            for where in ("inside", "between"):
                fields[where] = tuple(_team(team) for team in fields[where])
            fields["notes"] = tuple(fields["notes"])
            return cls(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise SpecError(
                f"a calibration was given that lacks something or has something else ({type(error).__name__}: "
                f"{error}); measure again with `dure devices --calibrate`"
            ) from error


def _team(values: Mapping[str, Any]) -> Team:
    exchange = {**values["exchange"], "sizes": _points(values["exchange"]["sizes"])}
    return Team(**{**values, "moving": _points(values["moving"]), "exchange": Exchange(**exchange)})


def _points(values: Sequence[Sequence[float]]) -> tuple[Point, ...]:
    return tuple(Point(float(size), float(seconds)) for size, seconds in values)
