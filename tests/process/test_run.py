"""`dure run` on one machine: real processes that are killed, stopped, stuck or wrong."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from process.launched import Run, is_stopped, run, until, without_numbers

SHORT = ("--step-timeout", "2")


def test_every_worker_runs_the_whole_script_as_main(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        """
print(task, __name__, sys.argv[1:], sys.path[0] == str(folder), os.environ["DURE_RESTART"], os.getsid(0) == os.getpid())
print("aside", file=sys.stderr)
""",
        arguments=("a", "--workers", "9"),
    )
    assert ended.code == 0
    said = "__main__ ['a', '--workers', '9'] True 0 True"
    assert sorted(ended.out.splitlines()) == [f"worker:0 {said}", f"worker:1 {said}"]
    assert sorted(ended.err.splitlines()) == ["[worker:0] aside", "[worker:1] aside"]


def test_a_module_runs_too_and_one_worker_has_no_prefix(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text("import sys\nprint(__name__, sys.argv[1:])\nprint('aside', file=sys.stderr)\n")
    program = [sys.executable, "-c", "from dure.cli import main; main()", "run", "-m", "tool", "--flag"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "__main__ ['--flag']\n", "aside\n")


def test_the_cluster_is_told(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        """
from dure.cluster.spec import resolve
member = resolve(os.environ)
print(member.task, member.spec.to_json(), member.told_by, os.environ.get("DURE_TOKEN"))
""",
    )
    lines = sorted(ended.out.splitlines())
    form = r'worker:%d {"worker": \["127.0.0.1:\d+", "127.0.0.1:\d+"\]} DURE_CLUSTER None'
    assert all(re.fullmatch(form % index, line) for index, line in enumerate(lines))
    assert len({line.partition(" ")[2] for line in lines}) == 1


# --- faults -------------------------------------------------------------------------------------------------------

FAULTS = {
    "killed": (
        "os.kill(os.getpid(), 9)",
        "LostError: worker:1 (host h, pid n) was killed by SIGKILL at step 7 in collective",
    ),
    "exit code": (
        "sys.exit(3)",
        "LostError: worker:1 (host h, pid n) ended with exit code 3 at step 7 in collective",
    ),
    "stopped": (
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "DeadlineError: worker:1 (host h, pid n) has been stopped by a signal for 2 s at step 7 in collective",
    ),
    "data": (
        "board.enter(Phase.DATA, 7)\ndef load():\n    wait_for('never')\nload()",
        "DeadlineError: worker:1 (host h, pid n) has been in data for 2 s at step 7 (SCRIPT); the other waits",
    ),
    "user code": (
        "board.enter(Phase.USER, 7)\nwait_for('never')",
        "DeadlineError: worker:1 (host h, pid n) has been in user code for 2 s at step 7 (SCRIPT); the other waits",
    ),
    "left": (
        "board.enter(Phase.USER, 7)\nsys.exit()",
        "LostError: worker:1 (host h, pid n) has ended its script at step 7; the other waits for it",
    ),
    "behind": (
        "board.enter(Phase.COLLECTIVE, 6)\nwait_for('never')",
        "DeadlineError: worker:1 (host h, pid n) has been in collective for 2 s at step 6 (SCRIPT); the other waits",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_culprit_is_named_and_nothing_is_left(tmp_path: Path, fault: str) -> None:
    action, line = FAULTS[fault]
    ended = run(
        tmp_path,
        f"""
if task == "worker:0":
    wait()
wait_for("waits-0")
board.enter(Phase.COLLECTIVE, 7)
{action}
""",
        *SHORT,
    )
    assert re.sub(r"script\.py:\d+ in wait_for", "SCRIPT", without_numbers(ended.last)) == line
    assert ended.code == (3 if fault == "exit code" else 1)
    assert "Traceback" not in ended.err
    if "SCRIPT" in line:
        assert "worker:1 stands in (innermost first):" in ended.err


def test_all_that_wait_for_one_another_are_told_together(tmp_path: Path) -> None:
    ended = run(tmp_path, "wait()", *SHORT)
    assert ended.code == 1
    assert "all 2 workers have been in collective for 2 s at step 7" in ended.last


def test_an_exception_is_shown_first_once_and_with_its_worker(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        """
board.enter(Phase.DATA, 7)
if task == "worker:0":
    wait()
wait_for("waits-0")
try:
    {}["rows"]
except KeyError as error:
    raise ValueError("no rows\\nat all") from error
