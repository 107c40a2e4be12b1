"""What workers write: passed on line by line, and the noise of a fault's victims held back."""

from __future__ import annotations

import os
import re
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, final

__all__ = ["HOLD_S", "MAX_LINE_BYTES", "TAIL_LINES", "Lines", "Pump"]

HOLD_S = 0.3
"""How long a line of stderr is held back, in seconds: who falls victim to another complains within this time."""

MAX_LINE_BYTES = 1 << 16
"""A line without end is passed on in pieces of this size, in bytes."""

TAIL_LINES = 200
"""How many last lines of a worker are kept."""

_READ_BYTES = 1 << 16
# What Gloo writes to the stdout of every process that it joins, between the lines of the script.
_GLOO = re.compile(rb"\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. Expected number of connected .*\n")
_TICK_S = 0.05
_CLOSE_S = 4.0
_MOST_HELD = 2000


@dataclass(slots=True)
class Lines:
    """Bytes cut into lines, each with its end; what has none yet waits.

    Args:
        rest: the start of a line that has not ended.
    """

    rest: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> list[bytes]:
        """Takes some bytes; returns the lines that are whole by now."""
        self.rest += data
        *whole, last = bytes(self.rest).split(b"\n")
        lines = [line + b"\n" for line in whole]
        while len(last) > MAX_LINE_BYTES:
            lines.append(last[:MAX_LINE_BYTES] + b"\n")
            last = last[MAX_LINE_BYTES:]
        self.rest = bytearray(last)
        return lines

    def end(self) -> list[bytes]:
        """Returns what is left as a line."""
        left = [bytes(self.rest) + b"\n"] if self.rest else []
        self.rest.clear()
        return left


@dataclass(slots=True)
class _Pipe:
    """One pipe of one worker."""

    task: str
    is_error: bool
    lines: Lines = field(default_factory=Lines)


@final
class Pump:
    """Reads the pipes of all workers in a thread of its own and writes what comes to this process's.

    Args:
        out: writes a line to stdout.
        err: writes a line to stderr.
        is_prefixed: lines of stderr start with their worker.
    """

    def __init__(self, out: Callable[[bytes], None], err: Callable[[bytes], None], *, is_prefixed: bool) -> None:
        self._out = out
        self._err = err
        self._is_prefixed = is_prefixed
        self._selector = selectors.DefaultSelector()
        self._tails: dict[str, deque[str]] = {}
        self._held: deque[tuple[float, str, bytes]] = deque()
        self._muted: frozenset[str] = frozenset()
        self._is_holding = False
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dure-output", daemon=True)
        self.is_broken = False

    def add(self, task: str, out: IO[bytes], err: IO[bytes]) -> None:
        """Adds the pipes of a worker; before `start`."""
        self._tails[task] = deque(maxlen=TAIL_LINES)
        for pipe, is_error in ((out, False), (err, True)):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, _Pipe(task, is_error))

    def start(self) -> None:
        """Starts to read."""
        self._thread.start()

    def hold(self) -> None:
        """From now on holds back all of stderr: a worker has failed, and it is not known yet which was the first."""
        with self._lock:
            self._is_holding = True

    def mute(self, *, all_but: str = "") -> None:
        """From now on shows nothing of the workers but for one, nor what of them is held back."""
        with self._lock:
            self._muted = frozenset(self._tails) - {all_but}
            self._held = deque(entry for entry in self._held if entry[1] == all_but)

    def tail(self, task: str) -> list[str]:
        """The last lines that a worker wrote."""
        with self._lock:
            return list(self._tails.get(task, ()))

    def close(self) -> None:
        """Reads what is left in the pipes and ends; the workers are gone by now."""
        self._ending.set()
        if self._thread.ident is not None:
            # Whoever reads our own output may have stopped to; the thread does not keep the process.
            self._thread.join(_CLOSE_S)
            if self._thread.is_alive():
                return
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _run(self) -> None:
        end_s = float("inf")
        while True:
            is_last = self._ending.is_set()
            if is_last:
                end_s = min(end_s, time.monotonic() + _CLOSE_S / 2)
            ready = self._selector.select(0.0 if is_last else _TICK_S) if self._selector.get_map() else []
            for key, _ in ready:
                self._read(key)
            if not self._selector.get_map() and not is_last:
                self._ending.wait(_TICK_S)
            # A process that left its session may still hold a pipe, and write.
            is_over = is_last and (not ready or time.monotonic() > end_s)
            if is_over:
                for key in list(self._selector.get_map().values()):
                    self._take(key.data, key.data.lines.end())
            self._release(everything=is_over)
            if is_over:
                return

    def _read(self, key: selectors.SelectorKey) -> None:
        pipe: _Pipe = key.data
        data = os.read(key.fd, _READ_BYTES)
        lines = pipe.lines.feed(data) if data else pipe.lines.end()
        if not data:
            self._selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
        self._take(pipe, lines)

    def _take(self, pipe: _Pipe, lines: list[bytes]) -> None:
        """Writes or holds back some lines of a worker."""
        now_s = time.monotonic()
        with self._lock:
            for line in lines:
                if _GLOO.fullmatch(line):
                    continue
                self._tails[pipe.task].append(line.decode("utf-8", "replace").rstrip())
                if pipe.task in self._muted:
                    continue
                if not pipe.is_error:
                    self._write(self._out, line)
                else:
                    prefix = f"[{pipe.task}] ".encode() if self._is_prefixed else b""
                    self._held.append((now_s, pipe.task, prefix + line))
            while len(self._held) > _MOST_HELD:
                self._write(self._err, self._held.popleft()[2])

    def _release(self, *, everything: bool) -> None:
        """Writes the lines that were held back long enough."""
        until_s = float("inf") if everything else time.monotonic() - HOLD_S
        with self._lock:
            if self._is_holding and not everything:
                return
            while self._held and self._held[0][0] <= until_s:
                self._write(self._err, self._held.popleft()[2])

    def _write(self, write: Callable[[bytes], None], line: bytes) -> None:
        if self.is_broken:
            return
        try:
            write(line)
        except OSError:  # nobody reads it any more, as behind `| head`
            self.is_broken = True
