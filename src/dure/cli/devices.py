"""`dure devices`: the devices of this machine, and what is missing to use one."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Annotated

import typer

from dure.devices.host import cores
from dure.devices.inventory import Device, Unusable
from dure.devices.inventory import devices as list_devices
from dure.devices.inventory import unusable as list_unusable

__all__ = ["devices", "memory_text", "plain", "remarks", "rows"]

_TITLES = ("name", "kind", "model", "memory", "virtual")
_GPU_TITLES = ("compute", "driver", "CUDA")


def devices(
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure what they do, by themselves and together: about 10 s.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")] = False,
) -> None:
    """List the devices of this machine, and what is missing to use one.

    With --calibrate they are measured, in processes of their own, and the figures kept in the user's cache folder for
    `dure advise` and `dure compare`: what starting a program takes, operations and bytes a second, and what an
    all-reduce takes between devices and between processes.
    """
    if calibrate:
        _calibrate(as_json)
        return
    here, missing = list_devices(), list_unusable()
    if as_json:
        record = {"devices": [asdict(one) for one in here], "unusable": [one._asdict() for one in missing]}
        typer.echo(json.dumps(record, indent=2))
        return
    if sys.stdout.isatty():
        _print_table(here)
    else:
        typer.echo(plain(rows(here)))
    for line in remarks(here, missing):
        typer.echo(line)


def _calibrate(as_json: bool) -> None:
    """Measures this machine anew and prints what was found."""
    # Imported here: the list needs none of it.
    from dure.advise import figures
    from dure.advise.calibrate import cache_file, measured_anew

    found, is_kept = measured_anew(lambda line: typer.echo(line, err=True))
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
        return
    for line in figures.lines(found, str(cache_file(found.key)) if is_kept else ""):
        typer.echo(line)


def rows(here: Sequence[Device]) -> list[tuple[str, ...]]:
    """Returns the table, titles first; the columns of GPUs only where a real one is.

    Args:
        here: the devices.
    """
    has_gpu = any(one.kind == "gpu" and not one.virtual for one in here)
    table = [_TITLES + (_GPU_TITLES if has_gpu else ())]
    for one in here:
        row = (one.name, one.kind, one.model, memory_text(one.memory_bytes), "yes" if one.virtual else "no")
        facts = (one.compute_capability, one.driver_version, one.cuda_version)
        table.append(row + (tuple(fact or "-" for fact in facts) if has_gpu else ()))
    return table


def plain(table: Sequence[Sequence[str]]) -> str:
    """Returns a table as lines of text in columns, for what is no terminal.

    Example:
        >>> print(plain([("name", "kind"), ("cpu:10", "cpu")]))
        name    kind
        cpu:10  cpu
    """
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)
    return "\n".join(lines)


def memory_text(size_bytes: int | None) -> str:
    """Returns a size as people read it.

    Example:
        >>> memory_text(150754820096), memory_text(None)
        ('140.4 GiB', '-')
    """
    return "-" if size_bytes is None else f"{size_bytes / 2**30:.1f} GiB"


def remarks(here: Sequence[Device], missing: Sequence[Unusable]) -> list[str]:
    """Returns the lines below the table: what virtual devices share, and what cannot be used and why.

    Args:
        here: the devices.
        missing: the accelerators that JAX cannot use.
    """
    lines = []
    if any(one.virtual for one in here):
        lines.append(f"Virtual devices share the cores of this machine ({cores()}).")
    # Eight GPUs that lack the same thing are one line.
    for one, same in groupby(sorted(missing)):
        number = len(list(same))
        what = f"{number} x {one.model}" if number > 1 else one.model
        lines.append(f"Not usable: {what}: {one.reason}. To use it: {one.hint}")
    return lines


def _print_table(here: Sequence[Device]) -> None:
    # Imported here: the plain and the JSON form need no rich.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    titles, *body = rows(here)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for title in titles:
        is_model = title == "model"
        table.add_column(title, no_wrap=not is_model, overflow="fold", justify="right" if title == "memory" else "left")
    for row in body:
        table.add_row(*row)
    Console().print(table)
