"""Faults of real training: whoever is killed, stopped or stuck is named, in time, and nothing is left."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from process.launched import Ended, Run, without_numbers
from process.training import FIT, TRAIN

STEP_TIMEOUT_S = 4


class Fault(NamedTuple):
    """What happens to which worker, and the last line that tells of it."""

    what: str
    moment: str
    culprit: str
    line: str
    bound_s: float = STEP_TIMEOUT_S + 5


def killed(moment: str, culprit: int, where: str) -> Fault:
    line = f"LostError: worker:{culprit} (host h, pid n) was killed by SIGKILL at {where}"
    return Fault("killed", moment, f"worker:{culprit}", line, 10)


def stopped(moment: str, culprit: int, where: str) -> Fault:
    line = f"DeadlineError: worker:{culprit} (host h, pid n) has been stopped by a signal for N s at {where}"
    return Fault("stopped", moment, f"worker:{culprit}", line)


def blocked(moment: str, where: str) -> Fault:
    line = f"DeadlineError: worker:1 (host h, pid n) has been in {where}; the other waits"
    return Fault("blocked", moment, "worker:1", line)


# Worker 0 falls inside the gradients' exchange, worker 1 while it waits for the word that worker 0 gives before it.
FAULTS = [
    killed("start", 1, "step 0 in user code"),
    killed("first step", 0, "step 0 in compile"),
    killed("step 8", 0, "step 8 in collective"),
    killed("step 11", 1, "step 11 in collective"),
    stopped("start", 1, "step 0 in user code"),
    stopped("first step", 1, "step 0 in compile"),
    stopped("step 8", 0, "step 8 in collective"),
    stopped("step 11", 1, "step 11 in collective"),
    blocked("start", "user code for N s at step 0 (script.py:N in wait_for)"),
    blocked("batch 0 of pass 1", "data for N s at step 0 (script.py:N in wait_for)"),
    blocked("batch 3 of pass 2", "data for N s at step 6 (script.py:N in wait_for)"),
    blocked("batch 5 of pass 2", "data for N s at step 6 (script.py:N in wait_for)"),
]


def train(folder: Path, what: str, moment: str, culprit: str, *options: str, saver: str = "") -> Run:
    """Starts two workers that train."""
    script = TRAIN + saver + FIT
    arguments = (what, moment, culprit)
    return Run(folder, script, "--workers", "2", "--step-timeout", str(STEP_TIMEOUT_S), *options, arguments=arguments)


def seconds_since_the_fault(folder: Path) -> float:
    return time.monotonic() - float((folder / "fault").read_text())


def plain(line: str) -> str:
    """A line without what differs from run to run."""
    line = re.sub(r"\.py:\d+", ".py:N", without_numbers(line))
    return re.sub(r"for \d+ s", "for N s", line)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.what}, {fault.moment}")
def test_the_culprit_is_named_in_time(tmp_path: Path, fault: Fault) -> None:
    """F13 for a group: who is stopped and stays so; and who is killed or stuck."""
    ended = train(tmp_path, fault.what, fault.moment, fault.culprit).end()
    assert seconds_since_the_fault(tmp_path) < fault.bound_s
    assert plain(ended.last) == fault.line
    assert ended.code == 1
    assert "Traceback" not in ended.err
    assert "losses" not in ended.out


def test_who_waits_for_the_word_of_a_chief_that_is_stuck_is_not_blamed(tmp_path: Path) -> None:
    """In its first pass the chief says how many batches make a dispatch: the others' loaders wait for that."""
    ended = train(tmp_path, "blocked", "batch 3 of pass 1", "worker:0").end()
    assert plain(ended.last).startswith("DeadlineError: worker:0 (host h, pid n) has been in data for N s at step 0 (")


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_callback_that_is_stuck_is_user_code(tmp_path: Path, culprit: int) -> None:
    ended = train(tmp_path, "blocked", "step 8", f"worker:{culprit}").end()
    line = f"DeadlineError: worker:{culprit} (host h, pid n) has been in user code for N s at step 8 ("
    assert plain(ended.last).startswith(line)
    assert seconds_since_the_fault(tmp_path) < STEP_TIMEOUT_S + 5


def test_an_exception_of_a_worker_comes_first_and_once(tmp_path: Path) -> None:
    ended = train(tmp_path, "raises", "batch 4 of pass 2", "worker:1").end()
    lines = ended.err.splitlines()
    assert lines[:2] == ["worker:1:", "Traceback (most recent call last):"]
    assert lines.count("ValueError: mine") == 1
    form = r"worker:1 \(host h, pid n\) raised DataError: .*batch 4 .*: ValueError: mine\b.* at step 6 \(.*\) in data"
    assert re.fullmatch(form, plain(ended.last))
    assert ended.code == 1


def losses(ended: Ended) -> np.ndarray:
    """The losses of each epoch that each worker printed."""
    assert ended.code == 0, ended.err
    said = [line.partition("losses ")[2].split() for line in ended.out.splitlines() if "losses" in line]
    assert len(said) == 2
    return np.array(said, np.float64)


SAVER = "callbacks.append(dure.callbacks.Checkpoint(folder / 'checkpoints', every=4))\n"


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    """The losses of two groups that nothing disturbs, started at the same time."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    started = [train(folder, "nothing", "", "") for folder in folders]
    return [losses(run.end()) for run in started]


def test_two_groups_at_the_same_time_train_as_one_does(groups: list[np.ndarray]) -> None:
    one, two = groups
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one[0], one[1])


def test_workers_that_train_end_when_they_are_asked_to(tmp_path: Path) -> None:
    """JAX would catch SIGTERM and go on; then they are killed after 10 s."""
    started = train(tmp_path, "blocked", "step 8", "worker:1")
    started.text("fault")
    asked_s = time.monotonic()
    started.process.terminate()
    assert started.end().code == 143
    assert time.monotonic() - asked_s < 5


@pytest.mark.parametrize(
    ("what", "moment", "culprit"),
    [
        ("killed", "first step", "worker:1"),
        ("stopped", "step 9", "worker:0"),
        ("blocked", "batch 5 of pass 2", "worker:1"),
    ],
)
def test_with_restarts_the_losses_are_those_of_an_undisturbed_run(
    tmp_path: Path, groups: list[np.ndarray], what: str, moment: str, culprit: str
) -> None:
    ended = train(tmp_path, what, moment, culprit, "--max-restarts", "1", saver=SAVER).end()
    assert f"Error: {culprit} (host" in ended.err
    assert "dure run: starting the group again (1 of 1)" in ended.err
    np.testing.assert_allclose(losses(ended), groups[0], rtol=1e-5)


def test_a_replica_that_is_no_longer_equal_is_found_at_the_end_of_the_epoch(tmp_path: Path) -> None:
    """C4: one bit of worker 1's weights is flipped after the first epoch."""
    ended = train(tmp_path, "diverges", "", "worker:1").end()
    assert ended.code == 1
    assert "raised StepError: all 2 replicas are to be equal after step 12, and `params['w']` of" in ended.last
    assert "replica 1 on worker:1 has other bits than the others have" in ended.last