""",
    )
    lines = ended.err.splitlines()
    assert ended.code == 1
    assert lines[:2] == ["worker:1:", "Traceback (most recent call last):"]
    assert ended.err.count("ValueError: no rows") == 2  # the traceback's, and the last line's
    assert ended.err.count("KeyError: 'rows'") == 1
    assert "runpy" not in ended.err
    assert "dure/launch" not in ended.err
    last = r"worker:1 \(host h, pid n\) raised ValueError: no rows at step 7 \(script.py:\d+ in <module>\) in data"
    assert re.fullmatch(last, without_numbers(ended.last))


def test_a_script_that_is_no_python_is_an_exception_too(tmp_path: Path) -> None:
    ended = run(tmp_path, "def def")
    assert "raised SyntaxError: invalid syntax" in ended.last
    assert ended.err.count("^") > 0


def test_a_text_for_exit_is_written(tmp_path: Path) -> None:
    ended = run(tmp_path, "if task == 'worker:1': sys.exit('no such data')\nwait()")
    assert ended.code == 1
    assert "no such data" in ended.err
    assert "worker:1" in ended.last
    assert "ended with exit code 1" in ended.last


def test_who_dies_without_a_traceback_leaves_its_last_lines(tmp_path: Path) -> None:
    ended = run(
        tmp_path, "print('loading 7', file=sys.stderr)\nif task == 'worker:1': os.kill(os.getpid(), 11)\nwait()"
    )
    assert ended.err.splitlines()[-3:-1] == ["worker:1 wrote last:", "  loading 7"]
    assert "killed by SIGSEGV" in ended.last


def test_the_noise_of_victims_is_not_shown(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        """
if task == "worker:0":
    wait_for("dying")
    print("connection reset", file=sys.stderr)
    os.abort()
note("dying")
os.kill(os.getpid(), 9)
""",
    )
    assert "connection reset" not in ended.err
    assert "worker:1 (host h, pid n) was killed by SIGKILL" in without_numbers(ended.last)


def test_a_victim_that_is_seen_first_is_not_blamed(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        """
class JaxRuntimeError(RuntimeError): pass
if task == "worker:0":
    wait_for("dying")
    raise JaxRuntimeError("INTERNAL: Gloo all-reduce failed: Connection closed by peer")
note("dying")
wait_for("runs")
raise ValueError("mine")
""".replace('wait_for("runs")', "board.enter(Phase.USER, 3)\ntime.sleep(0.2)"),
    )
    assert "worker:1" in ended.last
    assert "raised ValueError: mine at step 3" in ended.last
    assert "Gloo" not in ended.err


def test_what_workers_started_ends_with_them(tmp_path: Path) -> None:
    sleeper = "[sys.executable, '-c', 'import time; time.sleep(1000)', str(folder)]"
    ended = run(
        tmp_path,
        f"""
subprocess.Popen({sleeper})
if task == "worker:1":
    subprocess.Popen({sleeper}, start_new_session=True)
    subprocess.Popen([sys.executable, '-c', 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); '
                     'time.sleep(1000)', str(folder)])
    board.enter(Phase.DATA, 0)
wait() if task == "worker:0" else wait_for("never")
""",
        *SHORT,
    )
    assert "in data" in ended.last  # and `run` has looked for what is left


def test_the_children_of_a_killed_worker_end_too(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        """
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)', str(folder)])
os.kill(os.getpid(), 9) if task == "worker:1" else wait()
""",
    )
    assert "killed by SIGKILL" in ended.last


# --- restarts -----------------------------------------------------------------------------------------------------


def test_a_group_comes_back_as_often_as_it_may(tmp_path: Path) -> None:
    script = """
print(task, os.environ["DURE_RESTART"])
if os.environ["DURE_RESTART"] != "2":
    os.kill(os.getpid(), 9) if task == "worker:1" else wait()
"""
    ended = run(tmp_path, script, "--max-restarts", "2")
    assert ended.code == 0
    assert sorted(ended.out.splitlines())[-2:] == ["worker:1 1", "worker:1 2"]
    assert "dure run: starting the group again (2 of 2)" in ended.err
    assert ended.err.count("was killed by SIGKILL") == 2


def test_the_last_line_is_the_error_when_restarts_are_used_up(tmp_path: Path) -> None:
    ended = run(tmp_path, "os.kill(os.getpid(), 9) if task == 'worker:1' else wait()", "--max-restarts", "1")
    assert ended.code == 1
    assert "dure run: was started again 1 of 1 times" in ended.err
    assert ended.last.startswith("LostError: worker:1")


def test_another_port_is_taken_when_one_is_in_use(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        """
print(task, os.environ["DURE_CLUSTER"], os.environ["DURE_RESTART"])
if task == "worker:0" and not (folder / "again").exists():
    note("again")
    raise RuntimeError("UNKNOWN: Failed to start RPC server")
