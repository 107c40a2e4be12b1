"""From the times of loops to what the cost model reads."""

from __future__ import annotations

import pytest

from dure.advise import readings
from dure.advise.readings import APART, ARRAYS, MANY, MOMENTS, PRODUCT, SIZES, STREAM, product, update

FULL = {
    product("alone"): 1.0,
    update("alone", ARRAYS, SIZES[1]): 2.0,
    update("alone", ARRAYS, SIZES[2]): 10.0,
    STREAM: 4.0,
}
ONE = {product("alone"): 1.8, update("alone", ARRAYS, SIZES[1]): 3.0, update("alone", ARRAYS, SIZES[2]): 11.0}


def together(how: str = "sum") -> dict[str, float]:
    """Loops of several devices as fast as one thread, whose exchanges take 3, 5 and 9 s."""
    sizes = SIZES if how == "sum" else APART
    times = {update("together", ARRAYS, size): s for size, s in zip(sizes, (1.0, 3.0, 11.0), strict=True)}
    times |= {update(how, ARRAYS, size): s for size, s in zip(sizes, (4.0, 8.0, 20.0), strict=True)}
    times |= {product("together"): 1.8, update("branch", ARRAYS, SIZES[2]): 11.0 + 4.0}
    return times | {update("together", MANY, SIZES[0]): 1.5, update("sum", MANY, SIZES[0]): 10.5}


def test_the_rates_are_operations_and_bytes_a_second() -> None:
    assert readings.flops_per_s(FULL) == 2 * PRODUCT**3 / 1.0
    assert readings.bytes_per_s(FULL) == 2 * 3 * SIZES[2] / 4.0


def test_devices_that_only_share_the_cores_slow_one_another_down_by_nothing() -> None:
    two = readings.inside(2, together(), FULL, ONE, cores=2)
    assert (two.number, two.computing) == (2, 1.0)
    assert [point.seconds for point in two.moving] == [1.0, 1.0, 1.0]


def test_what_is_longer_than_a_share_of_the_cores_explains_is_what_they_cost_one_another() -> None:
    times = together() | {product("together"): 2.7, update("together", ARRAYS, SIZES[2]): 22.0}
    two = readings.inside(2, times, FULL, ONE, cores=2)
    assert two.computing == pytest.approx(1.5)
    assert [point.seconds for point in two.moving] == pytest.approx([1.5, 1.0, 2.0])
    # Four on two cores take turns: twice a thread's time is no loss.
    four = readings.inside(4, {name: 2 * seconds for name, seconds in together().items()}, FULL, ONE, cores=2)
    assert four.computing == pytest.approx(1.0)


def test_devices_with_nothing_to_share_are_set_against_one_alone() -> None:
    assert readings.inside(2, together(), FULL, None, cores=2).computing == pytest.approx(1.8)


def test_an_exchange_is_what_it_adds_to_the_same_loop() -> None:
    found = readings.inside(2, together(), FULL, ONE, cores=2)
    assert [(point.size, point.seconds) for point in found.exchange.sizes] == [
        *zip(SIZES, (3.0, 5.0, 9.0), strict=True)
    ]
    assert found.exchange.arrays == ARRAYS
    assert found.exchange.array_s == pytest.approx((9.0 - 3.0) / (MANY - ARRAYS))
    assert found.copy_s_per_byte == pytest.approx(4.0 / (MOMENTS * SIZES[2]))


def test_noise_makes_no_exchange_negative_or_shorter_for_more_bytes() -> None:
    times = together() | {update("sum", ARRAYS, SIZES[1]): 2.5}
    found = readings.inside(2, times, FULL, ONE, cores=2)
    assert [point.seconds for point in found.exchange.sizes] == [3.0, 3.0, 9.0]


def test_processes_are_set_against_one_with_the_same_threads() -> None:
    times = together("flat") | ONE | {product("together"): 3.6}
    found = readings.between(2, times, 0.7, 1e-10)
    assert (found.computing, found.start_s, found.copy_s_per_byte) == (2.0, 0.7, 1e-10)
    assert [point.seconds for point in found.exchange.sizes] == [3.0, 5.0, 9.0]
    assert found.exchange.seconds(1, APART[0]) == 3.0
    assert found.exchange.seconds(2, APART[0]) == 6.0


def test_what_copies_cost_is_measured_once() -> None:
    assert readings.inside(4, together(), FULL, ONE, 2, copy_s_per_byte=7.0).copy_s_per_byte == 7.0
