"""A comparison's table: as plain text, which fits 80 columns, and for a terminal."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from dure.advise.quantity import bytes_text, count_text, seconds_text
from dure.advise.record import Record, Trial
from dure.advise.verdict import score

__all__ = ["Row", "footer", "headings", "notes", "off_text", "predicted", "rows", "terminal", "text"]

WIDTH = 80
"""Columns that the text form never exceeds."""


class Row(NamedTuple):
    """One strategy's line, every cell as text."""

    strategy: str
    devices: str
    seconds: str
    ratio: str
    rate: str
    first_step: str
    memory: str
    result: str
    predicted: str
    error: str


def headings(record: Record) -> Row:
    """The line above the rows; the last one says which metric of the test rows it holds."""
    scores = [name for strategy in record.settings.strategies if (name := score(record, strategy)[0])]
    result = "test loss" if scores and "acc" not in scores[0] else "test acc"
    names = ("strategy", "devices", "time", "ratio", "steps/s", "start", "memory", result, "predicted", "error")
    return Row(*names)


def rows(record: Record) -> tuple[Row, ...]:
    """One line a strategy, in the order asked; medians over the repeats, the largest of the memory."""
    lines = []
    base = record.seconds(record.settings.base)
    for strategy in record.settings.strategies:
        trials, said = record.of(strategy), record.forecast(strategy)
        predicted = seconds_text(said.seconds) if said else "-"
        if not trials:
            state = "failed" if any(f.strategy == strategy for f in record.failures) else "not run"
            lines.append(Row(strategy, state, "-", "-", "-", "-", "-", "-", predicted, "-"))
            continue
        seconds = statistics.median(record.seconds(strategy))
        ratio = f"{seconds / statistics.median(base):.2f}" if base else "-"
        result = score(record, strategy)[1]
        lines.append(
            Row(
                strategy,
                _devices(trials[0]),
                seconds_text(seconds),
                ratio,
                count_text(1 / statistics.median([trial.step_s for trial in trials])),
                seconds_text(statistics.median([trial.first_step_s for trial in trials])),
                bytes_text(max(trial.peak_bytes for trial in trials)),
                "-" if result is None else f"{result:.4f}",
                predicted,
                off_text(record.error(strategy)),
            )
        )
    return tuple(lines)


def _devices(trial: Trial) -> str:
    """How many devices trained, and of what kind."""
    if trial.virtual and trial.strategy.startswith("multi-worker"):
        return f"{trial.devices} processes"
    return f"{trial.devices} {'virtual ' if trial.virtual else ''}{trial.kind}"


def off_text(error: float | None) -> str:
    """How far a prediction was off, in percent and with its sign; a dash where that is not known.

    Example:
        >>> off_text(0.123), off_text(-0.004), off_text(None)
        ('+12 %', '0 %', '-')
    """
    if error is None:
        return "-"
    percent = round(error * 100)
    return f"{percent:+} %" if percent else "0 %"


def predicted(record: Record) -> tuple[tuple[str, ...], ...]:
    """What was predicted beside what was measured: headings, then a line a strategy; nothing where nothing was said."""
    if not record.forecasts:
        return ()
    lines = [("strategy", "predicted", "time", "error", "predicted step", "step", "error")]
    for strategy in record.settings.strategies:
        said, trials = record.forecast(strategy), record.of(strategy)
        times, steps = record.seconds(strategy), [trial.step_s for trial in trials]
        step_s = statistics.median(steps) if steps else None
        lines.append(
            (
                strategy,
                seconds_text(said.seconds) if said else "-",
                seconds_text(statistics.median(times)) if times else "-",
                off_text(record.error(strategy)),
                seconds_text(said.step_s) if said else "-",
                seconds_text(step_s) if step_s else "-",
                off_text(said.step_s / step_s - 1 if said and step_s else None),
            )
        )
    return tuple(lines)


def text(record: Record) -> str:
    """The table, what was predicted beside it, and the footer as plain text, at most 80 columns wide.

    A strategy's name that is too long for the line is cut and ends in a tilde.
    """
    lines: list[str] = []
    for body in _bodies(record):
        rule = "-" * max(len(line) for line in body)
        lines += [*([""] if lines else []), body[0], rule, *body[1:], rule]
    return "\n".join([*lines, *footer(record)])


