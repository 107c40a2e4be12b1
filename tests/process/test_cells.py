"""Cells of the matrix of faults that touch a group: at its start, and while processes wait for one another."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from dure.devices import configuration
from dure.launch.ports import Ports
from process.launched import Run, until, without_numbers
from process.training import FIT, TRAIN

JOIN = """
import sys, time
import dure
from dure.errors import DureError

try:
    strategy = dure.MultiWorkerMirrored(timeout_s=float(sys.argv[1]))
except DureError as error:
    print(time.monotonic(), type(error).__name__, error.task, error)
    sys.exit(3)
print("joined", flush=True)
"""


class Ended(NamedTuple):
    """How a process ended, and when it said so."""

    code: int
    at_s: float
    said: str


@contextmanager
def started(folder: Path, script: str, ranks: Sequence[int], size: int, port: int, *arguments: str) -> Iterator[list]:
    """Processes of a cluster, some of which may be missing or doubled; they end with the block."""
    path = folder / "script.py"
    path.write_text(script)
    cluster = json.dumps({"worker": [f"127.0.0.1:{port}", *(f"127.0.0.1:{n}" for n in range(1, size))]})
    base = configuration.child_environment(configuration.Settings(cpu_devices=1, intra_op_threads=1), os.environ)
    processes = [
        subprocess.Popen(
            [sys.executable, str(path), *arguments],
            env={**base, "DURE_CLUSTER": cluster, "DURE_TASK": f"worker:{rank}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ranks
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def ends(processes: list) -> list[Ended]:
    found = []
    for process in processes:
        out, err = process.communicate(timeout=40)
        assert "Traceback" not in err
        at_s, _, said = out.strip().partition(" ")
        found.append(Ended(process.returncode, float(at_s), said) if said else Ended(process.returncode, 0.0, at_s))
    return found


@pytest.fixture
def port() -> Iterator[int]:
    ports = Ports("127.0.0.1", 1)
    yield ports.numbers[0]
    ports.close()


def test_a_worker_that_never_starts_is_named_to_all(tmp_path: Path, port: int) -> None:
    """F01."""
    with started(tmp_path, JOIN, [0, 2], 4, port, "4") as processes:
        ended = ends(processes)
    for rank, one in zip((0, 2), ended, strict=True):
        words = (
            f"DeadlineError worker:1 worker:{rank} waited for 4 workers to meet at 127.0.0.1:{port}, and of these did "
            "not come within 4 s: worker:1, worker:3. Start all of them"
        )
        assert (one.code, one.said[: len(words)]) == (3, words)
    assert abs(ended[0].at_s - ended[1].at_s) < 1.0


def test_a_chief_that_never_starts_is_named(tmp_path: Path, port: int) -> None:
    """F01, where the one is missing that the others meet at."""
    with started(tmp_path, JOIN, [1], 2, port, "1") as processes:
        (ended,) = ends(processes)
    assert ended.code == 3
    assert "did not come within 1 s: worker:0 ([Errno 111] Connection refused). Start all" in ended.said


def test_of_two_workers_of_one_index_the_second_is_refused(tmp_path: Path, port: int) -> None:
    """F03: the first is not touched, and the group comes together without the second."""
    with started(tmp_path, JOIN, [0], 3, port, "40") as chief, started(tmp_path, JOIN, [1, 1], 3, port, "40") as twins:
        until(lambda: any(twin.poll() is not None for twin in twins), 30)
        (second,) = (twin for twin in twins if twin.poll() is not None)
        (first,) = (twin for twin in twins if twin is not second)
        (refused,) = ends([second])
        with started(tmp_path, JOIN, [2], 3, port, "40") as last:
            assert [one[::2] for one in ends([*chief, first, *last])] == [(0, "joined")] * 3
    words = f"SpecError worker:1 worker:1 asked worker:0 at 127.0.0.1:{port} to be let in, and is refused: another"
    assert (refused.code, refused.said[: len(words)]) == (3, words)


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_port_that_is_in_use_is_an_error(tmp_path: Path, *, is_shared: bool) -> None:
    """F04: also where the other server would share its port, as another group's coordinator does."""
    with socket.create_server(("127.0.0.1", 0), reuse_port=is_shared) as taken:
        number = taken.getsockname()[1]
        with started(tmp_path, JOIN, [0], 2, number, "30") as processes:
            (ended,) = ends(processes)
    words = (
        f"BusyError worker:0 worker:0 is to listen at 127.0.0.1:{number}, and cannot: Address already in use. Choose"
    )
    assert (ended.code, ended.said[: len(words)]) == (3, words)


BARRIER = (
    JOIN
    + """
from dure.strategy.group import Processes

rank = 0 if strategy.is_chief else int(__import__("os").environ["DURE_TASK"][-1])
group = Processes(rank, 3, name="barrier", timeout_s=2.0)
group.each("one", rank)
try:
    began = time.monotonic()
    if rank < 2:
        group.each("two", rank)
except DureError as error:
    print(time.monotonic() - began, error.task, error, flush=True)
Processes(rank, 3, name="end", timeout_s=20.0).each("end", rank)
"""
)


def test_all_who_wait_for_one_that_does_not_come_are_told_so(tmp_path: Path, port: int) -> None:
    """F37: the others agree on something, and one of them does something else."""
    with started(tmp_path, BARRIER, [0, 1, 2], 3, port, "40") as processes:
        outs = [process.communicate(timeout=40)[0] for process in processes]
    for rank, out in enumerate(outs[:2]):
        seconds, _, said = out.splitlines()[-1].partition(" ")
        assert float(seconds) < 2 + 1
        assert said.startswith(f"worker:2 worker:{rank} waited 2 s for worker:2 to agree on two, and it did not come.")
    assert outs[2].splitlines() == ["joined"]


@pytest.mark.parametrize("where", ["step 2", "step 5"])
def test_one_that_dies_in_an_exchange_is_named_for_all(tmp_path: Path, where: str) -> None:
    """F38: of three workers, one dies while it waits in the all-reduce (the chief), or for the word before it."""
    culprit = "worker:0" if where == "step 2" else "worker:2"
    started = Run(tmp_path, TRAIN + FIT, "--workers", "3", arguments=("killed", where, culprit))
    ended = started.end()
    line = f"LostError: {culprit} (host h, pid n) was killed by SIGKILL at {where} in collective"
    assert re.sub(r" \(script.*\)", "", without_numbers(ended.last)) == line
    assert time.monotonic() - float((tmp_path / "fault").read_text()) < 2 + 3
    assert ended.code == 1
