"""A step taken apart by subtraction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.advise.cause import Cause, controls, needed, replicas, split
from dure.advise.record import Control
from unit.advise.records import MS, loses_to, probes, record


@given(chain=st.lists(st.floats(1e-6, 1.0), min_size=5, max_size=5), devices=st.integers(2, 8))
def test_the_parts_add_up_to_the_step(chain: list[float], devices: int) -> None:
    strategy = f"mirrored:{devices}"
    parts = split(record({"single": (1.0,), strategy: (1.0,)}, probes(strategy, 25, chain)), strategy)
    assert parts is not None
    assert parts.ideal_s + sum(part.seconds for part in parts.parts) == pytest.approx(chain[-1])
    assert parts.step_s == chain[-1]
    assert parts.ideal_s == chain[0] / devices


def test_each_part_is_the_difference_of_two_controls() -> None:
    chain = [10 * MS, 6 * MS, 7 * MS, 9 * MS, 13 * MS]
    parts = split(record({"single": (1.0,), "mirrored:2": (1.0,)}, probes("mirrored:2", 25, chain)), "mirrored:2")
    assert parts is not None
    found = {part.cause: round(part.seconds / MS, 9) for part in parts.parts}
    assert found == {Cause.BATCH: 1.0, Cause.STRATEGY: 1.0, Cause.CORES: 2.0, Cause.EXCHANGE: 4.0}
    largest = parts.largest()
    assert largest is not None
    assert largest.cause is Cause.EXCHANGE


def test_a_mirror_of_one_device_shows_what_the_strategy_itself_costs() -> None:
    measured = record({"single": (1.0,), "mirrored:1": (1.0,)}, probes("mirrored:1", 25, [1 * MS, 1.25 * MS]))
    parts = split(measured, "mirrored:1")
    assert parts is not None
    assert [(part.cause, part.seconds) for part in parts.parts] == [(Cause.STRATEGY, pytest.approx(0.25 * MS))]


def test_a_missing_control_leaves_the_step_whole() -> None:
    measured = loses_to("cores")
    assert split(measured, "mirrored:2") is not None
    fewer = record({"single": (1.0,), "mirrored:2": (1.0,)}, measured.probes[:-1])
    assert split(fewer, "mirrored:2") is None
    assert split(measured, "single") is None


def test_the_controls_of_several_strategies_run_once_each() -> None:
    wanted = needed(("single", "mirrored:1", "mirrored:2"), 25)
    assert wanted[0] == Control("single", 1, 25)
    assert len(wanted) == len(set(wanted)) == 6
    assert needed(("single",), 25) == ()
    # One process by itself is a mirror of one device: only what several do is measured anew.
    assert needed(("single", "mirrored:1", "mirrored:2", "multi-worker:2"), 25)[6:] == (
        Control("multi-worker", 2, 25, exchange=False),
        Control("multi-worker", 2, 25),
    )


def test_several_processes_are_taken_apart_as_several_devices_are() -> None:
    chain = [10 * MS, 6 * MS, 7 * MS, 9 * MS, 13 * MS]
    measured = record({"single": (1.0,), "multi-worker:2": (1.0,)}, probes("multi-worker:2", 25, chain))
    parts = split(measured, "multi-worker:2")
    assert parts is not None
    found = {part.cause: round(part.seconds / MS, 9) for part in parts.parts}
    assert found == {Cause.BATCH: 1.0, Cause.STRATEGY: 1.0, Cause.CORES: 2.0, Cause.EXCHANGE: 4.0}


@given(devices=st.integers(2, 64), batch_size=st.integers(1, 256))
def test_a_replica_has_its_share_rounded_up(devices: int, batch_size: int) -> None:
    strategy = f"mirrored:{devices}"
    share = controls(strategy, batch_size)[1].batch_size
    assert share * devices >= batch_size > (share - 1) * devices
    assert replicas(strategy) == devices
