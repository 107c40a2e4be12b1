"""Where training is, and which rows make which step: pure, the same under every strategy."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

__all__ = ["Plan", "Position", "order"]


class Position(NamedTuple):
    """Where training is; saved in every checkpoint.

    Attributes:
        epoch: epochs that are finished, over all `fit`s.
        step: steps done of the one that is not; 0 between epochs.
        seed: seed of the order of rows.
        origin: the epoch at which that seed was given: the orders are counted from there.
        plan: how the unfinished epoch is cut into steps, as a text; empty between epochs.

    Example:
        >>> Position(epoch=4, step=7, seed=1, plan="100 rows in batches of 10").seeded(2)
        Position(epoch=4, step=0, seed=2, origin=4, plan='')
    """

    epoch: int = 0
    step: int = 0
    seed: int = 0
    origin: int = 0
    plan: str = ""

    @property
    def turn(self) -> int:
        """Number of the epoch since the seed was given: what its order depends on."""
        return self.epoch - self.origin

    def advanced(self, steps: int, plan: str) -> Position:
        """The position `steps` later in the same epoch."""
        return self._replace(step=self.step + steps, plan=plan)

    def finished(self) -> Position:
        """The start of the next epoch."""
        return self._replace(epoch=self.epoch + 1, step=0, plan="")

    def seeded(self, seed: int) -> Position:
        """The start of an epoch whose order comes from another seed."""
        return Position(epoch=self.epoch, seed=seed, origin=self.epoch)


class Plan(NamedTuple):
    """How an epoch over arrays is cut into steps.

    Attributes:
        rows: how many examples there are.
        batch_size: examples of a step; the last one has what is left.
        shuffle: whether each epoch has an order of its own.

    Example:
        >>> plan = Plan(rows=103, batch_size=25, shuffle=False)
        >>> plan.full_steps, plan.last_rows, plan.steps
        (4, 3, 5)
    """

    rows: int
    batch_size: int
    shuffle: bool

    @property
    def full_steps(self) -> int:
        """Steps of exactly `batch_size` rows."""
        return self.rows // self.batch_size

    @property
    def last_rows(self) -> int:
        """Rows of the short step at the end; 0 when there is none."""
        return self.rows % self.batch_size

    @property
    def steps(self) -> int:
        """All steps of an epoch."""
        return math.ceil(self.rows / self.batch_size)

    def __str__(self) -> str:
        return f"{self.rows} rows in batches of {self.batch_size}{', shuffled' if self.shuffle else ''}"


def order(plan: Plan, seed: int, turn: int) -> np.ndarray:
    """The order of rows in an epoch: a permutation that depends on the seed and the turn alone.

    Args:
        plan: of the epoch.
        seed: of the run.
        turn: its number since the seed was given, from 0.

    Returns:
        int32 `[rows]`, int64 beyond 2**31 rows.

    Example:
        >>> order(Plan(4, 2, shuffle=False), seed=0, turn=0).tolist()
        [0, 1, 2, 3]
        >>> first, again, second = (order(Plan(9, 2, shuffle=True), seed=7, turn=t) for t in (0, 0, 1))
        >>> first.tolist() == again.tolist(), first.tolist() == second.tolist(), sorted(first.tolist())
        (True, False, [0, 1, 2, 3, 4, 5, 6, 7, 8])
    """
    dtype = np.int32 if plan.rows <= np.iinfo(np.int32).max else np.int64
    if not plan.shuffle:
        return np.arange(plan.rows, dtype=dtype)
    # NumPy keeps a bit generator's numbers the same for ever, which it does not promise of `shuffle`; and a
    # checkpoint in the middle of an epoch must find the same order with another release.
    numbers = np.random.Philox(np.random.SeedSequence((seed, turn))).random_raw(plan.rows)
    # Each row's number in the low bits: sorting is faster than argsort, and equal draws fall in one order
    # only.
    mask = np.uint64(2 ** plan.rows.bit_length() - 1)
    keys = (numbers & ~mask) | np.arange(plan.rows, dtype=np.uint64)
    keys.sort()
    return (keys & mask).astype(dtype)
