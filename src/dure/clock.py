"""Time as an argument: whatever waits or measures takes a `Clock`, and a test passes one that it moves."""

from __future__ import annotations

import threading
import time
from typing import Protocol, final

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """What tells the time and waits for an event."""

    def now(self) -> float:
        """Returns seconds since some fixed moment; never goes back."""
        ...

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Waits until the event is set or the time has passed.

        Args:
            event: what to wait for.
            timeout_s: the longest wait, in seconds; zero or less only looks.

        Returns:
            Whether the event is set.
        """
        ...


@final
class SystemClock:
    """The machine's monotonic clock: it does not jump when somebody sets the time of day.

    Example:
        >>> clock = SystemClock()
        >>> start = clock.now()
        >>> clock.wait(threading.Event(), timeout_s=0.0), clock.now() >= start
        (False, True)
    """

    def now(self) -> float:
        """Returns seconds of the monotonic clock."""
        return time.monotonic()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Waits until the event is set or `timeout_s` seconds have passed; returns whether it is set."""
        return event.wait(max(0.0, timeout_s))
