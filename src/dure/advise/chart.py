"""The drawings of a report as numbers: where each bar, line and label goes; the template draws them."""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

from dure.advise.cause import Cause, split
from dure.advise.quantity import count_text, percent_text, seconds_text, signed_text
from dure.advise.record import Record, Trial

__all__ = ["Bar", "Curve", "Lines", "Segment", "Stack", "Tick", "bars", "lines", "stacks", "ticks"]

WIDTH, HEIGHT = 400.0, 270.0
"""Of a drawing of curves, in its own units: near a telephone's pixels, so that its letters stay readable."""

LEFT, RIGHT, TOP, BOTTOM = 46.0, 12.0, 12.0, 42.0
"""Margins of such a drawing, for the labels of its axes."""


class Bar(NamedTuple):
    """One strategy's time; places in percent of the width.

    Attributes:
        name: The strategy.
        colour: Number of its colour.
        width: Its median.
        low: Its fastest repeat.
        high: Its slowest.
        label: The median in words.
        title: All of it in words.
        forecast: What was predicted; None where nothing was.
    """

    name: str
    colour: int
    width: float
    low: float
    high: float
    label: str
    title: str
    forecast: float | None = None


class Segment(NamedTuple):
    """A piece of a step's time; places in percent of the width."""

    name: str
    start: float
    width: float
    title: str


class Stack(NamedTuple):
    """One strategy's step taken apart.

    Attributes:
        name: The strategy.
        label: The whole step in words.
        segments: What can be drawn: where a cause saves time, the pieces before it end earlier.
        cells: One text a cause, in the order of `CAUSES`, for the table below; empty where it does not apply.
    """

    name: str
    label: str
    segments: tuple[Segment, ...]
    cells: tuple[str, ...]


class Tick(NamedTuple):
    """A mark on an axis: where, and its label."""

    place: float
    label: str


class Curve(NamedTuple):
    """One strategy's loss: the points of a line in the drawing's units, and its marks with their titles."""

    name: str
    colour: int
    points: str
    marks: tuple[tuple[float, float, str], ...]


class Lines(NamedTuple):
    """A drawing of curves.

    Attributes:
        title: What it shows.
        x_name: What its axis to the right is.
        x_ticks: Marks on it.
        y_ticks: Marks on the axis upwards.
        curves: One a strategy.
        text: What a person who cannot see it is told.
    """

    title: str
    x_name: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    curves: tuple[Curve, ...]
    text: str


CAUSES = (Cause.BATCH, Cause.STRATEGY, Cause.CORES, Cause.EXCHANGE)
"""The columns of the table of causes."""


def bars(record: Record) -> tuple[Bar, ...]:
    """The times of all strategies that gave a result, and what was predicted of them."""
    timed = [(n, s, record.seconds(s)) for n, s in enumerate(record.settings.strategies) if record.seconds(s)]
    told = {name: found.seconds for _, name, _ in timed if (found := record.forecast(name))}
    longest = max([max(times) for _, _, times in timed] + list(told.values()), default=1.0) * 1.02
    return tuple(
        Bar(
            name,
            number,
            100 * statistics.median(times) / longest,
            100 * min(times) / longest,
            100 * max(times) / longest,
            seconds_text(statistics.median(times)),
            f"{name}: {', '.join(map(seconds_text, times))}"
            + (f"; predicted {seconds_text(told[name])}" if name in told else ""),
            100 * told[name] / longest if name in told else None,
        )
        for number, name, times in timed
    )


def stacks(record: Record) -> tuple[Stack, ...]:
    """A step of the single device, and of each strategy that could be taken apart."""
    splits = [found for strategy in record.settings.strategies if (found := split(record, strategy))]
    if not splits:
        return ()
    longest = max([splits[0].single_s, *(parts.step_s for parts in splits)]) * 1.02
    single = splits[0].single_s
    whole = Segment("ideal", 0.0, 100 * single / longest, f"one device: {seconds_text(single)}")
    drawn = [Stack("single", seconds_text(single), (whole,), ("",) * len(CAUSES))]
    for parts in splits:
        ends = [parts.ideal_s]
        for part in parts.parts:
            ends.append(ends[-1] + part.seconds)
        # A cause that saves time shortens what stands before it, so that the bar ends where the step does.
        seen = [max(0.0, min(ends[place:])) for place in range(len(ends))]
        fraction = "one device's step" if parts.devices == 1 else f"1/{parts.devices} of one device's step"
        names = ["ideal", *(part.cause.name.lower() for part in parts.parts)]
        titles = [f"{fraction}: {seconds_text(parts.ideal_s)}"]
        titles += [
            f"{part.cause.value}: {signed_text(part.seconds)}, {percent_text(part.seconds / parts.step_s)} of the step"
            for part in parts.parts
        ]
        starts = [0.0, *seen[:-1]]
        segments = tuple(
            Segment(name, 100 * start / longest, 100 * (end - start) / longest, title)
            for name, start, end, title in zip(names, starts, seen, titles, strict=True)
            if end > start
        )
        cells = {part.cause: signed_text(part.seconds) + ("" if part.shown else " ?") for part in parts.parts}
        label = seconds_text(parts.step_s)
        drawn.append(Stack(parts.strategy, label, segments, tuple(cells.get(cause, "") for cause in CAUSES)))
    return tuple(drawn)


