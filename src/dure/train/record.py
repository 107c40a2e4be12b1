"""The fits of a trainer, as its checkpoints keep them: so that a run that is started again ends where it would have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from dure.errors import CheckpointError
from dure.train.epochs import Position
from dure.train.history import History

__all__ = ["Fits", "Record"]


@dataclass
class Record:
    """One fit.

    Attributes:
        last: the epoch before which it ends, counted over all fits.
        history: what it has given so far.
        is_resumed: another process, which is gone, began it.
        is_over: and ended it too.
    """

    last: int
    history: History
    is_resumed: bool = False
    is_over: bool = False

    def goes_on(self, position: Position) -> bool:
        """Whether there is something left to train."""
        return position.epoch < self.last


@final
class Fits:
    """The fits of a trainer, in the order in which they were called.

    Args:
        is_kept: they are remembered, for checkpoints of a run that may be started again.

    Example:
        >>> fits = Fits()
        >>> fits.begin(Position(epoch=2), epochs=3).last
        5
        >>> again = Fits()
        >>> again.resume(fits.to_list())
        >>> again.begin(Position(epoch=4), epochs=3).last
        5
    """

    def __init__(self, *, is_kept: bool = True) -> None:
        self._is_kept = is_kept
        self._records: list[Record] = []
        self._called = 0

    def begin(self, position: Position, *, epochs: int) -> Record:
        """The record of the fit that is called now: a new one, or one that was begun before the restart.

        Args:
            position: where training is.
            epochs: how many were asked for; an unfinished one is ended besides.
        """
        if self._called < len(self._records):
            record = self._records[self._called]
        else:
            record = Record(position.epoch + epochs + (position.step > 0), History())
            if not self._is_kept:
                return record
            self._records.append(record)
        self._called += 1
        return record

    def to_list(self) -> list[dict[str, Any]]:
        """The fits so far, as plain values that JSON can carry."""
        return [{"last": record.last, **record.history.past()} for record in self._records]

    def resume(self, saved: Sequence[Any]) -> None:
        """Takes over the fits of a process that is gone; those called so far are among them.

        Raises:
            CheckpointError, ValueError, TypeError, KeyError: the values are not those of `to_list`.
        """
        records = []
        for number, values in enumerate(saved, 1):
            last = values["last"]
            if type(last) is not int or last < 0:
                raise CheckpointError(f"the last epoch of fit {number} is {last!r}")
            history = History.of_past(values)
            records.append(Record(last, history, is_resumed=True, is_over=number < len(saved)))
        self._records = records
        self._called = min(self._called, len(records))
