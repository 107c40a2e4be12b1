"""The command `dure advise`."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dure.advise import listing
from dure.advise.advise import Advice, Wish, look
from dure.advise.options import INTERVALS
from dure.advise.report import check_writable

__all__ = ["advise"]


def advise(
    *,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Function that makes the model; without one, the seed network."),
    ] = None,
    data: Annotated[
        str,
        typer.Option(metavar="NAME|MODULE:FUNCTION", help="A named data set, or a function that returns arrays."),
    ] = "fashion_mnist",
    strategies: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="What to predict: single, mirrored:N, multi-worker:N, with commas; else by the machines.",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Rows of one global batch.")] = 25,
    epochs: Annotated[int, typer.Option(help="Passes over the training rows.")] = 10,
    repeat: Annotated[int, typer.Option(help="How many times the one device is measured.")] = 1,
    sync_every: Annotated[
        str, typer.Option(metavar="step|N|epoch", help="How often replicas meet; several with commas.")
    ] = ",".join(map(str, INTERVALS)),
    seed: Annotated[int, typer.Option(help="Seed of weights and data order.")] = 0,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="What one measuring process may take.")] = 1800.0,
    machines: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Machines that are not here; without, this machine.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="PATH", help="The report to write.")] = Path("dure-advice.html"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document in place of table and words.")
    ] = False,
) -> None:
    """Say what several devices would give, before any of them trains.

    One device is measured for a few seconds, and this machine once. From these come the seconds of each
    strategy, why, and from which batch and how many devices on it would be otherwise. Machines that are not
    here are described in TOML. Table and words are printed, and a report is written that opens in any browser.
    """
    check_writable(out)
    if "" not in sys.path:
        sys.path.insert(0, "")  # `--model module:function` is looked for in the current folder, as by `python -m`
    wish = Wish(strategies, epochs, batch_size, repeat, sync_every, seed, timeout, machines)
    advice = Advice(look(model, data, wish, say=_progress, command=shlex.join(["dure", *sys.argv[1:]])))
    typer.echo(f"report: {advice.save(out)}", err=True)
    if as_json:
        typer.echo(json.dumps(advice.to_dict(), allow_nan=False))
    else:
        _show(advice)


def _progress(line: str) -> None:
    typer.echo(line, err=True)


def _show(advice: Advice) -> None:
    """Table and words: with what to use in bold on a terminal, else as plain text of 80 columns."""
    paragraphs = advice.verdict.split("\n\n")
    if sys.stdout.isatty():
        console = Console(highlight=False)
        console.print(advice.table, markup=False)
        console.print(f"\n{paragraphs[0]}", style="bold", markup=False)
        for paragraph in paragraphs[1:]:
            console.print(f"\n{paragraph}", markup=False)
        return
    typer.echo(advice.table)
    for paragraph in paragraphs:
        typer.echo(f"\n{textwrap.fill(paragraph, listing.WIDTH, break_on_hyphens=False, break_long_words=False)}")