""",
    )
    lines = [line.partition(" ")[2] for line in ended.out.splitlines() if line.startswith("worker:0")]
    assert (ended.code, ended.err) == (0, "")
    assert len(set(lines)) == 2
    assert all(line.endswith(" 0") for line in lines)


# --- signals ------------------------------------------------------------------------------------------------------


def launch(tmp_path: Path, script: str, *options: str) -> Run:
    return Run(tmp_path, script, "--workers", "2", *options)


def test_ctrl_c_lets_workers_end_in_order(tmp_path: Path) -> None:
    started = launch(
        tmp_path,
        """
came = []
signal.signal(signal.SIGINT, lambda *_: came.append(1))
note("waits-" + task[-1], str(os.getpid()))
while not came:
    time.sleep(0.01)
print("saved", task)
""",
    )
    started.pid(0), started.pid(1)
    started.process.send_signal(signal.SIGINT)
    ended = started.end()
    assert (ended.code, sorted(ended.out.splitlines()), ended.err) == (130, ["saved worker:0", "saved worker:1"], "")


def test_ctrl_c_without_a_handler_ends_without_noise(tmp_path: Path) -> None:
    started = launch(tmp_path, "wait()")
    started.pid(0), started.pid(1)
    started.process.send_signal(signal.SIGINT)
    ended = started.end()
    assert (ended.code, ended.err) == (130, "")


def test_a_second_ctrl_c_ends_who_does_not_listen(tmp_path: Path) -> None:
    started = launch(
        tmp_path,
        "signal.signal(signal.SIGINT, lambda *_: note('heard-' + task[-1]))\nwait()",
    )
    started.pid(0), started.pid(1)
    started.process.send_signal(signal.SIGINT)
    started.text("heard-0"), started.text("heard-1")
    started.process.send_signal(signal.SIGINT)
    assert started.end().code == 130


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_request_to_end_is_passed_on(tmp_path: Path, number: int, code: int) -> None:
    script = "signal.signal(signal.SIGTERM, lambda *_: (note('heard-' + task[-1]), os._exit(0)))\nwait()"
    started = launch(tmp_path, script)
    started.pid(0), started.pid(1)
    started.process.send_signal(number)
    assert started.end().code == code
    assert (tmp_path / "heard-0").exists()
    assert (tmp_path / "heard-1").exists()


def test_ctrl_z_stops_all_and_its_time_does_not_count(tmp_path: Path) -> None:
    started = launch(
        tmp_path, "board.enter(Phase.DATA, 0)\nnote('waits-' + task[-1], str(os.getpid()))\nwait_for('go')", *SHORT
    )
    pids = [started.pid(0), started.pid(1), started.process.pid]
    started.process.send_signal(signal.SIGTSTP)
    until(lambda: all(map(is_stopped, pids)))
    resume_s = time.monotonic() + 2.5  # longer than the deadline
    until(lambda: time.monotonic() > resume_s)
    os.kill(started.process.pid, signal.SIGCONT)
    until(lambda: not any(map(is_stopped, pids)))
    looked_s = time.monotonic() + 0.5  # the launcher looks at them again
    until(lambda: time.monotonic() > looked_s)
    (tmp_path / "go").touch()
    ended = started.end()
    assert (ended.code, ended.err) == (0, "")


def test_workers_and_their_children_end_when_the_launcher_is_killed(tmp_path: Path) -> None:
    started = launch(
        tmp_path,
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)', str(folder)])\nwait()",
    )
    workers = [psutil.Process(started.pid(0)), psutil.Process(started.pid(1))]
    started.process.kill()
    gone, alive = psutil.wait_procs(workers, timeout=2.0)
    assert (len(gone), alive) == (2, [])
    started.process.wait()
    try:
        started.assert_nothing_left()
    finally:
        started.close()


def test_nobody_who_reads_is_an_end(tmp_path: Path) -> None:
    started = launch(tmp_path, "while True: print('line')")
    assert started.process.stdout is not None
    started.process.stdout.readline()
    started.process.stdout.close()
    started.process.stdout = None
    code = started.process.wait(20)
    assert started.process.stderr is not None
    assert (code, started.process.stderr.read()) == (141, "")
    started.process.stderr.close()
    started.assert_nothing_left()


def test_two_groups_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    script = "print(os.environ['DURE_CLUSTER'])\nnote('waits-' + task[-1], str(os.getpid()))\nwait_for('go')"
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    groups = [launch(folder, script) for folder in folders]
    for started in groups:
        started.pid(0), started.pid(1)
    for folder in folders:
        (folder / "go").touch()
    ended = [started.end() for started in groups]
    assert [one.code for one in ended] == [0, 0]
    ports = [set(re.findall(r":(\d+)", one.out)) for one in ended]
    assert [len(some) for some in ports] == [2, 2]
    assert not ports[0] & ports[1]
