"""What a process was started as."""

from __future__ import annotations

import pytest

from dure.errors import SpecError
from dure.strategy.env import started_among, strategy_from_env
from dure.strategy.mirrored import SingleDevice

TWO = '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}'
ONE = '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, None),
        ({"DURE_CLUSTER": "cluster.toml"}, "DURE_CLUSTER"),
        ({"DURE_CLUSTER": ""}, None),
        ({"TF_CONFIG": TWO}, "TF_CONFIG"),
        ({"TF_CONFIG": ONE}, None),
        ({"TF_CONFIG": "{"}, None),
        ({"TF_CONFIG": "[]"}, None),
        ({"TF_CONFIG": '{"cluster": 3}'}, None),
        ({"SLURM_STEP_NUM_TASKS": "4"}, "SLURM_STEP_NUM_TASKS"),
        ({"SLURM_STEP_NUM_TASKS": "1"}, None),
        ({"SLURM_STEP_NUM_TASKS": "many"}, None),
    ],
)
def test_several_processes_are_told_by_a_variable(environment: dict[str, str], told: str | None) -> None:
    assert started_among(environment) == told


def test_a_process_by_itself_trains_on_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DURE_CLUSTER", "TF_CONFIG", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(strategy_from_env(), SingleDevice)


def test_one_of_several_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", TWO)
    with pytest.raises(
        SpecError, match=r"TF_CONFIG says that this is one of several processes, .*Start the script once"
    ):
        strategy_from_env()
