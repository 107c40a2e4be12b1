"""The board of a worker: a small file in which it says what it does, and which its launcher reads.

A heartbeat proves that a thread runs; a board tells what the process waits for. Writing is a few bytes into mapped
memory and no system call, so that a worker can say it around every wait. Reading needs nothing of the worker: its last
words stay there when it is stopped or killed.
"""

from __future__ import annotations

import contextlib
import enum
import mmap
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self, final

from dure.errors import InternalError, SpecError

__all__ = ["SIZE_BYTES", "VARIABLE", "Board", "Phase", "Record", "here"]

VARIABLE = "DURE_BOARD"
"""The environment variable that holds the path of a worker's board."""


class Phase(enum.Enum):
    """What a worker does, as it is written in messages."""

    START = "start"
    USER = "user code"
    DATA = "data"
    COMPILE = "compile"
    COLLECTIVE = "collective"
    DONE = "done"


class Record(NamedTuple):
    """What a board says.

    Args:
        pid: number of the process that wrote it; 0 as long as none has.
        phase: what it does.
        step: training steps done.
        changes: how often the board was written.
        since_s: when it was written last, in seconds of `time.monotonic`, which the processes of a machine share.
    """

    pid: int
    phase: Phase
    step: int
    changes: int
    since_s: float


_PHASES = tuple(Phase)
_NUMBERS = {phase: number for number, phase in enumerate(_PHASES)}
_HEAD = b"DUREBRD1"
_BODY = struct.Struct("<QIIqd")  # changes, pid, phase, step, since
_SUM = struct.Struct("<I")
_COUNT = struct.Struct("<Q")
_SLOT_BYTES = 64  # one line of a cache
_SLOTS = (64, 64 + _SLOT_BYTES)
SIZE_BYTES = 64 + 2 * _SLOT_BYTES
"""The size of the file in bytes."""

_TRIES = 10_000


@final
class Board:
    """One worker's board. Made by `create` (the launcher) or `open` (the worker).

    There are two places, written in turn, each with its number and a checksum: whoever is stopped or killed in the
    middle of one leaves the other whole.

    Args:
        memory: the mapped file.
        pid: the process that writes.
    """

    def __init__(self, memory: mmap.mmap, pid: int) -> None:
        self._memory = memory
        self._pid = pid
        self._lock = threading.Lock()
        self._said = (Phase.START, 0)
        self._thread: int | None = None
        self._waiting: list[int] = []

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Self:
        """Makes the file, readable by its owner alone, with the record START of no process.

        Raises:
            FileExistsError: there is something at that path.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            os.truncate(descriptor, SIZE_BYTES)
            board = cls(mmap.mmap(descriptor, SIZE_BYTES), 0)
        finally:
            os.close(descriptor)
        board.enter(Phase.START, 0)
        board._memory[: len(_HEAD)] = _HEAD
        return board

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Opens a file that `create` made; what is entered from here on is this process's.

        Raises:
            OSError: it is not there or is not this user's.
            SpecError: it is no board.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            size_bytes = os.fstat(descriptor).st_size
            memory = mmap.mmap(descriptor, SIZE_BYTES) if size_bytes == SIZE_BYTES else None
        finally:
            os.close(descriptor)
        if memory is None or memory[: len(_HEAD)] != _HEAD:
            if memory is not None:
                memory.close()
            raise SpecError(
                f"asked for the board {Path(path).name!r}, a file of {size_bytes} bytes; a board of this version has "
                f"{SIZE_BYTES} and starts with {_HEAD.decode()}. Start the script with `dure run`, or unset {VARIABLE}"
            )
        board = cls(memory, os.getpid())
        record = board.read()
        board._said = (record.phase, record.step)
        return board

    def enter(self, phase: Phase, step: int) -> None:
        """Says what this process is about to do; takes about a microsecond.

        Args:
            phase: what.
            step: training steps done.
        """
        with self._lock:
            self._said, self._thread = (phase, step), threading.get_ident()
            self._write(self._shown(), step)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Says that this thread waits for other processes, until the end of the block; then what was said before.

        A thread that loads data may wait too: that counts while the one that trains waits for the data.
        """
        thread = threading.get_ident()
        self._change(self._waiting.append, thread)
        try:
            yield
        finally:
            self._change(self._waiting.remove, thread)

    def _change(self, change: Callable[[int], None], thread: int) -> None:
        with self._lock:
            before = self._shown()
            change(thread)
            # What is said already stays as it is, with its time.
            if self._shown() is not before:
                self._write(self._shown(), self._said[1])

    def _shown(self) -> Phase:
        """What is to be read: that it waits, where it does."""
        phase = self._said[0]
        waits = any(phase is Phase.DATA or self._thread in (None, thread) for thread in self._waiting)
        return Phase.COLLECTIVE if waits else phase

    def _write(self, phase: Phase, step: int) -> None:
        # The number comes from the file, since a script and its bootstrap each have a board of their own.
        changes = 1 + max(_COUNT.unpack_from(self._memory, slot)[0] for slot in _SLOTS)
        body = _BODY.pack(changes, self._pid, _NUMBERS[phase], step, time.monotonic())
        slot = _SLOTS[changes % 2]
        self._memory[slot : slot + _BODY.size + _SUM.size] = body + _SUM.pack(zlib.crc32(body))

    def read(self) -> Record:
        """Returns the last whole record.

        Raises:
            InternalError: there is none, which no process that keeps to `enter` can bring about.
        """
        for _ in range(_TRIES):
            found = [record for slot in _SLOTS if (record := self._read(slot)) is not None]
            if found:
                return max(found, key=lambda record: record.changes)
        raise InternalError(
            f"asked for the last record of a board, and none of its two is whole after {_TRIES} tries. Something else "
            "writes into that file: look for it"
        )

    def close(self) -> None:
        """Gives the memory back; twice is fine."""
        self._memory.close()

    def _read(self, slot: int) -> Record | None:
        whole = self._memory[slot : slot + _BODY.size + _SUM.size]
        body = whole[: _BODY.size]
        changes, pid, number, step, since_s = _BODY.unpack(body)
        if not changes or _SUM.unpack_from(whole, _BODY.size)[0] != zlib.crc32(body) or number >= len(_PHASES):
            return None
        return Record(pid, _PHASES[number], step, changes, since_s)


def here(environ: Mapping[str, str] | None = None) -> Board | None:
    """Returns this process's board; None when it was not started by `dure run`.

    A process that a worker starts inherits its variables and is no worker: it has none.

    Args:
        environ: variables, of which `DURE_BOARD` is read; None takes this process's.

    Raises:
        SpecError: `DURE_BOARD` names no board.

    Example:
        >>> here({}) is None
        True
    """
    path = (os.environ if environ is None else environ).get(VARIABLE)
    if not path:
        return None
    try:
        board = Board.open(path)
    except OSError as error:
        raise SpecError(
            f"asked, by the environment variable {VARIABLE}, for the board {path[:200]!r}, which cannot be opened: "
            f"{error.strerror}. Start the script with `dure run`, or unset {VARIABLE}"
        ) from error
    if board.read().pid in (0, os.getpid()):
        return board
    board.close()
    return None
