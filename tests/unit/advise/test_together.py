"""A trial in several real processes: what comes out, who is named when one fails, and that none is left."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dure.advise import child, together
from dure.advise.record import Control
from dure.devices.nvidia import Gpu
from dure.errors import SpecError
from unit.advise.processes import running, until
from unit.advise.test_trial import NETWORKS, request


@pytest.fixture
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of a user's, on the import path that fresh processes inherit."""
    (tmp_path / "trial_networks.py").write_text(NETWORKS)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def run(model: str, *, workers: int = 2, timeout_s: float = 50.0, **changes: object) -> tuple[child.Ended, list[Any]]:
    events: list[Any] = []
    wanted = request(model, strategy=f"multi-worker:{workers}", **changes)
    return together.run(wanted, workers=workers, timeout_s=timeout_s, on_event=events.append), events


def test_processes_share_the_cores_and_the_gpus_that_they_may_use() -> None:
    told = together.environments_for(2, {"CUDA_VISIBLE_DEVICES": "1,3"}, cores=6, gpus=())
    assert [environ["OMP_NUM_THREADS"] for environ in told] == ["3", "3"]
    gpus = [Gpu(index=n, uuid=f"GPU-{n}", model="an accelerator", memory_bytes=2**30) for n in (1, 3)]
    told = together.environments_for(2, {"CUDA_VISIBLE_DEVICES": "1,3"}, cores=6, gpus=gpus)
    assert [environ["CUDA_VISIBLE_DEVICES"] for environ in told] == ["GPU-1", "GPU-3"]
    with pytest.raises(SpecError, match="asked for 3 workers on this machine, which has 2 usable GPUs"):
        together.environments_for(3, {}, cores=6, gpus=gpus)


def test_the_first_process_sends_what_came_out_for_all(networks: Path) -> None:
    ended, events = run("chatter")
    assert ended.result is not None, ended
    # What the caller's code prints looks like a result here, and must not be taken for one.
    trial = ended.result["trial"]
    assert (trial["devices"], trial["kind"], trial["virtual"], trial["steps"]) == (2, "cpu", True, 6)
    assert trial["metrics"]["loss"] > 0
    assert trial["ready_s"] > 0
    assert trial["peak_bytes"] > 300 * 2**20
    (facts,) = [event for event in events if event["event"] == "facts"]
    assert facts["facts"]["rows"] == 50


def test_controls_are_measured_with_and_without_the_exchange(networks: Path) -> None:
    controls = [Control("multi-worker", 2, 20, exchange=False), Control("multi-worker", 2, 20)]
    asked = [dataclasses.asdict(control) for control in controls]
    ended, _ = run("make", sync_every="epoch", measure_s=0.05, controls=asked)
    assert ended.result is not None, ended
    apart, met = ended.result["steps_s"]
    assert 0 < apart < met < 1


def test_one_process_is_a_group_too(networks: Path) -> None:
    asked = [dataclasses.asdict(Control("multi-worker", 1, 20))]
    ended, _ = run("make", workers=1, measure_s=0.05, controls=asked)
    assert ended.result is not None, ended
    assert 0 < ended.result["steps_s"][0] < 1


def test_the_process_that_dies_is_named_not_the_one_that_waits(networks: Path) -> None:
    ended, _ = run("kill_second")
    assert ended.result is None
    assert ended.reason.startswith("LostError: worker:1 (host ")
    assert "was killed by SIGKILL at step 0 in user code" in ended.reason


def test_the_last_lines_of_the_one_that_ends_are_kept(networks: Path) -> None:
    ended, _ = run("leave")
    assert "ended with exit code 3" in ended.reason
    assert ended.tail[-1] == "  the last words"


def test_a_model_that_is_refused_is_told_with_its_stage(networks: Path) -> None:
    ended, _ = run("wrong")
    assert ended.error is not None
    assert (ended.error["stage"], ended.error["error"]) == ("model", "SpecError")
    assert "`trial_networks:wrong` was called without arguments and raised KeyError" in ended.error["message"]


def test_processes_that_hang_are_ended_at_their_deadline(networks: Path) -> None:
    ended, _ = run("hang", timeout_s=1.5)
    assert ended.reason == "it was not done after 1.5 s and was ended"
    assert ended.result is None
    assert running(networks) == []


def test_processes_end_with_their_parent(networks: Path) -> None:
    program = "import json, sys; from dure.advise import together; together.run(json.loads(sys.argv[1]), workers=2, "
    program += "timeout_s=50.0, on_event=print)"
    wanted = json.dumps(request("hang", strategy="multi-worker:2"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(networks)}
    with subprocess.Popen([sys.executable, "-c", program, wanted], env=environment, cwd=networks) as parent:
        until(lambda: len(running(networks)) == 2)
        parent.send_signal(signal.SIGKILL)
    until(lambda: not running(networks))
    until(lambda: not [path for path in networks.iterdir() if path.name.startswith("dure-")])
