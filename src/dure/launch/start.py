"""Which start of a run a process belongs to: what the launcher tells it, so that it takes up what was left."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from dure.errors import SpecError
from dure.launch import board as boards

__all__ = ["RESTART", "RUN", "Start", "start_of"]

RUN = "DURE_RUN"
"""The environment variable with the name of the run, the same for all its starts."""

RESTART = "DURE_RESTART"
"""The environment variable with how often the group was started before."""


class Start(NamedTuple):
    """One start of a run.

    Attributes:
        run: the name of the run; empty where nothing starts this process again.
        number: how often it was started before.
    """

    run: str = ""
    number: int = 0


def start_of(environ: Mapping[str, str] | None = None) -> Start:
    """Returns the start that this process belongs to.

    Args:
        environ: variables; None takes this process's.

    Raises:
        SpecError: the number of the start is none.

    Example:
        >>> start_of({"DURE_RUN": "7f", "DURE_RESTART": "2"})
        Start(run='7f', number=2)
    """
    environ = os.environ if environ is None else environ
    run, number = environ.get(RUN, ""), environ.get(RESTART, "0")
    if not run:
        return Start()
    if not number.isascii() or not number.isdigit():
        raise SpecError(
            f"asked, by the environment variable {RESTART}, for the start {number[:100]!r}; it is a whole number, 0 "
            "for the first. Start the script with `dure run`, or unset it"
        )
    if environ.get(boards.VARIABLE):
        board = boards.here(environ)
        if board is None:  # a process that a worker has started inherits its variables, and is not started again
            return Start()
        board.close()
    return Start(run, int(number))
