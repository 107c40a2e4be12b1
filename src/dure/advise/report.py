"""A comparison, or a piece of advice, as a page: one HTML file that needs no network and no script."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

import jinja2
import markupsafe

from dure.advise import chart, landscape, listing, table
from dure.advise.counsel import Counsel
from dure.advise.quantity import bytes_text, seconds_text
from dure.advise.record import Record
from dure.advise.verdict import Outcome, judge
from dure.errors import SpecError

__all__ = ["advice_fragment", "advice_page", "check_writable", "fragment", "page", "write"]


def page(record: Record) -> str:
    """The whole report. Every value is escaped, wherever it comes from.

    Args:
        record: What was measured.

    Returns:
        HTML with its style and drawings inside.
    """
    judged = judge(record)
    by_name = {judgement.strategy: judgement for judgement in judged.judgements}
    return (
        _templates()
        .get_template("report.html.jinja")
        .render(
            record=record,
            judged=judged,
            judgements=by_name,
            Outcome=Outcome,
            headings=table.headings(record),
            rows=table.rows(record),
            notes=table.notes(record),
            bars=chart.bars(record),
            stacks=chart.stacks(record),
            causes=chart.CAUSES,
            drawings=[drawn for axis in ("seconds", "steps") if (drawn := chart.lines(record, against=axis))],
            size=chart,
            seconds_text=seconds_text,
            bytes_text=bytes_text,
        )
    )


def fragment(record: Record) -> str:
    """Table and verdict as a piece of HTML for a notebook's cell."""
    judged = judge(record)
    return (
        _templates()
        .get_template("fragment.html.jinja")
        .render(
            headings=table.headings(record),
            rows=table.rows(record),
            notes=table.notes(record),
            headline=judged.headline,
            paragraphs=[*(judgement.text for judgement in judged.judgements), *judged.remarks],
        )
    )


def advice_page(advice: Counsel) -> str:
    """The whole report of advice. Every value is escaped, wherever it comes from.

    Args:
        advice: worked out.

    Returns:
        HTML with its style and drawings inside.
    """
    drawings = [landscape.against_batch(advice), landscape.against_devices(advice)]
    return (
        _templates()
        .get_template("advice.html.jinja")
        .render(
            advice=advice,
            outlook=advice.outlook,
            headings=listing.HEADINGS,
            rows=listing.rows(advice),
            lines=advice.lines,
            notes=listing.notes(advice.outlook),
            drawings=[drawn for drawn in drawings if drawn],
            size=landscape,
            seconds_text=seconds_text,
        )
    )


def advice_fragment(advice: Counsel) -> str:
    """Table and words of advice as a piece of HTML for a notebook's cell.

    Args:
        advice: worked out.
    """
    changes = [f"What would change the answer: {text}" for text in advice.changes]
    return (
        _templates()
        .get_template("fragment.html.jinja")
        .render(
            headings=listing.HEADINGS,
            rows=listing.rows(advice),
            notes=listing.notes(advice.outlook),
            headline=advice.headline,
            paragraphs=[*advice.reasons, *changes, *advice.remarks],
        )
    )


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dure.advise"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["coded"] = _coded
    return environment


def _coded(text: str) -> markupsafe.Markup:
    """Text whose words between backticks are code; everything is escaped."""
    escaped = (markupsafe.escape(piece) for piece in text.split("`"))
    code = markupsafe.Markup("<code>{}</code>")
    return markupsafe.Markup("").join(code.format(piece) if n % 2 else piece for n, piece in enumerate(escaped))


def write(path: Path, text: str) -> Path:
    """Writes a text file whole or not at all.

    Raises:
        SpecError: The folder is not there or cannot be written.
    """
    try:
        check_writable(path)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        made = Path(name)
        made.chmod(0o644)  # a report is made to be shown; 0600 would hide it from a web server
        made.replace(path)
    except OSError as error:
        raise SpecError(f"the report was to be written to {path}, and {error.strerror}; name another path") from error
    return path


def check_writable(path: Path) -> None:
    """Refuses a path where nothing can be written, before minutes of measuring.

    Raises:
        SpecError: The folder is not there, or the path is a folder, or it cannot be written.
    """
    folder = path.parent
    if path.is_dir():
        raise SpecError(f"the report was to be written to {path}, which is a folder; name a file in it")
    if not folder.is_dir():
        raise SpecError(f"the report was to be written to {path}, and there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK):
        raise SpecError(f"the report was to be written to {path}, and {folder} cannot be written; name another path")
