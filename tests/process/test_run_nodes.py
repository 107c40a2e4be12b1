"""`dure run` over several machines: here, several launchers on one."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

import pytest

from process.launched import Ended, Run, without_numbers

TOKEN = "0123456789abcdef" * 4


@pytest.fixture
def master() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def node(tmp_path: Path, master: str, rank: int, script: str, *options: str, nodes: int = 2, token: str = TOKEN) -> Run:
    folder = tmp_path / f"node-{rank}"
    folder.mkdir(exist_ok=True)
    where = ("--nodes", str(nodes), "--node-rank", str(rank), "--master", master, "--step-timeout", "2")
    return Run(folder, f"folder = Path({str(tmp_path)!r})\n{script}", *where, *options, token=token)


def both(tmp_path: Path, master: str, script: str, *options: str) -> list[Ended]:
    started = [node(tmp_path, master, rank, script, *options) for rank in (1, 0)]
    ended = [one.end() for one in started]
    return ended[::-1]


def test_two_nodes_are_one_cluster(tmp_path: Path, master: str) -> None:
    script = "print(task, os.environ['DURE_CLUSTER'], os.environ.get('DURE_TOKEN'))"
    ended = both(tmp_path, master, script, "--workers", "2")
    assert [one.code for one in ended] == [0, 0]
    lines = [sorted(one.out.splitlines()) for one in ended]
    assert [[line.split()[0] for line in some] for some in lines] == [
        ["worker:0", "worker:1"],
        ["worker:2", "worker:3"],
    ]
    clusters = {line.partition(" ")[2] for some in lines for line in some}
    assert len(clusters) == 1
    assert clusters.pop().endswith("None")


FAULTS = {
    "killed": (
        "os.kill(os.getpid(), 9)",
        "LostError: worker:1 (host h, pid n) was killed by SIGKILL at step 0 in user code",
    ),
    "exit": ("sys.exit(3)", "LostError: worker:1 (host h, pid n) ended with exit code 3 at step 0 in user code"),
    "data": (
        "board.enter(Phase.DATA, 5)\nwait_for('never')",
        "DeadlineError: worker:1 (host h, pid n) has been in data for 2 s at step 5 (SCRIPT); the other waits",
    ),
    "raised": (
        "raise ValueError('bad')",
        "worker:1 (host h, pid n) raised ValueError: bad at step 0 (SCRIPT) in user code",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_on_another_node_is_told_to_all(tmp_path: Path, master: str, fault: str) -> None:
    action, line = FAULTS[fault]
    ended = both(tmp_path, master, f'wait() if task == "worker:0" else wait_for("waits-0")\n{action}')
    assert [re.sub(r"script\.py:\d+ in [a-z_<>]+", "SCRIPT", without_numbers(one.last)) for one in ended] == [
        line,
        line,
    ]
    assert [one.code for one in ended] == [3, 3] if fault == "exit" else [1, 1]


def test_a_fault_on_node_0_is_told_to_all(tmp_path: Path, master: str) -> None:
    ended = both(tmp_path, master, 'wait() if task == "worker:1" else wait_for("waits-1")\nraise ValueError("bad")')
    assert ended[0].last == ended[1].last
    assert "worker:0" in ended[0].last
    assert "raised ValueError: bad" in ended[0].last


def test_a_restart_happens_on_all(tmp_path: Path, master: str) -> None:
    script = """
print(task, os.environ["DURE_RESTART"])
if os.environ["DURE_RESTART"] == "0":
    os.kill(os.getpid(), 9) if task == "worker:1" else wait()
"""
    ended = both(tmp_path, master, script, "--max-restarts", "1")
    assert [one.code for one in ended] == [0, 0]
    assert [one.out.splitlines()[-1] for one in ended] == ["worker:0 1", "worker:1 1"]
    assert "node 0 is starting the group again (1)" in ended[1].err


def test_ctrl_c_on_one_node_ends_all_in_order(tmp_path: Path, master: str) -> None:
    script = """
came = []
signal.signal(signal.SIGINT, lambda *_: came.append(1))
note("waits-" + task[-1], str(os.getpid()))
while not came:
    time.sleep(0.01)
