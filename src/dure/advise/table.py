"""A comparison's table: as plain text, which fits 80 columns, and for a terminal."""

from __future__ import annotations

import statistics
import textwrap
from typing import NamedTuple

from rich.text import Text

from dure.advise.quantity import bytes_text, count_text, seconds_text
from dure.advise.record import Record
from dure.advise.verdict import score

__all__ = ["Row", "footer", "headings", "notes", "rows", "terminal", "text"]

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


def headings(record: Record) -> Row:
    """The line above the rows; the last one says which metric of the test rows it holds."""
    names = [name for strategy in record.settings.strategies if (name := score(record, strategy)[0])]
    result = "test loss" if names and "acc" not in names[0] else "test acc"
    return Row("strategy", "devices", "time", "ratio", "steps/s", "1st step", "memory", result)


def rows(record: Record) -> tuple[Row, ...]:
    """One line a strategy, in the order asked; medians over the repeats, the largest of the memory."""
    lines = []
    base = record.seconds(record.settings.base)
    for strategy in record.settings.strategies:
        trials = record.of(strategy)
        if not trials:
            state = "failed" if any(f.strategy == strategy for f in record.failures) else "not run"
            lines.append(Row(strategy, state, *["-"] * 6))
            continue
        seconds = statistics.median(record.seconds(strategy))
        ratio = f"{seconds / statistics.median(base):.2f}" if base else "-"
        result = score(record, strategy)[1]
        lines.append(
            Row(
                strategy,
                f"{trials[0].devices} {'virtual ' if trials[0].virtual else ''}{trials[0].kind}",
                seconds_text(seconds),
                ratio,
                count_text(1 / statistics.median([trial.step_s for trial in trials])),
                seconds_text(statistics.median([trial.first_step_s for trial in trials])),
                bytes_text(max(trial.peak_bytes for trial in trials)),
                "-" if result is None else f"{result:.4f}",
            )
        )
    return tuple(lines)


def text(record: Record) -> str:
    """The table and its footer as plain text, at most 80 columns wide.

    A strategy's name that is too long for the line is cut and ends in a tilde.
    """
    body = _body(record)
    rule = "-" * max(len(line) for line in body)
    return "\n".join([body[0], rule, *body[1:], rule, *footer(record)])


def terminal(record: Record) -> Text:
    """The same for a terminal that has colours: the fastest green, what failed red, the footer dim."""
    timed = {s: statistics.median(times) for s in record.settings.strategies if (times := record.seconds(s))}
    fastest = min(timed, key=lambda strategy: timed[strategy], default="")
    heading, *body = _body(record)
    shown = Text(f"{heading}\n", style="bold")
    shown.append("\u2500" * max(len(line) for line in [heading, *body]) + "\n", style="not bold dim")
    for strategy, line in zip(record.settings.strategies, body, strict=True):
        style = "red" if strategy not in timed else "green" if strategy == fastest else ""
        shown.append(f"{line}\n", style=f"not bold {style}".strip())
    return shown.append("\n" + "\n".join(footer(record)), style="not bold dim")


def _body(record: Record) -> list[str]:
    """The headings and a line a strategy, in columns."""
    lines = [headings(record), *rows(record)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(Row._fields))]
    widths[0] = min(widths[0], WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1))
    body = []
    for line in lines:
        name = line.strategy if len(line.strategy) <= widths[0] else f"{line.strategy[: widths[0] - 1]}~"
        cells = [name.ljust(widths[0]), line.devices.ljust(widths[1])]
        cells += [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
        body.append("  ".join(cells).rstrip())
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
    return [note for note in [*sentences, facts.note] if note]


def _repeats(record: Record) -> str:
    counts = {len(record.of(strategy)) for strategy in record.settings.strategies} - {0}
    if not counts:
        return "Nothing was measured"
    runs = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    words = "One run of each" if runs == "1" else f"Median of {runs} runs of each, the order turned around in between"
    return f"{words}; ratio of times to {record.settings.base}"
