"""Predicted time against batch and against devices, as numbers: where each line, mark and label goes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from dure.advise.chart import Curve, Tick, ticks
from dure.advise.counsel import Counsel
from dure.advise.outlook import Line, at_batch, batches, kinds, numbers, reach
from dure.advise.quantity import seconds_text

__all__ = [
    "BOTTOM",
    "HEIGHT",
    "LEFT",
    "RIGHT",
    "WIDTH",
    "Landscape",
    "Mark",
    "against_batch",
    "against_devices",
    "logarithmic",
]

WIDTH, HEIGHT = 400.0, 270.0
"""Of a drawing, in its own units."""

LEFT, RIGHT, BOTTOM = 56.0, 14.0, 42.0
"""Margins for the labels of the axes."""

ROW = 15.0
"""Height of a line of labels above the lines."""

GAP = 10.0
"""Between the last of these and the lines."""

ROOM, LEAST = 1.15, 1.5
"""An axis reaches so many times beyond its lines, and spans at least so many times its lowest."""

MARKED = 4
"""At most so many crossings have a label; the table has all."""


class Mark(NamedTuple):
    """A place to look at, in the drawing's units.

    Attributes:
        x: where.
        y: where; the label stands above, and a line joins them.
        colour: number of its line's colour; -1 for what was asked.
        label: what is there.
        label_y: where the label stands.
        is_left: whether the label stands to the left of the line.
    """

    x: float
    y: float
    colour: int
    label: str
    label_y: float
    is_left: bool


class Landscape(NamedTuple):
    """A drawing with two logarithmic axes.

    Attributes:
        title: what it shows.
        x_name: what its axis to the right is.
        top: where the lines' area begins, below the labels.
        x_ticks: marks on it.
        y_ticks: marks on the axis upwards.
        curves: one a strategy, the points of each with their titles.
        marks: what was asked, and where lines cross the one of one device.
        text: what a person who cannot see it is told.
    """

    title: str
    x_name: str
    top: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...]
    text: str


class _Series(NamedTuple):
    """A line before it has places: its name, its points, and where along it something is to be marked."""

    name: str
    points: tuple[tuple[float, float], ...]
    marked: tuple[tuple[float, str], ...] = ()


def against_batch(advice: Counsel) -> Landscape | None:
    """A step against one device's, over batches.

    Args:
        advice: worked out.

    Returns:
        The drawing; None where there is nothing to set against one device, or the data have one row.
    """
    rows = advice.outlook.facts.rows
    shown = [line for line in _shown(advice) if line.prediction is not None]
    if len(shown) < 2 or rows < 2:
        return None

    def series(line: Line) -> _Series:
        sizes = batches(rows, line.devices)
        sizes = (*sizes[:-1][:: max(1, len(sizes) // 60)], sizes[-1])
        found = [at_batch(advice.outlook, advice.on, line.strategy, line.sync_every, size).split for size in sizes]
        # Far below what was measured, the line through noisy points may fall to nothing: there is no ratio there.
        known = [split for split in found if split.single_s > 0 and split.step_s > 0]
        points = tuple((float(split.batch_size), split.step_s / split.single_s) for split in known)
        lows = [low for low, _ in line.pays if low > 1]
        return _Series(_name(line), points, tuple((float(low), f"{_name(line)}: {low:,}") for low in lows[:1]))

    asked = (float(min(rows, advice.outlook.asked.batch_size)), f"asked: {advice.outlook.asked.batch_size:,}")
    title = "How many times one device's step, by the rows of a batch"
    return _drawn([series(line) for line in shown], asked, title, "rows of a batch", _times)


def against_devices(advice: Counsel) -> Landscape | None:
    """A step at the batch asked for, over numbers of devices.

    Args:
        advice: worked out.

    Returns:
        The drawing; None where there is one device.
    """
    outlook, found = advice.outlook, []
    strategies = [line.strategy for line in advice.lines]
    ways = dict.fromkeys((outlook.asked.sync_every[0], outlook.asked.sync_every[-1]))
    for kind in kinds(strategies):
        for every in ways:
            over = reach(outlook, advice.on, kind, every)
            if over is not None and len(over.seconds) > 1:
                name = kind if every == "step" else f"{kind}, every {every}"
                marked = () if over.pays_from is None else ((float(over.pays_from), f"{name}: {over.pays_from}"),)
                points = tuple((float(n), seconds) for n, seconds in over.seconds if seconds > 0)
                found.append(_Series(name, points, marked))
    if not found:
        return None
    end = max(series.points[-1][0] for series in found)
    single_s = found[0].points[0][1]
    single = _Series("single", ((1.0, single_s), (end, single_s)))
    title = f"A step at a batch of {outlook.asked.batch_size:,}, by the number of devices"
    return _drawn([single, *found], None, title, "devices", seconds_text)


def _shown(advice: Counsel) -> list[Line]:
    """One device, each strategy as it was first asked for, and the fastest way of local SGD."""
    first = list({line.strategy: line for line in reversed(advice.lines)}.values())[::-1]
    several = [line for line in first if line.devices > 1]
    rare = [line for line in advice.lines if line.prediction is not None and line not in first]
    return [advice.lines[0], *several, *sorted(rare, key=lambda line: line.ratio)[:1]]


def _name(line: Line) -> str:
    is_plain = line.sync_every == "step" or line.devices == 1
    return line.strategy if is_plain else f"{line.strategy}, every {line.sync_every}"


class _Axes(NamedTuple):
    """The values at the edges of a drawing, and where its area begins."""

    left: float
    right: float
    low: float
    high: float
    top: float

    def across(self, x: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * math.log(x / self.left) / math.log(self.right / self.left), 2)

    def up(self, y: float) -> float:
        share = math.log(y / self.low) / math.log(self.high / self.low)
        return round(HEIGHT - BOTTOM - (HEIGHT - self.top - BOTTOM) * share, 2)


def _times(ratio: float) -> str:
    return f"{ratio:.3g}×"


def _drawn(
    found: Sequence[_Series], asked: tuple[float, str] | None, title: str, x_name: str, words: Callable[[float], str]
) -> Landscape:
    xs = [x for series in found for x, _ in series.points]
    ys = [y for series in found for _, y in series.points]
    low, high = min(ys) / ROOM, max(*ys, min(ys) * LEAST) * ROOM
    wanted = [(n, place, label) for n, series in enumerate(found) for place, label in series.marked][:MARKED]
    rows = len(wanted) + (asked is not None)
    axes = _Axes(min(xs), max(xs), low, high, GAP + ROW * rows)
    marks = []
    if asked is not None:
        marks.append(_mark(axes, asked[0], HEIGHT - BOTTOM, -1, asked[1], 0))
    for row, (number, place, label) in enumerate(sorted(wanted, key=lambda one: one[1]), len(marks)):
        marks.append(_mark(axes, place, axes.up(_at(found[number].points, place)), number, label, row))
    ends = "; ".join(
        f"{series.name} {words(series.points[0][1])} at {series.points[0][0]:,.0f}, "
        f"{words(series.points[-1][1])} at {series.points[-1][0]:,.0f}"
        for series in found
    )
    crossings = ", ".join(label for _, _, label in wanted) or "none"
    x_values = _x_values(min(xs), max(xs))
    return Landscape(
        title,
        x_name,
        axes.top,
        tuple(Tick(axes.across(x), f"{x / 1000:g}k" if x >= 1000 else f"{x:g}") for x in x_values),
        tuple(Tick(axes.up(y), re.sub(r"\.0+(?= )", "", words(y))) for y in logarithmic(low, high)),
        tuple(_curve(axes, number, series, x_name, words) for number, series in enumerate(found)),
        tuple(marks),
        f"{ends}. Faster than one device from: {crossings}.",
    )


def _x_values(low: float, high: float) -> tuple[float, ...]:
    """Marks for batches by tens, for devices by twos."""
    if high / low > 64:
        return tuple(10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1))
    powers = [2.0**power for power in range(7) if low <= 2**power <= high]
    return tuple(powers) if powers[-1] * 1.4 > high else (*powers, high)


def logarithmic(low: float, high: float) -> tuple[float, ...]:
    """Round numbers inside a range of a logarithmic axis: few, and at least two.

    Args:
        low: the axis's least value, above 0.
        high: its largest, a half more or above.

    Example:
        >>> logarithmic(0.3, 400), logarithmic(9.5, 33), logarithmic(30, 46)
        ((1.0, 10.0, 100.0), (10.0, 20.0), (30.0, 40.0))
    """
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    step = max(1, math.ceil((last - first) / 6))
    found = [10.0**power for power in range(first, last + 1, step)]
    if len(found) < 3:
        fine = [factor * 10.0**power for power in range(first - 1, last + 1) for factor in (1, 2, 5)]
        found = [value for value in fine if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
    if len(found) < 2:
        found = [value for value in ticks(low, high, count=3) if low <= value <= high]
    return tuple(float(f"{value:.6g}") for value in found)


def _mark(axes: _Axes, x: float, y: float, colour: int, label: str, row: int) -> Mark:
    across = axes.across(x)
    return Mark(across, y, colour, label, ROW * (row + 0.75), across > WIDTH / 2)


def _at(points: Iterable[tuple[float, float]], place: float) -> float:
    """The value at a place, on a straight line between logarithms."""
    near = list(points)
    after = next((n for n, (x, _) in enumerate(near) if x >= place), len(near) - 1)
    (x0, y0), (x1, y1) = near[max(0, after - 1)], near[after]
    share = 1.0 if x1 == x0 else math.log(place / x0) / math.log(x1 / x0)
    return float(y0 * (y1 / y0) ** share)


def _curve(axes: _Axes, number: int, series: _Series, x_name: str, words: Callable[[float], str]) -> Curve:
    placed = [(axes.across(x), axes.up(y)) for x, y in series.points]
    few = len(placed) <= len(numbers(64))
    marks = tuple(
        (x, y, f"{series.name}: {words(height)} with {value:,.0f} {x_name}")
        for (x, y), (value, height) in zip(placed, series.points, strict=True)
    )
    return Curve(series.name, number, " ".join(f"{x},{y}" for x, y in placed), marks if few else ())