print("saved")
"""
    started = [node(tmp_path, master, rank, script) for rank in (0, 1)]
    started[0].text("../waits-0"), started[0].text("../waits-1")
    started[1].process.send_signal(signal.SIGINT)
    ended = [one.end() for one in started]
    assert [(one.code, one.out) for one in ended] == [(130, "saved\n"), (130, "saved\n")]


def test_a_request_to_end_on_one_node_ends_all(tmp_path: Path, master: str) -> None:
    started = [node(tmp_path, master, rank, "wait()") for rank in (0, 1)]
    started[0].text("../waits-0"), started[0].text("../waits-1")
    started[1].process.terminate()
    ended = [one.end() for one in started]
    assert [one.code for one in ended] == [1, 143]
    assert "LostError: node 1 (host " in ended[0].last
    assert "was asked to end by signal 15" in ended[0].last


@pytest.mark.parametrize("gone", [0, 1])
def test_a_launcher_that_vanishes_is_named(tmp_path: Path, master: str, gone: int) -> None:
    started = [node(tmp_path, master, rank, "wait()") for rank in (0, 1)]
    started[0].text("../waits-0"), started[0].text("../waits-1")
    started[gone].process.kill()
    ended = started[1 - gone].end()
    started[gone].process.wait()
    try:
        started[gone].assert_nothing_left()
    finally:
        started[gone].close()
    assert ended.code == 1
    assert f"LostError: node {gone} (" in ended.last
    assert "is gone: its launcher has ended or cannot be reached" in ended.last
    assert f"worker:{gone}" in ended.last


# --- the start ----------------------------------------------------------------------------------------------------


def test_a_node_that_does_not_come_is_named(tmp_path: Path, master: str) -> None:
    ends = ("--start-timeout", "2")
    started = [node(tmp_path, master, rank, "", *ends, nodes=3) for rank in (0, 1)]
    for ended in (one.end() for one in started):
        assert ended.code == 2
        assert f"DeadlineError: node 0 waited 2 s at {master} for 3 nodes, and of these did not come: 2" in ended.last


def test_a_node_0_that_does_not_come_is_named(tmp_path: Path, master: str) -> None:
    ended = node(tmp_path, master, 1, "", "--start-timeout", "1").end()
    assert ended.code == 2
    assert f"DeadlineError: node 1 waited 1 s for node 0 at {master}: Connection refused" in ended.last


def test_a_rank_that_is_taken_is_refused_and_the_first_goes_on(tmp_path: Path, master: str) -> None:
    first = node(tmp_path, master, 0, "print('ran')", nodes=3)
    twins = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        twins.append(node(tmp_path / name, master, 1, "print('ran')", nodes=3))
    # One of the two is told so while the third node is still awaited.
    while all(twin.process.poll() is None for twin in twins):
        pass
    refused = next(twin for twin in twins if twin.process.poll() is not None)
    taken = next(twin for twin in twins if twin is not refused)
    third = node(tmp_path, master, 2, "print('ran')", nodes=3)
    ended = refused.end()
    assert ended.code == 2
    assert "--node-rank 1, which the one on host" in ended.last
    assert [one.end().out for one in (first, taken, third)] == ["ran\n"] * 3


def test_another_number_of_nodes_is_refused(tmp_path: Path, master: str) -> None:
    first = node(tmp_path, master, 0, "", "--start-timeout", "3", nodes=2)
    ended = node(tmp_path, master, 2, "", nodes=3).end()
    assert ended.code == 2
    assert "was started with --nodes 3, and node 0 with --nodes 2" in ended.last
    assert first.end().code == 2


def test_another_token_is_refused_and_not_shown(tmp_path: Path, master: str) -> None:
    first = node(tmp_path, master, 0, "", "--start-timeout", "3")
    other = "f" * 64
    ended = node(tmp_path, master, 1, "", token=other).end()
    assert ended.code == 2
    assert "SecurityError: the launcher of node 0 does not accept this one's token" in ended.last
    first_ended = first.end()
    assert first_ended.code == 2
    assert other not in ended.err
    assert TOKEN not in first_ended.err


def test_two_nodes_0_cannot_be(tmp_path: Path, master: str) -> None:
    with socket.socket() as taken:
        host, _, port = master.rpartition(":")
        taken.bind((host, int(port)))
        taken.listen()
        ended = node(tmp_path, master, 0, "").end()
    assert ended.code == 2
    assert f"asked node 0 to listen at {master}" in ended.last
