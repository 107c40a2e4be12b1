"""Ctrl-C while training: the first one asks for a clean end, the second one is a `KeyboardInterrupt`."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, final

__all__ = ["Interrupts"]


@final
class Interrupts:
    """Hears Ctrl-C inside a `with`, and puts back what heard it before.

    Outside of the main thread, and where the process ignores Ctrl-C, it does nothing.

    Attributes:
        requested: Ctrl-C was pressed.
    """

    def __init__(self) -> None:
        self.requested = False
        self._installed = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            # None: installed by something that is not Python, which could not be put back.
            if self._before not in (signal.SIG_IGN, None):
                signal.signal(signal.SIGINT, self._hear)
                self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._before)
            self._installed = False

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
