"""Fresh processes: what they send, how they die, and that none outlives its deadline or its parent."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dure.advise import child
from dure.advise.record import Control

NETWORKS = """
import os
import signal
import threading
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax

import dure


def make():
    return dure.Model(
        init=lambda key: {"w": jnp.zeros((4, 3))},
        apply=lambda params, x, *, key, training: x @ params["w"],
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.sgd(0.5),
    )


def read():
    x = np.random.default_rng(0).normal(size=(60, 4)).astype("float32")
    y = np.argmax(x[:, :3], axis=1).astype("int32")
    return (x[:50], y[:50]), (x[50:], y[50:])


def chatter():
    print('{"event": "result", "step_s": 1.0}')
    return make()


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    print("the last words")
    os._exit(3)


def kill_second():
    return kill() if os.environ["DURE_TASK"] == "worker:1" else make()


def hang():
    print("waiting")
    Path(__file__).with_name(f"hangs.{os.getpid()}").touch()
    threading.Event().wait()


def wrong():
    return {}["missing"]


def other():
    return "no arrays"
"""


@pytest.fixture
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of a user's, on the import path that fresh processes inherit."""
    (tmp_path / "trial_networks.py").write_text(NETWORKS)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def request(model: str, data: str = "read", **changes: object) -> dict[str, Any]:
    """A request to train a tiny network for two epochs."""
    named = {"kind": "function", "module": "trial_networks"}
    return {
        "model": {**named, "name": model},
        "data": {**named, "name": data},
        "folder": "",
        "seed": 0,
        "batch_size": 20,
        "epochs": 2,
        "strategy": "single",
        "sync_every": "step",
        **changes,
    }


def run(wanted: dict[str, Any], *, devices: int = 1, timeout_s: float = 50.0) -> tuple[child.Ended, list[Any]]:
    events: list[Any] = []
    environment = child.environment_for(devices)
    return child.run(wanted, environment=environment, timeout_s=timeout_s, on_event=events.append), events


def test_a_run_sends_what_it_is_and_what_came_out(networks: Path) -> None:
    # What the caller's code prints looks like a result here, and must not be taken for one.
    ended, events = run(request("chatter", strategy="mirrored:2"), devices=2)
    assert ended.result is not None, ended
    (facts,) = [event for event in events if event["event"] == "facts"]
    assert facts["facts"] == {"rows": 50, "test_rows": 10, "shape": "4 float32", "note": ""}
    assert {"python", "dure", "jax"} <= facts["versions"].keys()
    trial = ended.result["trial"]
    assert trial["steps"] == 6
    assert (trial["devices"], trial["kind"], trial["virtual"]) == (2, "cpu", True)
    assert 0 < trial["first_step_s"] <= trial["seconds"]
    assert trial["step_s"] > 0
    assert trial["peak_bytes"] > 50 * 2**20
    assert trial["curve"][-1][0] == 6
    assert trial["metrics"]["loss"] > 0


def test_measuring_runs_send_the_seconds_of_a_step_in_the_order_asked(networks: Path) -> None:
    controls = [Control("mirrored", 2, 20), Control("mirrored", 2, 20, exchange=False), Control("single", 1, 20)]
    asked = [dataclasses.asdict(control) for control in controls]
    ended, _ = run(request("make", sync_every="epoch", measure_s=0.05, controls=asked), devices=2)
    assert ended.result is not None, ended
    together, apart, single = ended.result["steps_s"]
    assert 0 < apart < together < 1
    assert 0 < single < 1


@pytest.mark.parametrize(
    ("model", "reason", "last"),
    [
        ("kill", "its process was ended by SIGKILL (often: out of memory)", None),
        ("leave", "its process ended with code 3 and sent no result", "the last words"),
    ],
)
def test_a_process_that_dies_is_named_with_its_last_lines(
    networks: Path, model: str, reason: str, last: str | None
) -> None:
    ended, _ = run(request(model))
    assert ended.result is None
    assert ended.reason == reason
    assert last is None or ended.tail[-1] == last


def test_a_process_that_hangs_is_ended_at_its_deadline(networks: Path) -> None:
    ended, _ = run(request("hang"), timeout_s=0.5)
    assert ended.reason == "it was not done after 0.5 s and was ended"
    assert ended.result is None


def test_what_a_model_raises_is_told_with_its_place(networks: Path) -> None:
    ended, _ = run(request("wrong"))
    assert ended.error is not None
    assert (ended.error["stage"], ended.error["error"]) == ("model", "SpecError")
    line = NETWORKS.splitlines().index('    return {}["missing"]') + 1
    assert "`trial_networks:wrong` was called without arguments and raised KeyError: 'missing'" in ended.reason
    assert f"trial_networks.py:{line}" in ended.reason


def test_a_process_ends_with_its_parent(networks: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "dure.advise.trial"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=child.environment_for(1),
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(request("hang")).encode() + b"\n")
        process.stdin.flush()
        while b"waiting" not in (line := process.stderr.readline()):
            assert line, "it ended before the parent did"
        process.stdin.close()
        assert process.wait(timeout=20) == 1
        process.stdin = None
