"""What machines that are not here would take, against forms written out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.advise.cost import Plan, predict
from dure.advise.reckon import calibration_of, efficiency, exchange_s, network_on, spread, step_s
from dure.errors import SpecError
from unit.advise.outlooks import LARGE, SEED, calibration, site

MB = 1e6


def test_efficiency_is_what_the_largest_step_reaches_of_the_roofline() -> None:
    here = calibration(flops_per_s=100e9, bytes_per_s=10e9)
    # 16 GFLOP at 100 GFLOP/s are 160 ms, and took 370.
    assert efficiency(LARGE, here) == pytest.approx(0.160 / 0.370)
    # Moving decides where it takes longer.
    assert efficiency(LARGE, replace(here, bytes_per_s=1e9)) == pytest.approx(0.33 / 0.370)
    # What a cache holds may be faster than main memory.
    assert efficiency(LARGE, replace(here, bytes_per_s=0.5e9)) == 1.0


@pytest.mark.parametrize("network", [replace(SEED, flops=()), replace(SEED, traffic=())])
def test_nothing_is_reckoned_from_nothing(network) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError, match=r"XLA counted [03] times what operations a step of this model holds; measure"):
        efficiency(network, calibration())


def test_a_step_is_its_launch_and_the_slower_of_computing_and_moving() -> None:
    gpu = replace(site().best, dispatch_s=1e-4, flops_per_s=10e12, bytes_per_s=1e12, efficiency=None)
    assert step_s(gpu, LARGE, 512, 0.5) == pytest.approx(1e-4 + 16e9 / 10e12 / 0.5)
    assert step_s(replace(gpu, bytes_per_s=10e9), LARGE, 512, 0.5) == pytest.approx(1e-4 + 0.33 / 10 / 0.5)
    # What the table says of a device counts more than what was measured of another one.
    assert step_s(replace(gpu, efficiency=0.25), LARGE, 512, 0.5) == pytest.approx(1e-4 + 16e9 / 10e12 / 0.25)


def test_an_exchange_is_a_ring_inside_and_a_ring_between() -> None:
    found = site()
    inside_s = 2 * 7 * (2e-6 + 10 * MB / 8 / 300e9)
    between_s = 2 * 1 * (20e-6 + 10 * MB / 2 / 12.5e9)
    assert exchange_s(found, (8,), 10 * MB) == pytest.approx(inside_s)
    assert exchange_s(found, (8, 8), 10 * MB) == pytest.approx(inside_s + between_s)
    assert exchange_s(found, (1, 1), 10 * MB) == pytest.approx(between_s)
    assert exchange_s(found, (1,), 10 * MB) == 0.0


@given(st.floats(1, 1e10), st.integers(1, 64), st.integers(1, 8))
def test_more_bytes_and_more_machines_never_take_less(size: float, number: int, machines: int) -> None:
    found = site()
    here = exchange_s(found, (number,) * machines, size)
    assert exchange_s(found, (number,) * machines, size * 2) >= here
    assert exchange_s(found, (number,) * (machines + 1), size) >= here


@given(st.lists(st.integers(1, 16), min_size=1, max_size=6), st.data())
def test_machines_are_filled_one_after_the_other(rooms: list[int], data: st.DataObject) -> None:
    number = data.draw(st.integers(1, sum(rooms)))
    parts = spread(tuple(rooms), number)
    assert sum(parts) == number
    assert all(part <= room for part, room in zip(parts, rooms, strict=False))
    assert parts[:-1] == tuple(rooms[: len(parts) - 1])


def test_the_cost_model_reads_a_site_as_it_reads_a_machine() -> None:
    found = site()
    network = network_on(found.best, LARGE, 0.3)
    machine = calibration_of(found, LARGE, calibration(), (2, 8, 16, 99))
    assert [team.number for team in machine.inside] == [2, 8]
    assert [team.number for team in machine.between] == [2, 8, 16]
    plan = Plan(16_384, 60_000, 10)
    single = predict(network, machine, "single", plan)
    eight = predict(network, machine, "mirrored:8", plan)
    sixteen = predict(network, machine, "multi-worker:16", plan)
    share_s = 16_384 / 8 * 16e9 / 512 / 60e12 / 0.4
    assert single.step_s == pytest.approx(8 * share_s, rel=0.01)
    assert eight.step_s == pytest.approx(share_s + exchange_s(found, (8,), 23.2e6), rel=0.02)
    assert sixteen.step_s == pytest.approx(share_s / 2 + exchange_s(found, (8, 8), 23.2e6), rel=0.02)
    assert sixteen.start_s == pytest.approx(single.start_s + 0.9)
