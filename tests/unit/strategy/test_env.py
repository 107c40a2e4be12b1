"""What a process was started as."""

from __future__ import annotations

import pytest

from dure.errors import SpecError
from dure.strategy.env import strategy_from_env
from dure.strategy.mirrored import SingleDevice

ONE = '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'
PS = '{"cluster": {"worker": ["a:1", "b:2"], "ps": ["c:3"]}, "task": {"type": "worker", "index": 0}}'
BEYOND = '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 2}}'


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DURE_CLUSTER", "DURE_TASK", "TF_CONFIG", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)


def test_a_process_by_itself_trains_on_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(strategy_from_env(), SingleDevice)
    monkeypatch.setenv("TF_CONFIG", ONE)
    assert isinstance(strategy_from_env(), SingleDevice)


def test_a_cluster_with_other_jobs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", PS)
    with pytest.raises(SpecError, match=r"TF_CONFIG says that this is worker:0 of a cluster with the jobs .*ps"):
        strategy_from_env()


def test_an_index_that_the_cluster_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", BEYOND)
    with pytest.raises(SpecError, match="2"):
        strategy_from_env()


def test_devices_that_are_open_already_cannot_be_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    assert strategy_from_env().open  # JAX has opened its devices in this process: the tests' own setting sees to it
    monkeypatch.setenv("DURE_CLUSTER", '{"worker": ["127.0.0.1:1", "127.0.0.1:2"]}')
    monkeypatch.setenv("DURE_TASK", "worker:1")
    import jax

    jax.devices()
    with pytest.raises(SpecError, match="JAX has opened them in this process already. Make the strategy first"):
        strategy_from_env()
