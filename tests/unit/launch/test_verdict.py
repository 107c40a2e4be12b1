"""Tables of what is seen, and who is to blame. No process and no clock."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dure.launch.board import Phase
from dure.launch.verdict import Fault, Limits, Raised, Seen, Wait, What, judge

LIMITS = Limits(step_s=60.0)
BASE = Seen("worker:0", "h", 4711, Phase.COLLECTIVE, 1200, 0.1)
GLOO = Raised("JaxRuntimeError", "INTERNAL: Gloo all-reduce failed: Connection closed by peer [127.0.0.1]:4711")
OWN = Raised("ValueError", "bad rows\nand more", "Traceback ...")


def group(*changes: dict[str, Any]) -> list[Seen]:
    return [replace(BASE, task=f"worker:{index}", pid=4711 + index, **one) for index, one in enumerate(changes)]


def blame(*changes: dict[str, Any]) -> tuple[str, What] | Wait:
    verdict = judge(group(*changes), LIMITS)
    return (verdict.seen.task, verdict.what) if isinstance(verdict, Fault) else verdict


RUNS: dict[str, Any] = {}
WAITS = {"quiet_s": 61.0}
DATA, USER, COMPILE, START, DONE = (
    {"phase": phase} for phase in (Phase.DATA, Phase.USER, Phase.COMPILE, Phase.START, Phase.DONE)
)
LEFT = {"phase": Phase.DONE, "code": 0, "ended_s": 30.0}
KILLED = {"code": -9, "ended_s": 0.0}
ABORTED = {"code": -6, "ended_s": 0.0, "by_peers": True}
CRASHED = {"code": -6, "ended_s": 0.4}
ECHO = {"code": 1, "raised": GLOO, "ended_s": 0.0}
FAILED = {"code": 1, "raised": OWN, "ended_s": 0.0}
OLD = {"ended_s": 5.0}
STOPPED = {"stopped_s": 6.0}

CASES = {
    "all run": ((RUNS, RUNS), Wait.RUNNING),
    "all ended in order": ((LEFT, LEFT), Wait.DONE),
    "one ended, the other trains": ((LEFT, RUNS), Wait.RUNNING),
    "one ended, the other is in user code for hours": ((LEFT, {**USER, "quiet_s": 9999.0}), Wait.RUNNING),
    # deaths
    "killed": ((RUNS, KILLED), ("worker:1", What.KILLED)),
    "killed, and its victims abort": ((ABORTED, KILLED, ABORTED), ("worker:1", What.KILLED)),
    "killed, seen after its victims": (({**ABORTED, **OLD}, KILLED), ("worker:1", What.KILLED)),
    "killed, and a victim's connection broke": ((ECHO, KILLED), ("worker:1", What.KILLED)),
    "two killed: the first": ((KILLED, {**KILLED, "ended_s": 0.1}), ("worker:1", What.KILLED)),
    "exit code": ((RUNS, {"code": 3, **OLD}), ("worker:1", What.EXITED)),
    "exit code, just now": ((RUNS, {"code": 3}), Wait.RUNNING),
    "own exception": ((RUNS, {**FAILED, **OLD}), ("worker:1", What.RAISED)),
    "own exception, and a victim's before it was seen": (({**ECHO, **OLD}, FAILED), ("worker:1", What.RAISED)),
    "two exceptions: the first": (({**FAILED, "ended_s": 1.0}, {**FAILED, **OLD}), ("worker:1", What.RAISED)),
    "a broken connection, just now": ((ECHO, RUNS), Wait.RUNNING),
    "a broken connection and nobody else": (({**ECHO, **OLD}, RUNS), ("worker:0", What.RAISED)),
    "an abort and nobody else": ((RUNS, {**ABORTED, **OLD}), ("worker:1", What.KILLED)),
    "an abort of its own, and a victim's broken connection": (({**ECHO, **OLD}, CRASHED), ("worker:1", What.KILLED)),
    "an abort that may be one of its own": ((RUNS, {**CRASHED, "ended_s": 0.1}), Wait.RUNNING),
    "a broken connection, since a peer has left": (({**ECHO, **OLD}, LEFT), ("worker:1", What.LEFT)),
    "a runtime error of its own": (
        (RUNS, {"code": 1, "raised": Raised("JaxRuntimeError", "RESOURCE_EXHAUSTED: out of memory"), **OLD}),
        ("worker:1", What.RAISED),
    ),
    "a death counts before a delay": (({**DATA, "quiet_s": 99.0}, KILLED), ("worker:1", What.KILLED)),
    # stopped
    "stopped": ((WAITS, STOPPED), ("worker:1", What.STOPPED)),
    "stopped a moment": ((RUNS, {"stopped_s": 0.5}), Wait.RUNNING),
    "stopped in its collective, and others late": ((WAITS, {**WAITS, "stopped_s": 3.0}), ("worker:1", What.STOPPED)),
    "all stopped: Ctrl-Z": ((STOPPED, STOPPED), Wait.RUNNING),
    "two stopped: the first": ((RUNS, STOPPED, {"stopped_s": 7.0}), ("worker:2", What.STOPPED)),
    # late
    "late in data": ((WAITS, {**DATA, **WAITS}), ("worker:1", What.LATE)),
    "late in data, nobody waits yet": ((RUNS, {**DATA, **WAITS}), ("worker:1", What.LATE)),
    "in data, in time": ((RUNS, {**DATA, "quiet_s": 59.0}), Wait.RUNNING),
    "in user code, nobody waits": (({**DATA, "quiet_s": 1.0}, {**USER, "quiet_s": 999.0}), Wait.RUNNING),
    "in user code, the other waits": ((WAITS, {**USER, "quiet_s": 999.0}), ("worker:1", What.LATE)),
    "in user code since a moment, the other waits": ((WAITS, {**USER, "quiet_s": 1.0}), Wait.RUNNING),
    "moves for ever without getting anywhere": (
        ({"quiet_s": 601.0}, {**USER, "quiet_s": 1.0}),
        ("worker:1", What.LATE),
    ),
    "compiles, the other waits": ((WAITS, {**COMPILE, "quiet_s": 61.0}), Wait.RUNNING),
    "compiles too long": ((RUNS, {**COMPILE, "quiet_s": 601.0}), ("worker:1", What.LATE)),
    "starts, the other waits": ((WAITS, {**START, "quiet_s": 61.0}), Wait.RUNNING),
    "starts too long": ((RUNS, {**START, "quiet_s": 601.0}), ("worker:1", What.LATE)),
    "behind in its step": ((WAITS, {**WAITS, "step": 1199}), ("worker:1", What.LATE)),
    "all in the collective": ((WAITS, {"quiet_s": 62.0}), ("worker:1", What.TOGETHER)),
    "all in it, one only since a moment": ((WAITS, {"quiet_s": 3.0}), Wait.RUNNING),
    "one alone in its collective": ((WAITS,), ("worker:0", What.TOGETHER)),
    "has left, the other waits": ((WAITS, LEFT), ("worker:1", What.LEFT)),
    "its script has ended, its exit waits": ((WAITS, {**DONE, "quiet_s": 99.0}), ("worker:1", What.LEFT)),
    "two late: the first": ((WAITS, {**DATA, "quiet_s": 62.0}, {**USER, "quiet_s": 80.0}), ("worker:2", What.LATE)),
    "two late in data: the first": (({**DATA, "quiet_s": 99.0}, {**DATA, "quiet_s": 61.0}), ("worker:0", What.LATE)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_culprit(name: str) -> None:
    seen, expected = CASES[name]
    assert blame(*seen) == expected


LINES = {
    "killed": (
        {**KILLED},
        "LostError: worker:1 (host h, pid 4712) was killed by SIGKILL at step 1200 in collective",
    ),
    "exit": (
        {"code": 3, **OLD, **USER},
        "LostError: worker:1 (host h, pid 4712) ended with exit code 3 at step 1200 in user code",
    ),
    "raised": (
        {**FAILED, **OLD, **USER},
        "worker:1 (host h, pid 4712) raised ValueError: bad rows at step 1200 in user code",
    ),
    "data": (
        {**DATA, **WAITS},
        "DeadlineError: worker:1 (host h, pid 4712) has been in data for 61 s at step 1200; the other waits",
    ),
    "stopped": (
        {**STOPPED, **DATA},
        "DeadlineError: worker:1 (host h, pid 4712) has been stopped by a signal for 6 s at step 1200 in data",
    ),
    "left": (
        LEFT,
        "LostError: worker:1 (host h, pid 4712) has ended its script at step 1200; the other waits for it",
    ),
    "together": (
        {"quiet_s": 63.0},
        (
            "DeadlineError: all 2 workers have been in collective for 63 s at step 1200; it does not end, and none of "
            "them is behind the others"
        ),
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_the_line_names_the_culprit_and_its_phase(name: str) -> None:
    change, line = LINES[name]
    fault = judge(group(WAITS, change), LIMITS)
    assert isinstance(fault, Fault)
    assert fault.line() == line
    assert "worker:0" not in line


def test_the_line_says_where() -> None:
    fault = judge(group(WAITS, RUNS, {**DATA, "quiet_s": 60.4}), LIMITS)
    assert isinstance(fault, Fault)
    assert fault.line("load.py:17 in __next__") == (
        "DeadlineError: worker:2 (host h, pid 4713) has been in data for 60 s at step 1200 (load.py:17 in __next__); "
        "the others wait"
    )


@pytest.mark.parametrize(
    ("change", "code"), [({"code": 3, **OLD}, 3), (KILLED, 1), ({**FAILED, **OLD}, 1), (STOPPED, 1)]
)
def test_the_exit_code_is_the_culprits_own_or_1(change: dict[str, Any], code: int) -> None:
    fault = judge(group(RUNS, change), LIMITS)
    assert isinstance(fault, Fault)
    assert fault.exit_code == code


def test_a_port_that_is_taken_is_known_by_its_words() -> None:
    assert Raised("JaxRuntimeError", "UNKNOWN: Failed to start RPC server").is_port_taken
    assert Raised("BusyError", "worker:0 is to listen at x, and that port is in use").is_port_taken
    assert not OWN.is_port_taken


SEEN = st.builds(
    Seen,
    task=st.just("worker:0"),
    host=st.just("h"),
    pid=st.just(1),
    phase=st.sampled_from(Phase),
    step=st.integers(0, 3),
    quiet_s=st.floats(0, 2000),
    code=st.none() | st.sampled_from([0, 1, 3, -9, -6, -int(signal.SIGINT)]),
    ended_s=st.floats(0, 100),
    stopped_s=st.none() | st.floats(0, 10),
    raised=st.none() | st.sampled_from([GLOO, OWN]),
    by_peers=st.booleans(),
)


@given(st.lists(SEEN, min_size=1, max_size=5))
def test_a_group_is_never_silent_for_ever(workers: list[Seen]) -> None:
    workers = [replace(seen, task=f"worker:{index}") for index, seen in enumerate(workers)]
    later = [
        replace(
            seen,
            quiet_s=seen.quiet_s + 10_000,
            ended_s=seen.ended_s + 10_000,
            stopped_s=None if seen.stopped_s is None else seen.stopped_s + 10_000,
        )
        for seen in workers
    ]
    verdict = judge(later, LIMITS)
    running = [seen for seen in later if seen.code is None]
    if verdict is Wait.RUNNING:
        all_stopped = all(seen.stopped_s is not None for seen in running)
        assert all_stopped or all(seen.phase in (Phase.USER, Phase.DONE) for seen in running)
    elif verdict is Wait.DONE:
        assert all(seen.code == 0 for seen in later)
    else:
        assert verdict.seen in later
        assert "\n" not in verdict.line()


@given(st.lists(SEEN, min_size=1, max_size=5), st.permutations(range(5)))
def test_the_order_of_the_workers_does_not_matter(workers: list[Seen], order: list[int]) -> None:
    named = [
        replace(s, task=f"worker:{i}", quiet_s=s.quiet_s + i, ended_s=s.ended_s + i) for i, s in enumerate(workers)
    ]
    times = [seen.quiet_s for seen in named] + [seen.ended_s for seen in named]
    times += [seen.stopped_s for seen in named if seen.stopped_s is not None]
    if len(set(times)) < len(times):
        return  # at the same moment, either may be named
    shuffled = [named[index] for index in order if index < len(named)]
    assert judge(shuffled, LIMITS) == judge(named, LIMITS)
