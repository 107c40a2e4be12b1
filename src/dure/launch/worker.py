"""The bootstrap of a worker: `python -m dure.launch.worker script.py args...`, started by `dure run`.

It runs the script as Python itself would, says on the board what happens, leaves the stack of every thread in a file
when the launcher asks for it (SIGUSR1, also inside C code), and leaves an exception that ends the script in a file, so
that the launcher can show the one that began it all and no other.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from dure.launch import board as boards
from dure.launch.board import Board, Phase

__all__ = ["ERROR", "MAX_ERROR_CHARACTERS", "STACK", "main"]

ERROR = ".error"
"""Ending of the file that holds the exception, beside the board."""

STACK = ".stack"
"""Ending of the file that takes the stacks, beside the board."""

MAX_ERROR_CHARACTERS = 100_000
"""The longest traceback that is kept, in characters."""

_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> None:
    """Runs a script or a module as `__main__`; a script that fails ends the process here.

    Args:
        arguments: the path of the script, or `-m` and the name of a module; then its own arguments.
    """
    _die_with_the_launcher()
    path = Path(os.environ[boards.VARIABLE])
    # Kept open for as long as the process lives: the handler writes into it from within a signal.
    stack = path.with_suffix(STACK).open("w")
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True, chain=False)
    board = Board.open(path)
    board.enter(Phase.START, 0)
    for stream in (sys.stdout, sys.stderr):
        # What goes through a pipe would come in blocks, and what a killed process held back would be lost.
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        _run(arguments, board)
    except SystemExit as end:
        code = _exit_code(end.code)
        if code:
            _leave(board, code)
    except KeyboardInterrupt:
        _leave(board, 128 + signal.SIGINT)
    except BaseException as error:  # noqa: BLE001 - whatever leaves the script is the script's
        _keep(error, path.with_suffix(ERROR))
        _leave(board, 1)
    # What ended in order leaves as Python does: JAX parts from the others at exit, and waits for them.
    board.enter(Phase.DONE, board.read().step)


def _run(arguments: Sequence[str], board: Board) -> None:
    is_module = arguments[0] == "-m"
    target, *rest = arguments[1:] if is_module else arguments
    sys.argv[:] = [target, *rest]
    if is_module:
        sys.path.insert(0, str(Path.cwd()))
        board.enter(Phase.USER, 0)
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return
    if not Path(target).is_dir():  # a folder with a __main__.py is its own path, which runpy puts there
        sys.path.insert(0, str(Path(target).resolve().parent))
    board.enter(Phase.USER, 0)
    runpy.run_path(target, run_name="__main__")


def _die_with_the_launcher() -> None:
    """Has Linux end this process when its launcher ends; elsewhere the launcher's guard does."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before it was asked for
            os._exit(1)


def _exit_code(code: object) -> int:
    """The exit code that Python makes of `sys.exit(code)`; a text is written."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _leave(board: Board, code: int) -> NoReturn:
    """Ends at once: at an orderly exit JAX would wait for the others, which wait for this one."""
    del board  # it keeps the phase and step of the failure
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _keep(error: BaseException, path: Path) -> None:
    """Writes an exception where the launcher looks for it; whole or not at all."""
    lines = traceback.format_exception(type(error), error, _of_the_script(error.__traceback__))
    text = "".join(lines)
    if len(text) > MAX_ERROR_CHARACTERS:
        half = MAX_ERROR_CHARACTERS // 2
        text = f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
    record = {
        "kind": type(error).__name__,
        "message": str(traceback.TracebackException(type(error), error, None))[:4000],
        "text": text,
        "at_s": time.monotonic(),
    }
    made = path.with_suffix(".part")
    made.write_text(json.dumps(record))
    made.rename(path)


def _of_the_script(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this module and of runpy, which are above the script's."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    main(sys.argv[1:])
