"""The table of advice: as plain text, which fits 80 columns, and as cells for a page."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

from dure.advise.counsel import Counsel
from dure.advise.outlook import Line, Outlook
from dure.advise.quantity import count_text, percent_text, seconds_text
from dure.advise.reckon import spread
from dure.advise.words import NAMES

__all__ = ["HEADINGS", "Row", "footer", "notes", "rows", "text"]

COLUMNS = (
    "Time: start and steps. Ratio: to single. Limit: what takes the most beyond an n-th of one device's step. Pays at: "
    "batches whose step is faster than one device's."
)
"""What the columns are."""

WIDTH = 80
"""Columns that the text form never exceeds."""


class Row(NamedTuple):
    """One line, every cell as text."""

    strategy: str
    meets: str
    time: str
    ratio: str
    rate: str
    limit: str
    pays: str


HEADINGS = Row("strategy", "meets", "time", "ratio", "steps/s", "limit", "pays at batch")


def rows(advice: Counsel) -> tuple[Row, ...]:
    """One line a strategy and way to meet, in the order asked.

    Args:
        advice: worked out.
    """
    return tuple(_row(line) for line in advice.lines)


def _row(line: Line) -> Row:
    meets = "-" if line.devices == 1 else f"{line.sync_every}"
    found = line.prediction
    if found is None:
        return Row(line.strategy, meets, "not known", *["-"] * 4)
    main = found.split.largest()
    limit = f"{NAMES[main.cause]} {percent_text(main.seconds / found.step_s)}" if main else "-"
    time = seconds_text(found.seconds) if line.fits else "too large"
    rate = count_text(1 / found.step_s)
    return Row(line.strategy, meets, time, f"{line.ratio:.2f}", rate, limit, _pays(line))


def _pays(line: Line) -> str:
    if line.devices == 1:
        return "-"
    if not line.pays:
        return "none"
    low, high = line.pays[-1]
    if high is None:
        return "any" if low == 1 else f"{low:,}+"
    return f"{low:,}-{high:,}" if high > low else f"{low:,}"


def text(advice: Counsel) -> str:
    """The table and its footer as plain text, at most 80 columns wide.

    A strategy's name that is too long for the line is cut and ends in a tilde.

    Args:
        advice: worked out.
    """
    lines = [HEADINGS, *rows(advice)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= WIDTH else 1
    widths[0] = min(widths[0], WIDTH - sum(widths[1:]) - gap * (len(widths) - 1))
    body = []
    for line in lines:
        name = line.strategy if len(line.strategy) <= widths[0] else f"{line.strategy[: widths[0] - 1]}~"
        cells = [name.ljust(widths[0])]
        cells += [
            cell.ljust(width) if column == 5 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line[1:], widths[1:], strict=True), 1)
        ]
        body.append((" " * gap).join(cells).rstrip())
    rule = "-" * max(len(line) for line in body)
    return "\n".join([body[0], rule, *body[1:], rule, *footer(advice.outlook)])


def footer(outlook: Outlook) -> list[str]:
    """The notes under the table; each line at most 80 columns."""
    return [line for note in notes(outlook) for line in textwrap.wrap(note, WIDTH, break_on_hyphens=False)]


def notes(outlook: Outlook) -> list[str]:
    """What would be trained on what, and what the columns are.

    Args:
        outlook: what was asked and measured.
    """
    asked, facts = outlook.asked, outlook.facts
    passes = f"{asked.epochs} epoch{'s' if asked.epochs > 1 else ''} of batches of {asked.batch_size:,}"
    told = [
        f"Predicted for {asked.model} on {asked.data}, {facts.rows:,} rows; {passes}.",
        COLUMNS,
        _places(outlook),
        facts.note,
    ]
    return [note for note in told if note]


def _places(outlook: Outlook) -> str:
    """Where the devices of other machines lie."""
    site = outlook.site
    if site is None:
        return f"On this machine: {outlook.here.device}, {outlook.here.cores} cores."
    machines = site.machines(site.best.name)
    across = [s for s in outlook.asked.strategies if s.startswith("multi-worker")]
    told = f"On {site.name}: devices are {site.best.name}; mirrored stays in one machine"
    for strategy in across:
        parts = spread(machines, int(strategy.partition(":")[2]))
        where = " + ".join(map(str, parts))
        told += f", {strategy} is {where}{' in one machine' if len(parts) == 1 else f' in {len(parts)} machines'}"
    return f"{told}."
