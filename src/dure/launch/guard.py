"""Ends the workers of a launcher that was killed. A small program by itself, which needs Python alone.

The launcher writes one line for each worker that it starts (the number of its session) and one with the folder of the
run; `done` says that all is tidy. If its end of the pipe closes before that, it was killed, and all that it had started
is ended here, with what that had started in turn.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from typing import TextIO

__all__ = ["main", "members"]

_ROUNDS = 20


def main(lines: TextIO) -> None:
    """Reads until the launcher is done or gone.

    Args:
        lines: `session 4711`, `gone 4711`, `folder /tmp/x`, `forget` (all of that is gone by now), `done`.
    """
    sessions: set[int] = set()
    folders: set[str] = set()
    for line in lines:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "done":
            return
        if word == "forget":
            sessions.clear()
            folders.clear()
        elif word == "session":
            sessions.add(int(rest))
        elif word == "gone":  # its number may be another's one day
            sessions.discard(int(rest))
        elif word == "folder":
            folders.add(rest)
    for _ in range(_ROUNDS):  # one that forks meanwhile is met in the next round
        if not end(sessions):
            break
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def end(sessions: set[int]) -> bool:
    """Kills what is in these sessions; returns whether anything was."""
    found = False
    for session in sessions:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
    for pid in members(sessions):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            found = True
    return found


def members(sessions: set[int]) -> list[int]:
    """Returns the processes of some sessions, this one excepted, where the system lists its processes (`/proc`)."""
    try:
        listed = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - without pathlib
    except FileNotFoundError:
        return []
    found = []
    for pid in listed:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
                state, _, _, session = file.read().rpartition(")")[2].split()[:4]
            # A dead one that nobody has asked for yet is gone to all but its parent.
            if pid != os.getpid() and state not in "ZX" and int(session) in sessions:
                found.append(pid)
    return found


if __name__ == "__main__":
    main(sys.stdin)
