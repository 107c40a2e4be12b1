"""The cost model's laws, on records: no clock, no devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.advise.calibration import Exchange, Point, Team
from dure.advise.cause import Cause
from dure.advise.cost import Load, Network, Plan, crossing, one_device_s, predict, team_of
from unit.advise.outlooks import LARGE, SEED, US, calibration, separate, team

PLAN = Plan(batch_size=25, rows=60_000, epochs=10)
STRATEGIES = ("mirrored:2", "mirrored:3", "mirrored:4", "mirrored:8", "multi-worker:2", "multi-worker:4")
HERE = calibration()


def exchange_s(network: Network, strategy: str, plan: Plan = PLAN, every: str | int = "step") -> float:
    split = predict(network, HERE, strategy, plan, every).split
    return next(part.seconds for part in split.parts if part.cause is Cause.EXCHANGE)


def test_a_plan_counts_the_short_last_batch() -> None:
    assert (Plan(25, 60, 2).steps_per_epoch, Plan(25, 60, 2).steps, Plan(100, 3, 4).steps) == (3, 6, 4)


def test_single_is_what_was_measured() -> None:
    said = predict(SEED, HERE, "single", PLAN)
    assert said.step_s == pytest.approx(213 * US)
    assert said.split.parts == ()
    assert said.limit is None
    assert said.seconds == pytest.approx(1.0 + 23_999 * 213 * US)
    assert not said.is_extrapolated


def test_a_mirror_of_one_is_the_single_device_and_the_strategy() -> None:
    said = predict(SEED, HERE, "mirrored:1", PLAN, 10)
    (part,) = said.split.parts
    assert part.cause is Cause.STRATEGY
    assert said.step_s == predict(SEED, HERE, "single", PLAN).step_s + part.seconds


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("every", ["step", 1, 10, "epoch"])
@pytest.mark.parametrize("batch_size", [1, 24, 25, 1000])
def test_the_parts_and_the_ideal_add_up_to_the_step(strategy: str, every: str | int, batch_size: int) -> None:
    for network, machine in ((SEED, HERE), (LARGE, separate(8))):
        if strategy.startswith("multi-worker") and not machine.between:
            continue
        split = predict(network, machine, strategy, replace(PLAN, batch_size=batch_size), every).split
        assert split.ideal_s + sum(part.seconds for part in split.parts) == pytest.approx(split.step_s)
        assert split.step_s > 0


@given(
    first=st.floats(1, 1e9),
    more=st.floats(0, 1e9),
    strategy=st.sampled_from(STRATEGIES),
    messages=st.integers(1, 200),
)
def test_more_bytes_never_take_less(first: float, more: float, strategy: str, messages: int) -> None:
    few = replace(SEED, gradients=Load(messages, first, messages))
    many = replace(SEED, gradients=Load(messages, first + more, messages))
    assert exchange_s(many, strategy) >= exchange_s(few, strategy) > 0


@given(batch_size=st.integers(1, 10_000), strategy=st.sampled_from(STRATEGIES), every=st.integers(1, 1000))
def test_meeting_less_often_exchanges_less(batch_size: int, strategy: str, every: int) -> None:
    plan = replace(PLAN, batch_size=batch_size)
    often, seldom = (exchange_s(SEED, strategy, plan, n) for n in (every, every + 1))
    assert seldom <= often
    assert exchange_s(SEED, strategy, plan, "epoch") <= seldom


def test_replicas_meet_every_so_many_steps_and_at_the_end_of_an_epoch() -> None:
    plan = Plan(25, 25 * 40, 1)
    once = exchange_s(SEED, "mirrored:2", plan, "epoch") * 40
    assert exchange_s(SEED, "mirrored:2", plan, 10) == pytest.approx(once * 5 / 40)
    assert exchange_s(SEED, "mirrored:2", plan, 100) == pytest.approx(once / 40)


def test_more_devices_than_cores_take_turns() -> None:
    alike = replace(HERE, inside=tuple(team(n, 0.0, 0.0, computing=1.0, moving=(Point(1.0, 1.0),)) for n in (2, 4, 8)))
    plan = replace(PLAN, batch_size=1024)
    two, four, eight = (predict(SEED, alike, f"mirrored:{n}", plan).step_s for n in (2, 4, 8))
    # On two cores each device of four has a fourth of the rows and half of a core: its update comes on top.
    one_s = [one_device_s(SEED, rows, 1, 2) for rows in (512, 256, 128)]
    assert [two, four, eight] == [pytest.approx(turns * s) for turns, s in zip((1, 2, 4), one_s, strict=True)]
    assert two < four < eight


def test_devices_that_share_nothing_take_no_turns() -> None:
    split = predict(LARGE, separate(8), "mirrored:8", replace(PLAN, batch_size=1024)).split
    assert next(part.seconds for part in split.parts if part.cause is Cause.CORES) == 0
    assert split.share_s == pytest.approx(0.100)


def test_between_one_thread_and_all_cores_amdahl_s_law_holds() -> None:
    network = replace(SEED, points=(Point(100, 2.0),), points_one=(Point(100, 5.0),))
    # 1 s that does not shrink, 4 s that do.
    assert [one_device_s(network, 100, threads, 4) for threads in (1, 2, 4, 8)] == [5.0, 3.0, 2.0, 2.0]
    assert one_device_s(replace(network, points_one=()), 100, 1, 4) == 2.0
    assert one_device_s(network, 100, 1, 1) == 2.0


def test_the_update_is_slowed_by_memory_and_the_rest_by_computing() -> None:
    network = replace(
        SEED,
        points=(Point(10, 2.0), Point(20, 3.0)),
        points_one=(Point(10, 2.0), Point(20, 3.0)),  # a second of update, a tenth a row
        gradients=Load(1, 1e6),
    )
    slowed = team(2, 0.0, 0.0, computing=1.5, moving=(Point(1e5, 1.0), Point(1e6, 3.0)))
    said = predict(network, replace(HERE, inside=(slowed,)), "mirrored:2", replace(PLAN, batch_size=20))
    assert said.step_s == pytest.approx(1.0 * 3.0 + 1.0 * 1.5)


def test_a_choice_copies_the_state_and_uneven_shares_are_one_more() -> None:
    def copied_s(batch_size: int, every: str | int) -> float:
        copying = replace(HERE, inside=(team(2, 0.0, 0.0, copy_s_per_byte=1e-9),))
        parts = predict(SEED, copying, "mirrored:2", replace(PLAN, batch_size=batch_size), every).split.parts
        return next(part.seconds for part in parts if part.cause is Cause.STRATEGY)

    once = SEED.state_bytes * 1e-9 / 10
    assert copied_s(24, "step") == 0.0
    assert copied_s(24, 10) == pytest.approx(once, rel=0.05)
    assert copied_s(25, 10) == pytest.approx(2 * once, rel=0.05)


def test_several_processes_send_one_message_and_need_time_to_join() -> None:
    network = replace(SEED, gradients=Load(100, 1e5, 1))
    inside, between = predict(network, HERE, "mirrored:2", PLAN), predict(network, HERE, "multi-worker:2", PLAN)
    assert between.start_s == inside.start_s + 0.9
    assert exchange_s(network, "multi-worker:2") == exchange_s(
        replace(network, gradients=Load(1, 1e5, 1)), "multi-worker:2"
    )


def test_a_team_that_was_not_measured_stands_in_a_ring_or_on_the_line() -> None:
    pair = Team(2, 1.2, (Point(1.0, 1.3),), Exchange((Point(1e3, 1.0), Point(1e6, 3.0)), array_s=0.5), start_s=2.0)
    four = team_of([pair], 4, "multi-worker")
    # 2 (n - 1) turns of latency; 2 (n - 1) / n of the bytes: three times, and one and a half times, those of a pair.
    assert four.exchange == Exchange((Point(1e3, 3.0), Point(1e6, 3.0 + 2.0 * 1.5)), array_s=1.5)
    assert (four.number, four.computing, four.start_s) == (4, 1.2, 2.0)
    small, large = team(2, 10 * US, 1e-10), team(4, 30 * US, 3e-10, computing=1.3)
    three = team_of([small, large], 3, "mirrored")
    assert three.computing == pytest.approx(1.2)
    assert three.exchange.seconds(1, 2.0**12) == pytest.approx(20 * US + 2e-10 * 2**12)
    assert team_of([small, large], 2, "mirrored") is small


def test_without_figures_of_such_teams_there_is_no_prediction() -> None:
    with pytest.raises(KeyError, match="multi-worker"):
        predict(SEED, replace(HERE, between=()), "multi-worker:2", PLAN)


def test_far_from_what_was_measured_is_marked() -> None:
    batches = {"single": (25, 1024, 1025), "mirrored:2": (25, 2048, 2050)}
    found = {
        s: [predict(SEED, HERE, s, replace(PLAN, batch_size=b)).is_extrapolated for b in bs]
        for s, bs in batches.items()
    }
    assert found == {"single": [False, False, True], "mirrored:2": [False, False, True]}


def test_the_limit_is_the_largest_part() -> None:
    assert predict(SEED, HERE, "multi-worker:2", PLAN).limit is Cause.EXCHANGE
    slow = replace(HERE, inside=(team(2, 0.0, 0.0, computing=9.0),))
    assert predict(SEED, slow, "mirrored:2", PLAN).limit is Cause.CORES


def test_from_the_crossing_on_several_devices_are_faster() -> None:
    apart = replace(HERE, inside=(team(2, 140 * US, 1e-10, computing=1.0, moving=(Point(1.0, 1.0),)),))
    found = crossing(SEED, apart, "mirrored:2", PLAN)
    assert found is not None

    def gain(batch_size: int) -> float:
        split = predict(SEED, apart, "mirrored:2", replace(PLAN, batch_size=batch_size)).split
        return split.single_s - split.step_s

    assert gain(found) > 0
    assert gain(found * 2) > 0
    assert gain(found * 9 // 10) < 0
    assert crossing(SEED, HERE, "mirrored:2", PLAN) is None  # a tenth that they cost one another is too much
