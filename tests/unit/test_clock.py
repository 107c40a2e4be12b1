from __future__ import annotations

import threading

import pytest

from dure.clock import Clock, SystemClock
from manual_clock import ManualClock

CLOCKS: list[Clock] = [SystemClock(), ManualClock()]


@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: type(clock).__name__)
class TestEveryClock:
    def test_time_never_goes_back(self, clock: Clock) -> None:
        times = [clock.now() for _ in range(1000)]
        assert times == sorted(times)

    def test_an_event_that_is_set_ends_the_wait_at_once(self, clock: Clock) -> None:
        event = threading.Event()
        event.set()
        assert clock.wait(event, timeout_s=3600.0)

    @pytest.mark.parametrize("timeout_s", [0.0, -1.0])
    def test_no_time_only_looks(self, clock: Clock, timeout_s: float) -> None:
        assert not clock.wait(threading.Event(), timeout_s=timeout_s)

    def test_a_wait_that_ends_unset_took_its_time(self, clock: Clock) -> None:
        start = clock.now()
        assert not clock.wait(threading.Event(), timeout_s=0.01)
        assert clock.now() - start >= 0.01


def test_the_system_clock_hears_an_event_from_another_thread() -> None:
    event = threading.Event()
    thread = threading.Thread(target=event.set)
    thread.start()
    assert SystemClock().wait(event, timeout_s=30.0)
    thread.join()


def test_the_manual_clock_moves_only_by_hand_or_by_a_wait() -> None:
    clock = ManualClock(start_s=5.0)
    assert clock.now() == 5.0
    clock.advance(2.5)
    assert clock.now() == 7.5
    clock.wait(threading.Event(), timeout_s=1.5)
    assert (clock.now(), clock.waits) == (9.0, [1.5])
