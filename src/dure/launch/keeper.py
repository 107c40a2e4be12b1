"""The launcher's side of its guard: what it tells the program that tidies up if the launcher is killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import final

from dure.launch import guard

__all__ = ["Keeper"]


@final
class Keeper:
    """A guard, in a process and a session of its own; it ends when this process does, in whatever way."""

    def __init__(self) -> None:
        # By its path and without `site`: it needs Python alone, and is there in some hundredths of a second.
        self._process = subprocess.Popen(  # noqa: S603 - this Python and a file of this package
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def session(self, pid: int) -> None:
        """Notes the session of a worker."""
        self._say(f"session {pid}")

    def gone(self, pid: int) -> None:
        """Notes that nothing of that session is left."""
        self._say(f"gone {pid}")

    def folder(self, path: Path) -> None:
        """Notes a folder that goes with the group."""
        self._say(f"folder {path}")

    def forget(self) -> None:
        """Notes that all of it is gone."""
        self._say("forget")

    def close(self) -> None:
        """Lets the guard go; twice is fine."""
        if self._process.returncode is None:
            self._say("done")
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody killed it: then it cannot help
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
