"""A clock that a test moves by hand."""

from __future__ import annotations

import threading
from typing import final


@final
class ManualClock:
    """A `dure.clock.Clock` whose time passes only when the test says so, or somebody waits.

    A wait for an event that is not set takes its whole time at once, because nobody else could set it: tests
    of time run in one thread.

    Args:
        start_s: what `now` returns at first, in seconds.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self.waits: list[float] = []

    def now(self) -> float:
        """Returns the time, in seconds."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Moves the time on."""
        self._now_s += seconds

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Passes the time at once; `waits` keeps how long each wait was."""
        self.waits.append(timeout_s)
        if not event.is_set():
            self.advance(max(0.0, timeout_s))
        return event.is_set()
