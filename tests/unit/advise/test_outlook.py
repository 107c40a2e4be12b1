"""What follows from an outlook for each strategy."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.advise.cost import predict
from dure.advise.outlook import Asked, at_batch, basis, batches, lines, numbers, ranges, reach, unlike
from dure.advise.record import Facts
from unit.advise.outlooks import GPU, LARGE, SEED, beside, calibration, outlook, separate, site


def test_every_strategy_has_a_line_for_every_way_to_meet() -> None:
    asked = outlook(strategies=("single", "mirrored:1", "mirrored:2", "multi-worker:2"), sync_every=("step", 10))
    found = lines(asked, basis(asked))
    assert [(line.strategy, line.sync_every) for line in found] == [
        ("single", "step"),
        ("mirrored:1", "step"),
        ("mirrored:2", "step"),
        ("mirrored:2", 10),
        ("multi-worker:2", "step"),
        ("multi-worker:2", 10),
    ]
    single = found[0].prediction
    assert single is not None
    for line in found:
        expected = predict(SEED, asked.here, line.strategy, asked.plan, line.sync_every)
        assert line.prediction == expected
        assert line.ratio == expected.seconds / single.seconds


def test_what_was_not_measured_has_no_prediction() -> None:
    asked = outlook(here=calibration(between=()))
    by_name = {line.strategy: line for line in lines(asked, basis(asked))}
    assert by_name["multi-worker:2"].prediction is None
    assert by_name["mirrored:2"].prediction is not None
    assert reach(asked, basis(asked), "multi-worker", "step") is None


@given(st.integers(1, 100_000), st.integers(1, 9))
def test_batches_reach_up_to_the_whole_of_the_data(rows: int, devices: int) -> None:
    found = batches(rows, devices)
    assert found[0] == min(rows, devices)
    assert 0 <= rows - found[-1] < devices
    assert all(low < high <= max(low + devices, low * 1.05) for low, high in itertools.pairwise(found))
    assert rows < devices or all(size % devices == 0 for size in found)


@given(st.integers(1, 5000))
def test_numbers_of_devices_are_few_and_reach_the_last(most: int) -> None:
    found = numbers(most)
    assert found == tuple(sorted(set(found)))
    assert (found[0], found[-1]) == (1, most)
    assert len(found) < 40


@pytest.mark.parametrize("every", ["step", 10, "epoch"])
@pytest.mark.parametrize("latency_s", [20e-6, 200e-6, 2e-3])
def test_the_ranges_are_those_of_the_predictions(every: str | int, latency_s: float) -> None:
    asked = outlook(here=separate(2, latency_s))
    on = basis(asked)
    found = ranges(asked, on, "mirrored:2", every)
    for size in batches(60_000, 2):
        split = at_batch(asked, on, "mirrored:2", every, size).split
        inside = any(low <= size and (high is None or size <= high) for low, high in found)
        assert inside == (split.step_s < 0.98 * split.single_s)


def test_a_longer_latency_moves_the_crossing_up() -> None:
    lows = []
    for latency_s in (20e-6, 200e-6, 2e-3):
        asked = outlook(here=separate(2, latency_s))
        ((low, high),) = ranges(asked, basis(asked), "mirrored:2", "step")
        assert high is None
        lows.append(low)
    assert lows == sorted(lows)
    assert lows[0] < lows[-1]


def test_a_range_that_ends_is_told_with_its_end() -> None:
    # One device takes up threads from 100 rows on: only below that two devices gain anything.
    points = tuple(replace_size(SEED.points, (1, 50e-6), (100, 1e-3), (200, 1.05e-3), (60_000, 0.3)))
    one = tuple(replace_size(SEED.points, (1, 50e-6), (100, 1e-3), (200, 2e-3), (60_000, 0.6)))
    asked = outlook(replace(SEED, points=points, points_one=one), calibration(inside=separate(2).inside))
    found = ranges(asked, basis(asked), "mirrored:2", "step")
    assert len(found) == 1
    low, high = found[0]
    assert high is not None
    assert low < 100 < high < 1000


def replace_size(points, *pairs):  # type: ignore[no-untyped-def]
    return [points[0]._replace(size=size, seconds=seconds) for size, seconds in pairs]


def test_cores_of_their_own_only_help() -> None:
    asked = outlook()
    on = basis(asked)
    own = ranges(asked, on, "mirrored:2", "step", own_cores=True)
    shared = ranges(asked, on, "mirrored:2", "step")
    assert own
    assert not shared or own[0][0] <= shared[0][0]


def test_the_reach_says_from_how_many_devices_on_it_pays() -> None:
    asked = outlook(LARGE, separate(8), batch_size=512, most=8)
    over = reach(asked, basis(asked), "mirrored", "step")
    assert over is not None
    assert [number for number, _ in over.seconds] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert over.pays_from == 2
    assert dict(over.seconds)[over.best] == min(seconds for _, seconds in over.seconds)
    slow = outlook(LARGE, separate(8, latency_s=1.0), batch_size=512, most=8)
    over = reach(slow, basis(slow), "mirrored", "step")
    assert over is not None
    assert (over.pays_from, over.best) == (None, 1)


def test_what_does_not_fit_into_memory_is_marked() -> None:
    small = site(devices={"gpu": {**GPU, "memory_bytes": "64 MB"}})
    asked = outlook(LARGE, site=small, strategies=("single", "mirrored:2"))
    assert not any(line.fits for line in lines(asked, basis(asked)))
    asked = outlook(LARGE, site=site(), strategies=("single", "mirrored:2"))
    assert all(line.fits for line in lines(asked, basis(asked)))


def test_unlike_devices_are_looked_at_on_a_site_alone() -> None:
    asked = outlook(LARGE, site=beside(), strategies=("single",), batch_size=512)
    met = unlike(asked, basis(asked))
    assert met is not None
    assert met.slowest.name == "cpu"
    assert unlike(outlook(), basis(outlook())) is None


def test_it_is_plain_values() -> None:
    asked = outlook(site=site())
    plain = json.loads(json.dumps(asked.to_dict(), allow_nan=False))
    assert plain["asked"]["strategies"] == list(asked.asked.strategies)
    assert plain["here"]["cores"] == 2
    assert plain["network"]["gradients"] == [4, 407_080.0, 1]
    assert plain["site"]["devices"]["gpu"]["flops_per_s"] == 60e12
    assert (
        Asked(**{**plain["asked"], "strategies": asked.asked.strategies, "sync_every": asked.asked.sync_every})
        == asked.asked
    )
    assert Facts(**plain["facts"]) == asked.facts
    assert outlook().to_dict()["site"] is None
