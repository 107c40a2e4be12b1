"""Every strategy of the table keeps every law."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from laws import strategies
from laws.networks import normalised
from laws.strategies import EXCHANGING, KERAS, LAYOUTS, SELDOM, STRATEGIES

EACH = [(name, batch) for name, row in STRATEGIES.items() for batch in row.batches]
ROWS = list(STRATEGIES)


def asked(ask: str) -> list[str]:
    """The rows that answer a question: all in this process, and of those in processes the ones that are asked."""
    return [name for name, row in STRATEGIES.items() if row.layout is None or ask in row.asks]


NORMALISED = [(name, batch) for name, batch in EACH if STRATEGIES[name].model is normalised]


@pytest.mark.parametrize("name", ROWS)
def test_replicas_start_equal(name: str) -> None:
    strategies.check_initial_weights(STRATEGIES[name])


@pytest.mark.parametrize(("name", "batch"), EACH)
def test_numbers_are_those_of_one_device(name: str, batch: int) -> None:
    strategies.check_gradients(STRATEGIES[name], batch)
    strategies.check_steps(STRATEGIES[name], batch)


@pytest.mark.parametrize(("name", "batch"), EACH)
def test_replicas_stay_equal_on_all_devices(name: str, batch: int) -> None:
    strategies.check_replicas_stay_equal(STRATEGIES[name], batch)


@pytest.mark.parametrize(("name", "batch"), EACH)
def test_each_example_counts_once(name: str, batch: int) -> None:
    strategies.check_counts(STRATEGIES[name], batch)


@pytest.mark.parametrize(("name", "batch"), EACH)
def test_metrics_and_outputs_are_those_of_one_device(name: str, batch: int) -> None:
    strategies.check_metrics(STRATEGIES[name], batch)


@pytest.mark.parametrize(("name", "batch"), NORMALISED)
def test_masks_are_those_of_one_device(name: str, batch: int) -> None:
    strategies.check_masks(STRATEGIES[name], batch)


@pytest.mark.parametrize("name", [name for name in ROWS if {36, 1} <= set(STRATEGIES[name].batches)])
def test_a_short_last_batch_counts_as_what_it_is(name: str) -> None:
    strategies.check_short_last_batch(STRATEGIES[name])


@pytest.mark.parametrize("name", asked("twice"))
def test_the_same_run_gives_the_same_bits(name: str) -> None:
    strategies.check_same_run_twice(STRATEGIES[name])


@pytest.mark.parametrize("name", asked("program_text"))
def test_a_replica_computes_its_share_alone(name: str) -> None:
    strategies.check_rows_computed(STRATEGIES[name])


@pytest.mark.parametrize("name", KERAS)
def test_a_keras_network_trains_as_on_one_device(name: str) -> None:
    strategies.check_keras(KERAS[name])


@pytest.mark.parametrize("name", SELDOM)
def test_seldom_averages_count_each_example_once(name: str) -> None:
    strategies.check_whatever_the_average(SELDOM[name])


@pytest.mark.parametrize("name", EXCHANGING)
def test_the_compiled_program_exchanges_where_there_are_several(name: str) -> None:
    strategies.check_collectives(STRATEGIES[name])


def test_the_layout_in_processes_changes_nothing() -> None:
    strategies.check_layouts([STRATEGIES[name] for name in LAYOUTS])


def test_in_float64_the_numbers_are_those_of_one_device_to_a_millionth_of_a_millionth() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_ENABLE_X64": "1"}
    script = Path(__file__).with_name("float64.py")
    done = subprocess.run(
        [sys.executable, script], check=False, env=environment, capture_output=True, text=True, timeout=55
    )
    assert done.returncode == 0, done.stderr
    # Four weights, their gradients and two moments of Adam's each, two moving averages, the masks.
    assert int(done.stdout) == 4 * 4 + 3
