"""What the processes of a fit decide together: how many steps the next dispatch has, and when training stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, final

from dure.errors import DataError
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

    def goes_on(self, told: str | None) -> bool:
        """Whether all processes have the next rows; Ctrl-C on one of them, while it waits for its rows, ends all.

        Args:
            told: what rows this process has next, in words; None where its data have ended.

        Raises:
            DataError: the processes have other rows next than worker 0.
        """
        if self._group.size == 1:
            return told is not None
        said = self._group.each(f"{self._name} data", [told, self._wish() == "interrupt"])
        if any(is_interrupted for _, is_interrupted in said):
            self.reason = "interrupt"
            return False
        for rank, (theirs, _) in enumerate(said):
            if theirs != said[0][0]:
                raise DataError(
                    f"worker:{rank} has {theirs or 'no more data'} next, and worker:0 has "
                    f"{said[0][0] or 'no more data'}. Every process is given the same batches, and takes its own rows "
                    "of each",
                    task=f"worker:{rank}",
                )
        return told is not None