def lines(record: Record, *, against: str) -> Lines | None:
    """The training loss of each strategy's middle run.

    Args:
        record: What was measured.
        against: `seconds` or `steps`.

    Returns:
        The drawing, or None where no run has a curve.
    """
    column = 1 if against == "seconds" else 0
    runs = [(n, run) for n, s in enumerate(record.settings.strategies) if (run := _middle_run(record, s))]
    data = [(number, run, [(point[column], point[2]) for point in run.curve]) for number, run in runs]
    if not data:
        return None
    x_end = max(x for _, _, points in data for x, _ in points)
    losses = [y for _, _, points in data for _, y in points]
    x_values, y_values = ticks(0.0, x_end), ticks(min(losses), max(losses))
    bottom, top = min(y_values[0], *losses), max(y_values[-1], *losses)
    right = max(x_end, x_values[-1] if x_values[-1] <= x_end * 1.1 else x_end)

    area = _Area(right, bottom, top)
    curves = tuple(_curve(number, run, points, area, against) for number, run, points in data)
    ends = ", ".join(
        f"{run.strategy} ends at {run.curve[-1][2]:.4f} after {_at(run.curve[-1][column], against)}"
        for _, run, _ in data
    )
    unit = "seconds" if against == "seconds" else "updates"
    return Lines(
        title=f"Training loss against {'time' if against == 'seconds' else 'updates'}",
        x_name=unit,
        x_ticks=tuple(Tick(area.across(x), _tick_text(x, right)) for x in x_values if x <= right),
        y_ticks=tuple(Tick(area.up(y), f"{y:g}") for y in y_values),
        curves=curves,
        text=f"Training loss, the mean since the point before: {ends}.",
    )


SMALLEST_SPAN = 1e-290
"""A range below this is flat: a fifth of it may be no number any more."""


def ticks(low: float, high: float, *, count: int = 5) -> tuple[float, ...]:
    """Round numbers that cover a range.

    Args:
        low: Its least value.
        high: Its largest.
        count: About how many.

    Example:
        >>> ticks(0.0, 14.2), ticks(0.31, 0.62)
        ((0.0, 5.0, 10.0, 15.0), (0.3, 0.4, 0.5, 0.6, 0.7))
    """
    span = high - low
    if not span > SMALLEST_SPAN:
        span = abs(high) if abs(high) > SMALLEST_SPAN else 1.0
    rough = span / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    return tuple(round(number * step, digits) for number in range(first, max(last, first + 1) + 1))


class _Area(NamedTuple):
    """The values at the edges of a drawing; the left one is 0."""

    right: float
    bottom: float
    top: float

    def across(self, x: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * x / (self.right or 1.0), 2)

    def up(self, y: float) -> float:
        share = (y - self.bottom) / ((self.top - self.bottom) or 1.0)
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share, 2)


def _middle_run(record: Record, strategy: str) -> Trial | None:
    """The repeat whose time is the median's nearest, where it has a curve."""
    trials = [trial for trial in record.of(strategy) if trial.curve]
    if not trials:
        return None
    middle = statistics.median([trial.seconds for trial in trials])
    return min(trials, key=lambda trial: abs(trial.seconds - middle))


def _curve(number: int, run: Trial, points: list[tuple[float, float]], area: _Area, against: str) -> Curve:
    placed = [(area.across(x), area.up(y)) for x, y in points]
    marks = tuple(
        (x, y, f"{run.strategy}: loss {loss:.4f} after {_at(value, against)}")
        for (x, y), (value, loss) in zip(placed, points, strict=True)
    )
    return Curve(run.strategy, number, " ".join(f"{x},{y}" for x, y in placed), marks)


def _at(value: float, against: str) -> str:
    return seconds_text(value) if against == "seconds" else f"{count_text(value)} updates"


def _tick_text(value: float, largest: float) -> str:
    return f"{value / 1000:g}k" if value and largest >= 10000 else f"{value:g}"
