"""The command `dure compare`."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dure.advise import table
from dure.advise.bench import measure
from dure.advise.compare import STRATEGIES, Comparison, plan
from dure.advise.record import Settings
from dure.advise.report import check_writable

__all__ = ["compare"]

EXIT_NO_RESULT = 1
EXIT_INTERRUPTED = 130


def compare(
    *,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Function that makes the model. [default: the seed network]"),
    ] = None,
    data: Annotated[
        str,
        typer.Option(metavar="NAME|MODULE:FUNCTION", help="A named data set, or a function that returns arrays."),
    ] = "fashion_mnist",
    strategies: Annotated[
        str, typer.Option(metavar="LIST", help="What to compare: single, mirrored:N, multi-worker:N, with commas.")
    ] = ",".join(STRATEGIES),
    batch_size: Annotated[int, typer.Option(help="Rows of one global batch.")] = 25,
    epochs: Annotated[int, typer.Option(help="Passes over the training rows.")] = 10,
    repeat: Annotated[
        int,
        typer.Option(help="How often each strategy trains; 2 spares what is slow at first the second."),
    ] = 2,
    sync_every: Annotated[str, typer.Option(metavar="step|N|epoch", help="How often the replicas meet.")] = "step",
    seed: Annotated[int, typer.Option(help="Seed of weights, shuffle and dropout.")] = 0,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="What one training run may take.")] = 1800.0,
    predict: Annotated[bool, typer.Option(help="Predict the times before the runs, and show how far off.")] = True,
    out: Annotated[Path, typer.Option(metavar="PATH", help="The report to write.")] = Path("dure-report.html"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document in place of table and verdict.")
    ] = False,
) -> None:
    """Train one model under several strategies; say what pays, and why.

    Each strategy trains in a fresh process, or in several. What it will take is predicted before, from a step of one
    device and this machine's calibration. Short measuring runs then show where a step's time goes. The table and the
    verdict are printed, and a report is written that opens in any browser without a network.
    """
    check_writable(out)
    if "" not in sys.path:
        sys.path.insert(0, "")  # `--model module:function` is looked for in the current folder, as by `python -m`
    options = Settings("", "", (), batch_size, epochs, repeat, sync_every, seed, timeout, predict)
    command = shlex.join(["dure", *sys.argv[1:]])
    record = measure(plan(model, data, strategies, options, command=command), _progress)
    comparison = Comparison(record)
    if record.trials:
        typer.echo(f"report: {comparison.save(out)}", err=True)
    if as_json:
        typer.echo(json.dumps(comparison.to_dict(), allow_nan=False))
    else:
        _show(comparison)
    if record.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if not all(record.of(strategy) for strategy in record.settings.strategies):
        raise typer.Exit(EXIT_NO_RESULT)


def _progress(line: str) -> None:
    typer.echo(line, err=True)


def _show(comparison: Comparison) -> None:
    """Table and verdict: with colours on a terminal, else as plain text of 80 columns."""
    if sys.stdout.isatty():
        console = Console(highlight=False)
        console.print(table.terminal(comparison.record))
        console.print(comparison.judged.headline, style="bold")
        for paragraph in comparison.verdict.split("\n\n")[1:]:
            console.print(f"\n{paragraph}", markup=False)
        return
    typer.echo(comparison.table)
    for paragraph in comparison.verdict.split("\n\n"):
        typer.echo(f"\n{textwrap.fill(paragraph, table.WIDTH, break_on_hyphens=False, break_long_words=False)}")
