"""What the processes of a fit decide together: how many steps the next dispatch has, and when training stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, final

from dure.strategy.group import Group

__all__ = ["Agreement", "Reason"]

Reason = Literal["", "stop", "interrupt"]
"""Why training stops: a callback asked for it, or Ctrl-C; empty while it goes on."""


@final
class Agreement:
    """One decision of all processes before each dispatch; processes that chose alone would run different programs.

    Args:
        group: the processes; each makes an agreement for the same calls.
        wish: why this process would stop now.

    Attributes:
        reason: why training stops, on all processes alike.
    """

    def __init__(self, group: Group, wish: Callable[[], Reason] = lambda: "") -> None:
        self._group = group
        self._wish = wish
        self._name = f"call {group.turn()}"
        self._told = False
        self.reason: Reason = ""

    def next(self, count: int, *, through_stop: bool = False) -> int:
        """The steps of the next dispatch: the chief's count, or 0 where training stops.

        Args:
            count: what this process would take.
            through_stop: only Ctrl-C counts.
        """
        mine = self.reason or self._wish()
        if self._group.size > 1:
            if mine and not self._told:
                self._group.wish(self._name, mine)
                self._told = True
            mine = mine or self._group.wished(self._name) or ""
            count, mine = self._group.lead(self._name, [count, mine])
        if mine == "interrupt" or not through_stop:
            self.reason = mine
        return 0 if self.reason == "interrupt" or (self.reason and not through_stop) else count
