"""The signals that a launcher hears: noted when they come, acted on by the loop that watches the group."""

from __future__ import annotations

import signal
import threading
from collections import deque
from types import FrameType, TracebackType
from typing import Any, Self, final

__all__ = ["HEARD", "Signals"]

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)
"""Ctrl-C, a request to end, a terminal that is closed, Ctrl-Z."""


@final
class Signals:
    """Hears signals inside a `with`, and puts back what heard them before. Those that are ignored stay so."""

    def __init__(self) -> None:
        self._came: deque[int] = deque()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in HEARD:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def take(self) -> int | None:
        """Returns the next signal that came; None without one."""
        return self._came.popleft() if self._came else None

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self._came.append(number)
