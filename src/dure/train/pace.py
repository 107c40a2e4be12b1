"""How many steps go in one dispatch: pure, from the seconds that earlier dispatches took."""

from __future__ import annotations

import math
from typing import final

__all__ = ["MOST_S", "TARGET_S", "Pace"]

TARGET_S = 0.1
"""How long a dispatch should take: long enough that starting it costs nothing, short enough for Ctrl-C."""

MOST_S = 1.0
"""How long a dispatch may take where starting it costs much: Ctrl-C waits as long."""

_SHARE = 20
"""A dispatch's own cost is to be at most one part in so many of it."""

_GROWTH = 10
_SHRINK = 4
_MOST = 2**30


@final
class Pace:
    """Chooses the number of steps of each dispatch so that it takes about `target_s` seconds.

    It starts with one step, because the first one also compiles and may be slow, and grows by at most ten
    times at once, because the time of a short dispatch says little about a long one.

    What a dispatch costs by itself follows from two numbers of steps. It is microseconds, but for large networks: XLA's
    CPU back end takes fresh memory for the gradients at each one, and the system has to give it page by page. Where it
    is more than a twentieth of a dispatch, dispatches become longer, up to `MOST_S`.

    Args:
        fixed: always this many steps, as `steps_per_execution` asks.
        target_s: seconds that a dispatch should take.

    Example:
        >>> pace = Pace()
        >>> pace.next(1000)
        1
        >>> pace.record(1, seconds=0.001)
        >>> pace.next(1000)
        10
        >>> pace.record(10, seconds=0.01)
        >>> pace.next(1000), pace.next(120), pace.next(3)
        (100, 120, 3)
    """

    def __init__(self, *, fixed: int | None = None, target_s: float = TARGET_S) -> None:
        self._fixed = fixed
        self._target_s = target_s
        self._count = fixed or 1
        self._fastest: dict[int, float] = {}

    def next(self, remaining: int) -> int:
        """Returns the steps of the next dispatch.

        Args:
            remaining: how many steps there are still, at least one.

        Returns:
            At least 1 and at most `remaining`.
        """
        if self._fixed is not None:
            return min(self._fixed, remaining)
        # A rest of less than half a dispatch goes along: by itself it would cost more than it brings.
        return remaining if remaining <= self._count * 3 // 2 else self._count

    def record(self, count: int, seconds: float) -> None:
        """Learns from a dispatch that compiled nothing.

        Args:
            count: its steps.
            seconds: from its start until its results were there.
        """
        if self._fixed is not None:
            return
        self._learn(count, seconds)
        wanted = count * self._target() / max(seconds, 1e-9)
        if len(self._fastest) == 1 and wanted < 2 * count and 2 * seconds <= MOST_S:
            # Long steps go one by one: only a longer dispatch tells what each costs by itself.
            self._count = count * min(_SHRINK, int(MOST_S / seconds))
            return
        if wanted < self._count:
            if count * 2 < self._count:
                return  # the rest of an epoch: most of its time was the dispatch itself
            # One slow dispatch (another program, a page fault) must not throw the rate away.
            wanted = math.sqrt(wanted * self._count)
        low, high = max(1, -(-self._count // _SHRINK)), self._count * _GROWTH
        self._count = min(int(min(max(wanted, low), high)), _MOST)

    def _learn(self, count: int, seconds: float) -> None:
        """Keeps the fastest dispatch of a number of steps, for the fewest steps and the most."""
        self._fastest[count] = min(seconds, self._fastest.get(count, math.inf))
        few, many = min(self._fastest), max(self._fastest)
        self._fastest = {number: self._fastest[number] for number in (few, many)}

    def _target(self) -> float:
        """Seconds that a dispatch should take, after what a dispatch costs by itself."""
        (few, fast), (many, slow) = min(self._fastest.items()), max(self._fastest.items())
        if few == many:
            return self._target_s
        cost = fast - few * max(0.0, slow - fast) / (many - few)
        return max(self._target_s, min(_SHARE * cost, MOST_S))
