from __future__ import annotations

import contextlib

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dure.cluster import slurm
from dure.errors import SpecError

STEP = {
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_PROCID": "1",
    "SLURM_STEP_NODELIST": "a,b",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_JOB_ID": "123456",
}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node", ["node"]),
        ("a,b", ["a", "b"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[008-010],login-2", ["n008", "n009", "n010", "login-2"]),
        ("r[1-2]n[1-2]x", ["r1n1x", "r1n2x", "r2n1x", "r2n2x"]),
    ],
)
def test_a_list_of_machines(text: str, names: list[str]) -> None:
    assert slurm.hosts(text) == names


@pytest.mark.parametrize("text", ["", ",", "a,", "a,,b", "n[", "n[]", "n[3-1]", "n[a-b]", "n[1-99999]", "n]", "n[[1]]"])
def test_no_list_of_machines(text: str) -> None:
    with pytest.raises(SpecError, match="is no list of at most 10000 machines"):
        slurm.hosts(text)


@given(st.text("n[]0123456789-,", max_size=40))
def test_any_text_is_a_short_list_or_a_typed_error(text: str) -> None:
    with contextlib.suppress(SpecError):
        assert 1 <= len(slurm.hosts(text)) <= slurm.MAX_HOSTS


@pytest.mark.parametrize("text", ["", "0", "x", "2(3)", "2(x0)", "1(x99999)", "2,"])
def test_no_numbers_of_tasks(text: str) -> None:
    with pytest.raises(SpecError, match="SLURM_STEP_TASKS_PER_NODE"):
        slurm.per_host(text)


def test_the_port_is_that_of_jax() -> None:
    step = slurm.read(STEP)
    assert step is not None
    port = 123456 % 2**12 + (65535 - 2**12 + 1)
    assert step.addresses == [f"a:{port}", f"a:{port + 1}", f"b:{port}"]
    assert step.rank == 1


def test_ports_stay_in_their_range() -> None:
    step = slurm.read({**STEP, "SLURM_JOB_ID": "4095"})
    assert step is not None
    assert step.addresses == ["a:65535", "a:61440", "b:65535"]


def test_tasks_that_are_dealt_out_in_turn() -> None:
    step = slurm.read({**STEP, "SLURM_NODEID": "1"})
    assert step is not None
    assert [address.split(":")[0] for address in step.addresses] == ["a", "b", "a"]


def test_an_order_that_is_neither_is_refused() -> None:
    with pytest.raises(SpecError, match="task 0 is on machine 1 of the step"):
        slurm.read({**STEP, "SLURM_PROCID": "0", "SLURM_NODEID": "1"})


@pytest.mark.parametrize("number", ["", "1"])
def test_one_task_is_no_group(number: str) -> None:
    assert slurm.read({**STEP, "SLURM_STEP_NUM_TASKS": number}) is None


@pytest.mark.parametrize("name", sorted(STEP.keys() - {"SLURM_STEP_NUM_TASKS"}))
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(SpecError, match=f"variable {name} is not set"):
        slurm.read({**STEP, name: ""})


def test_what_is_no_number_is_named() -> None:
    with pytest.raises(SpecError, match="SLURM_PROCID='-1', which is no number"):
        slurm.read({**STEP, "SLURM_PROCID": "-1"})


def test_what_does_not_agree_is_refused() -> None:
    with pytest.raises(SpecError, match="3 tasks, SLURM_STEP_NODELIST has 2 machines, .* has 4 tasks on 2"):
        slurm.read({**STEP, "SLURM_STEP_TASKS_PER_NODE": "2(x2)"})
