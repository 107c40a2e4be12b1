"""Whether and when a group is started again. Pure but for its dice."""

from __future__ import annotations

import random
from typing import final

__all__ = ["MOST", "WINDOW_S", "Restarts"]

MOST = 5
"""The most restarts within `WINDOW_S`: what fails faster than that will not be mended by one more."""

WINDOW_S = 600.0
"""In seconds."""

_FIRST_S = 0.1
_LONGEST_S = 10.0


@final
class Restarts:
    """Counts the restarts of a group; the pause before each is twice as long as before the last.

    Args:
        limit: how many there may be in all.
        dice: draws the jitter, which keeps many groups from coming back at one moment.
    """

    def __init__(self, limit: int, dice: random.Random) -> None:
        self._limit = limit
        self._dice = dice
        self._at_s: list[float] = []

    @property
    def count(self) -> int:
        """How many there were."""
        return len(self._at_s)

    @property
    def limit(self) -> int:
        """How many there may be."""
        return self._limit

    def next(self, now_s: float) -> float | None:
        """Returns the pause before the next restart in seconds, and counts it; None where there is none any more.

        Args:
            now_s: the time, in seconds of a clock that does not jump.
        """
        recent = sum(now_s - at_s < WINDOW_S for at_s in self._at_s)
        if self.count >= self._limit or recent >= MOST:
            return None
        self._at_s.append(now_s)
        pause_s: float = min(_LONGEST_S, _FIRST_S * 2**recent)
        return pause_s * self._dice.uniform(0.5, 1.0)