def terminal(record: Record) -> Text:
    """The same for a terminal that has colours: the fastest green, what failed red, the footer dim."""
    timed = {s: statistics.median(times) for s in record.settings.strategies if (times := record.seconds(s))}
    fastest = min(timed, key=lambda strategy: timed[strategy], default="")
    shown = Text()
    for heading, *body in _bodies(record):
        shown.append(f"{heading}\n", style="bold")
        shown.append("\u2500" * max(len(line) for line in [heading, *body]) + "\n", style="dim")
        for strategy, line in zip(record.settings.strategies, body, strict=True):
            style = "red" if strategy not in timed else "green" if strategy == fastest else ""
            shown.append(f"{line}\n", style=style)
        shown.append("\n")
    return shown.append("\n".join(footer(record)), style="dim")


def _bodies(record: Record) -> list[list[str]]:
    """The headings and a line a strategy, in columns: what was measured, then what was predicted."""
    measured = [line[: Row._fields.index("predicted")] for line in (headings(record), *rows(record))]
    tables = [measured, predicted(record)]
    return [_columns(lines, left=2 if lines is measured else 1) for lines in tables if lines]


def _columns(lines: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Lines of cells in columns, the first ones set to the left; closer where they need the room."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    # One column less between those to the left, whose cells seldom fill their width.
    tight = max(0, sum(widths) + 2 * (len(widths) - 1) - WIDTH)
    gaps = [" " if place < tight else "  " for place in range(len(widths) - 1)]
    widths[0] = max(1, min(widths[0], WIDTH - sum(widths[1:]) - len("".join(gaps))))
    body = []
    for first, *others in lines:
        name = first if len(first) <= widths[0] else f"{first[: widths[0] - 1]}~"
        cells = [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip([name, *others], widths, strict=True))
        ]
        body.append("".join(map("".join, zip(cells, [*gaps, ""], strict=True))).rstrip())
    return body


def footer(record: Record) -> list[str]:
    """The notes under the table; each line at most 80 columns."""
    return [line for note in notes(record) for line in textwrap.wrap(note, WIDTH)]


def notes(record: Record) -> list[str]:
    """What was trained on what, and what the numbers are."""
    settings, facts = record.settings, record.facts
    rows_text = f", {facts.rows:,} rows" if facts.rows else ""
    passes = f"{settings.epochs} epoch{'s' if settings.epochs > 1 else ''} of batches of {settings.batch_size}"
    sentences = [
        f"Trained: {settings.model} on {settings.data}{rows_text}; {passes}.",
        f"{_repeats(record)}.",
    ]
    sentences += _starts(record)
    if record.forecasts:
        sentences.append("Predicted before the runs, from steps of one device and this machine's calibration.")
    if record.unpredicted:
        sentences.append(f"Not predicted: {record.unpredicted.rstrip('.')}.")
    return [note for note in [*sentences, facts.note] if note]


def _starts(record: Record) -> list[str]:
    """What a user waits for before `fit`, which the times leave out."""
    ready = {
        strategy: statistics.median([trial.ready_s for trial in trials])
        for strategy in record.settings.strategies
        if (trials := record.of(strategy)) and all(trial.ready_s for trial in trials)
    }
    if not ready:
        return []
    first, last = (choose(ready, key=lambda strategy: ready[strategy]) for choose in (min, max))
    spans = [f"{seconds_text(ready[strategy])} ({strategy})" for strategy in dict.fromkeys((first, last))]
    return [f"Starting, importing and reading data is not in the times: {' to '.join(spans)}."]


def _repeats(record: Record) -> str:
    counts = {strategy: count for strategy in record.settings.strategies if (count := len(record.of(strategy)))}
    if not counts:
        return "Nothing was measured"
    most = max(counts.values())
    words = "One run of each" if most == 1 else f"Median of {most} runs of each, the order turned around in between"
    fewer = [f"{strategy} of {count}" for strategy, count in counts.items() if count < most]
    return f"{words}{''.join(f', {one}' for one in fewer)}; ratio of times to {record.settings.base}"
