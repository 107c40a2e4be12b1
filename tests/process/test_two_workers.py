"""Two real processes, joined by JAX's runtime, give the single device's numbers."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import dure
from dure.devices import configuration

PROGRAM = Path(__file__).with_name("two_workers.py")


def processes(arguments, workers=2):
    """How each process ended: code, output, errors; they end with the test whatever happens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    cluster = json.dumps({"worker": [f"127.0.0.1:{port}", *(f"127.0.0.1:{n + 1}" for n in range(1, workers))]})
    # Compiled in a hurry: what is under test is what they compute.
    inherited = {**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_cpu_multi_thread_eigen=false"}
    base = configuration.child_environment(configuration.Settings(cpu_devices=1, intra_op_threads=1), inherited)
    started = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments],
            env={**base, "DURE_CLUSTER": cluster, "DURE_TASK": f"worker:{rank}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(workers)
    ]
    try:
        ended = [process.communicate(timeout=50) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [(process.returncode, *texts) for process, texts in zip(started, ended, strict=True)]


def results(arguments):
    """What each process printed."""
    ended = processes(arguments)
    for code, _, errors in ended:
        assert code == 0, errors
    return [json.loads(out.splitlines()[-1]) for _, out, _ in ended]


@pytest.mark.parametrize("how", ["held", "streamed", "batches"])
def test_two_processes_give_the_numbers_of_one_device(tmp_path, how):
    found = results([str(tmp_path / "two"), how])
    spec = importlib.util.spec_from_file_location("two_workers", PROGRAM)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    expected = program.train(dure.SingleDevice(), tmp_path / "one", how)
    assert [one["chief"] for one in found] == [True, False]
    assert [one["replicas"] for one in found] == [2, 2]
    for one in found:
        assert one["step"] == expected["step"]
        for name in ("params", "metrics", "outputs"):
            for mine, theirs in zip(jax.tree.leaves(one[name]), jax.tree.leaves(expected[name]), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5 * np.max(np.abs(theirs)))
    assert found[0]["params"] == found[1]["params"]
    # The chief alone wrote the checkpoint, and one device goes on from it.
    assert sorted(part.name for part in tmp_path.iterdir()) == ["one", "two"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("one has other rows", "SpecError: fit: worker:1 has x = float32 [37, 5], whose rows sum to"),
        ("one has fewer batches", "DataError: worker:1 has 3 steps of"),
    ],
)
def test_processes_with_other_data_are_refused_and_named(tmp_path, how, words):
    for code, _, errors in processes([str(tmp_path / "two"), how]):
        assert code != 0
        assert words in errors
