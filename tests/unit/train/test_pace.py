"""How many steps go in one dispatch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.train.pace import MOST_S, TARGET_S, Pace


def run(pace: Pace, total: int, seconds_a_step: float, overhead_s: float = 0.0003) -> list[int]:
    """The dispatches of `total` steps on a machine of that speed."""
    counts = []
    while total:
        count = pace.next(total)
        counts.append(count)
        pace.record(count, count * seconds_a_step + overhead_s)
        total -= count
    return counts


def test_it_starts_with_one_step_and_reaches_the_target_in_a_few_dispatches():
    counts = run(Pace(), 100_000, 0.00025)
    assert counts[0] == 1
    assert counts[1] <= 10
    late = counts[6:-1]
    assert all(0.8 * TARGET_S <= count * 0.00025 <= 1.2 * TARGET_S for count in late)


def test_steps_longer_than_the_target_go_one_by_one():
    assert run(Pace(), 5, 0.6) == [1] * 5
    assert run(Pace(), 60, 0.2)[-20:] == [1] * 20


def test_dispatches_that_cost_much_by_themselves_become_longer():
    counts = run(Pace(), 200, 0.1, overhead_s=0.05)
    late = counts[5:-1]
    assert all(0.8 * MOST_S <= count * 0.1 + 0.05 <= MOST_S for count in late)
    assert run(Pace(), 200, 0.02, overhead_s=0.02)[-3] * 0.02 > 3 * TARGET_S


def test_a_fixed_number_is_obeyed():
    assert run(Pace(fixed=7), 20, 0.001) == [7, 7, 6]


def test_one_slow_dispatch_does_not_throw_the_rate_away():
    pace = Pace()
    run(pace, 20_000, 0.001)
    steady = pace.next(10**9)
    pace.record(steady, steady * 0.001 * 100)
    assert pace.next(10**9) >= steady / 4
    run(pace, 2_000, 0.001)
    assert pace.next(10**9) == pytest.approx(steady, rel=0.2)


def test_a_rest_says_nothing_about_the_rate():
    pace = Pace()
    run(pace, 20_000, 0.001)
    steady = pace.next(10**9)
    pace.record(1, 0.01)
    assert pace.next(10**9) == steady


def test_a_slower_machine_is_followed_down():
    pace = Pace()
    run(pace, 20_000, 0.001)
    counts = run(pace, 3_000, 0.01)
    assert counts[-2] * 0.01 < 2 * TARGET_S


@given(st.integers(1, 10**6), st.floats(0, 100), st.lists(st.floats(0, 1000), max_size=30))
def test_it_always_gives_at_least_one_and_at_most_what_remains(remaining, first, times):
    pace = Pace()
    for seconds in [first, *times]:
        count = pace.next(remaining)
        assert 1 <= count <= remaining
        pace.record(count, seconds)


@given(st.integers(1, 5000), st.floats(1e-6, 0.3))
def test_dispatches_add_up_to_the_whole(total, seconds_a_step):
    assert sum(run(Pace(), total, seconds_a_step)) == total
