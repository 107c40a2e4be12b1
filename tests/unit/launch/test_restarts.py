from __future__ import annotations

import random

from dure.launch.restarts import MOST, WINDOW_S, Restarts


class Highest(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return b


class Lowest(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return a


def test_none_without_leave() -> None:
    assert Restarts(0, Highest()).next(0.0) is None


def test_as_many_as_asked_for_and_each_pause_twice_the_last() -> None:
    restarts = Restarts(3, Highest())
    assert [restarts.next(0.0) for _ in range(4)] == [0.1, 0.2, 0.4, None]
    assert (restarts.count, restarts.limit) == (3, 3)


def test_not_more_than_five_in_ten_minutes() -> None:
    restarts = Restarts(100, Highest())
    assert sum(restarts.next(0.0) is not None for _ in range(20)) == MOST
    assert restarts.next(WINDOW_S - 1) is None
    # What ran for ten minutes has earned a new start, with a short pause.
    assert restarts.next(WINDOW_S) == 0.1


def test_jitter_halves_a_pause_at_most() -> None:
    assert Restarts(1, Lowest()).next(0.0) == 0.05
