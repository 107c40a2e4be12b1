"""Where a worker stands: what `faulthandler` wrote of its threads, and the user's frames among them. Pure."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Frame", "Thread", "parse", "place", "stand"]

_HEAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-fA-F]+).*\(most recent call first\)")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)$')
_LIBRARY = str(Path(sysconfig.get_paths()["stdlib"]))
_PACKAGE = str(Path(__file__).resolve().parent.parent)
_MOST_FRAMES = 8


class Frame(NamedTuple):
    """One call.

    Args:
        file: path of its file.
        line: number of the line; 0 where it is not known.
        name: name of the function.
    """

    file: str
    line: int
    name: str

    @property
    def is_dure(self) -> bool:
        """Whether it is a call in this package."""
        return self.file.startswith(_PACKAGE)

    @property
    def is_user(self) -> bool:
        """Whether it is neither of Python, nor of an installed package, nor of this one."""
        parts = Path(self.file).parts
        return not (
            self.file.startswith(("<", _LIBRARY))
            or "site-packages" in parts
            or "dist-packages" in parts
            or self.is_dure
        )

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line} in {self.name}"


class Thread(NamedTuple):
    """The calls of one thread, the innermost first."""

    frames: tuple[Frame, ...]

    @property
    def is_main(self) -> bool:
        """Whether it is the thread that runs the script."""
        return bool(self.frames) and self.frames[-1].name == "_run_module_as_main"

    @property
    def user(self) -> tuple[Frame, ...]:
        """The user's frames among them."""
        return tuple(frame for frame in self.frames if frame.is_user)


def parse(text: str) -> list[Thread]:
    r"""Reads what `faulthandler` wrote of all threads.

    Args:
        text: its words; what is none of its lines is left out.

    Example:
        >>> parse('Thread 0x01 (most recent call first):\n  File "load.py", line 17 in __next__\n')[0].frames
        (Frame(file='load.py', line=17, name='__next__'),)
    """
    threads: list[list[Frame]] = []
    for line in text.splitlines():
        if _HEAD.match(line):
            threads.append([])
        elif threads and (found := _FRAME.match(line)):
            number = int(found["line"]) if found["line"].isdecimal() else 0
            threads[-1].append(Frame(found["file"], number, found["name"]))
    return [Thread(tuple(frames)) for frames in threads if frames]


def stand(threads: Sequence[Thread], *, is_loading: bool) -> tuple[Frame, ...]:
    """Returns the frames that say where a worker stands, the innermost first; its user's where it has some.

    Args:
        threads: all of its threads.
        is_loading: it waits for data, which another thread of Dure may load with the user's code.
    """
    main = [thread for thread in threads if thread.is_main]
    if is_loading:
        loading = [thread for thread in threads if thread.user and _loads(thread)]
        main = loading or main
    for thread in main or threads:
        if thread.user:
            return thread.user[:_MOST_FRAMES]
    return main[0].frames[:_MOST_FRAMES] if main else ()


def place(frames: Sequence[Frame]) -> str:
    """Returns the innermost place in words; empty where there is none.

    Example:
        >>> place([Frame("src/load.py", 17, "__next__")])
        'load.py:17 in __next__'
    """
    return str(frames[0]) if frames else ""


def _loads(thread: Thread) -> bool:
    """Whether a thread of this package runs the user's code."""
    return not thread.is_main and any(frame.is_dure for frame in thread.frames)
