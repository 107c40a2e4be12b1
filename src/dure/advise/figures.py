"""A calibration as a person reads it: lines of at most 80 columns."""

from __future__ import annotations

from dure.advise.calibration import Calibration, Team
from dure.advise.quantity import seconds_text
from dure.advise.readings import SIZES

__all__ = ["lines"]

WIDTH = 12
"""Columns of a figure."""

NAME = 16
"""Columns of what has the figures."""


def lines(found: Calibration, where: str = "") -> list[str]:
    """What was found, in three small tables.

    Args:
        found: the calibration.
        where: the file that keeps it; empty where none does.
    """
    shown = [f"Measured in {found.took_s:.1f} s: {found.device}, {found.cores} cores"]
    shown += [f"Kept in {where}", ""] if where else [""]
    shown.append(_row("", "dispatch", "computing", "memory"))
    dispatch = seconds_text(found.dispatch_s)
    shown.append(_row("one device", dispatch, _flops(found.flops_per_s), _bytes(found.bytes_per_s)))
    if found.flops_per_s_one:
        shown.append(_row("with one thread", "", _flops(found.flops_per_s_one), _bytes(found.bytes_per_s_one)))
    teams = [(f"{team.number} devices", team) for team in found.inside]
    teams += [(f"{team.number} processes", team) for team in found.between]
    if teams:
        shown += ["", "An all-reduce takes a + b x bytes:"]
        shown.append(_row("", "a", *map(_size, SIZES), "b"))
        shown += [_row(name, *_exchange(team)) for name, team in teams]
        shown += ["", "While all of them work, each takes so many times as long:"]
        shown.append(_row("", "computing", "memory", "joining"))
        shown += [_row(name, *_together(team)) for name, team in teams]
    return shown + [f"Not measured: {note}" for note in found.notes]


def _exchange(team: Team) -> tuple[str, ...]:
    """Of one array: the latency, the times at three sizes, and what each further byte takes in main memory."""
    times = [seconds_text(team.exchange.seconds(1, size)) for size in (0.0, *SIZES)]
    return (*times, f"{team.exchange.s_per_byte * 1e9:.3f} ns")


def _together(team: Team) -> tuple[str, ...]:
    return (
        f"{team.computing:.2f}",
        f"{team.moving[-1].seconds:.2f}",
        seconds_text(team.start_s) if team.start_s else "",
    )


def _row(name: str, *figures: str) -> str:
    return (name.ljust(NAME) + "".join(figure.rjust(WIDTH) for figure in figures)).rstrip()


def _size(size_bytes: int) -> str:
    """A size in KiB or MiB.

    Example:
        >>> _size(2**16), _size(2**24)
        ('64 KiB', '16 MiB')
    """
    return f"{size_bytes >> 20} MiB" if size_bytes >= 2**20 else f"{size_bytes >> 10} KiB"


def _flops(rate: float) -> str:
    return f"{rate / 1e9:,.0f} GFLOP/s"


def _bytes(rate: float) -> str:
    return f"{rate / 1e9:,.1f} GB/s"
