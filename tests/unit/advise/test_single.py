"""One device measured in fresh processes, as the cost model reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.advise.calibration import Point
from dure.advise.cost import Load, Plan, predict
from dure.advise.single import batch_sizes, measure, network_of
from dure.errors import SpecError, StepError
from unit.advise.outlooks import calibration
from unit.advise.test_trial import NETWORKS, request

FULL: dict[str, Any] = {
    "points": [[8, 1.0], [32, 2.0]],
    "gradients": [3, 320.0, 1],
    "state": [9, 960.0, 2],
    "state_bytes": 960,
    "flops": [[8, 1e3], [32, 4e3]],
    "traffic": [[8, 2e3], [32, 3e3]],
    "first_step_s": 0.5,
}


@pytest.fixture
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of a user's, on the import path that fresh processes inherit."""
    (tmp_path / "trial_networks.py").write_text(NETWORKS)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_model_is_measured_with_all_cores_and_with_one_thread(networks: Path) -> None:
    said: list[str] = []
    heard: list[dict[str, Any]] = []
    network = measure(request("make"), (5, 20), said.append, measure_s=0.05, hear=heard.append)
    assert [point.size for point in network.points] == [point.size for point in network.points_one] == [5, 20]
    assert all(0 < point.seconds < 1 for point in (*network.points, *network.points_one))
    assert network.gradients == Load(1, 48.0, 1)
    assert [point.size for point in network.flops] == [5, 20]
    assert network.first_step_s > 0
    assert said == ["measuring one device at 5, 20 rows", "measuring one device at 5, 20 rows, with one thread"]
    assert {event["facts"]["rows"] for event in heard} == {50}
    # And the cost model takes it.
    assert predict(network, calibration(), "mirrored:2", Plan(20, 50, 1)).step_s > 0


def test_what_a_process_refuses_is_raised_here(networks: Path) -> None:
    with pytest.raises(SpecError, match="`trial_networks:wrong` was called without arguments and raised KeyError"):
        measure(request("wrong"), (5, 20), lambda _: None, shares=False)


def test_a_process_that_dies_is_named_with_its_last_lines(networks: Path) -> None:
    words = (
        r"one device's training step was to be measured, and its process ended with code 3 and sent no result; train "
        r"with `SingleDevice` first\. Its last lines: the last words"
    )
    with pytest.raises(StepError, match=words):
        measure(request("leave"), (5, 20), lambda _: None, shares=False)


def test_what_was_sent_becomes_a_network() -> None:
    network = network_of(FULL, {**FULL, "points": [[8, 1.5], [32, 3.5]]})
    assert network.points == (Point(8, 1.0), Point(32, 2.0))
    assert network.points_one == (Point(8, 1.5), Point(32, 3.5))
    assert (network.gradients, network.state, network.state_bytes) == (Load(3, 320.0, 1), Load(9, 960.0, 2), 960.0)
    assert network.traffic == (Point(8, 2e3), Point(32, 3e3))
    assert network_of(FULL, None).points_one == ()


@given(st.integers(1, 10_000), st.lists(st.integers(1, 64), max_size=6))
def test_two_or_three_sizes_from_the_smallest_share_to_the_whole(batch_size: int, replicas: list[int]) -> None:
    sizes = batch_sizes(batch_size, replicas)
    assert 2 <= len(sizes) <= 3
    assert list(sizes) == sorted(set(sizes))
    assert sizes[0] <= -(-batch_size // max([1, *replicas])) or batch_size == 1
    assert batch_size in sizes
