"""The workers of one machine: started, looked at, ended with everything that they started."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

import psutil

from dure.cluster.spec import ClusterSpec, Task
from dure.launch import board as boards
from dure.launch import guard, stack
from dure.launch.board import Board, Phase
from dure.launch.keeper import Keeper
from dure.launch.output import Pump
from dure.launch.start import RESTART
from dure.launch.verdict import Fault, Raised, Seen, What
from dure.launch.worker import ERROR, MAX_ERROR_CHARACTERS, STACK

__all__ = ["GRACE_S", "Account", "Group", "Order"]

GRACE_S = 3.0
"""How long a worker that is asked to end may take before it is killed, in seconds."""

_STACK_S = 1.0
_TAIL_S = 0.15
_LOOK_S = 0.02
_KILL_S = 2.0
_SHOWN_LINES = 20
# The words of jaxlib 0.10 when it ends a process whose peers are gone.
_BY_PEERS = "JAX distributed service detected fatal errors"
_TRACE = re.compile(r'^\s+File "(?P<file>.*)", line (?P<line>\d+), in (?P<name>.*)$')


class Account(NamedTuple):
    """What is told of a culprit, beside the fault itself.

    Args:
        where: the place in the user's code where it stands; empty where that is not known.
        lines: what is printed before the last line.
    """

    where: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """What to start.

    Args:
        command: the script, or `-m` and a module, and its arguments.
        spec: the cluster.
        first: number of the first worker of this machine.
        environments: the variables of each worker of this machine, but for its own place in the cluster.
        restart: how often the group was started before.
    """

    command: tuple[str, ...]
    spec: ClusterSpec
    first: int
    environments: Sequence[Mapping[str, str]]
    restart: int = 0


@dataclass(slots=True)
class _Worker:
    """One worker and what was last seen of it."""

    task: str
    process: subprocess.Popen[bytes]
    board: Board
    path: Path
    stopped_at_s: float | None = None
    ended_at_s: float | None = None
    raised: Raised | None = None
    is_gone: bool = False


@final
class Group:
    """The workers of one start on this machine.

    Args:
        order: what to start.
        pump: passes on what they write; the group starts and closes it.
        keeper: is told what to end if this process is killed.
    """

    def __init__(self, order: Order, pump: Pump, keeper: Keeper) -> None:
        self._pump = pump
        self._keeper = keeper
        self._host = socket.gethostname()
        self._resumed_at_s = 0.0
        self._workers: list[_Worker] = []
        self._folder = Path(tempfile.mkdtemp(prefix="dure-run-"))
        keeper.folder(self._folder)
        try:
            for place, environment in enumerate(order.environments):
                self._workers.append(self._start(order, order.first + place, environment))
            pump.start()
        except BaseException:
            self.end(grace_s=0.0)
            raise

    def _start(self, order: Order, index: int, environment: Mapping[str, str]) -> _Worker:
        path = self._folder / f"worker-{index}.board"
        board = Board.create(path)
        task = Task("worker", index)
        own = {
            "DURE_CLUSTER": order.spec.to_json(),
            "DURE_TASK": str(task),
            boards.VARIABLE: str(path),
            RESTART: str(order.restart),
        }
        process = subprocess.Popen(  # noqa: S603 - this Python, and the script that the user named
            # With -P the current folder cannot stand before what the bootstrap imports.
            [sys.executable, "-P", "-m", "dure.launch.worker", *order.command],
            env={**environment, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._keeper.session(process.pid)
        assert process.stdout is not None
        assert process.stderr is not None
        self._pump.add(str(task), process.stdout, process.stderr)
        return _Worker(str(task), process, board, path)

    def look(self) -> list[Seen]:
        """What is to be seen of each worker now."""
        now_s = time.monotonic()
        return [self._look(worker, now_s) for worker in self._workers]

    def _look(self, worker: _Worker, now_s: float) -> Seen:
        code = worker.process.poll()
        if code is not None and worker.ended_at_s is None:
            worker.ended_at_s = now_s
            worker.raised, at_s = _raised(worker.path.with_suffix(ERROR))
            worker.ended_at_s = min(now_s, at_s) if at_s is not None else now_s
            self._note_gone(worker)
            if code:
                self._pump.hold()
        if code is None and _is_stopped(worker.process.pid):
            worker.stopped_at_s = now_s if worker.stopped_at_s is None else worker.stopped_at_s
        else:
            worker.stopped_at_s = None
        record = worker.board.read()
        return Seen(
            task=worker.task,
            host=self._host,
            pid=worker.process.pid,
            phase=record.phase,
            step=record.step,
            quiet_s=max(0.0, now_s - max(record.since_s, self._resumed_at_s)),
            code=code,
            ended_s=0.0 if worker.ended_at_s is None else now_s - worker.ended_at_s,
            stopped_s=None if worker.stopped_at_s is None else now_s - worker.stopped_at_s,
            raised=worker.raised,
            by_peers=code == -signal.SIGABRT and any(_BY_PEERS in line for line in self._pump.tail(worker.task)),
        )

    def describe(self, fault: Fault) -> Account:
        """Tells of a culprit of this machine, before it is ended: its traceback, its last lines, where it stands.

        From then on nothing more is shown of one that still lives: it is to end, not to go on.
        """
        worker = next(worker for worker in self._workers if worker.task == fault.seen.task)
        account = self._describe(worker, fault)
        if worker.process.poll() is None:
            self.mute()
        return account

    def _describe(self, worker: _Worker, fault: Fault) -> Account:
        if fault.seen.raised is not None:
            text = fault.seen.raised.text.rstrip().splitlines()
            return Account(_raised_at(text), (f"{worker.task}:", *text))
        if worker.process.poll() is not None:
            time.sleep(_TAIL_S)  # for what it wrote last, which is still on its way here
            tail = self._pump.tail(worker.task)[-_SHOWN_LINES:] if fault.what in (What.KILLED, What.EXITED) else []
            return Account("", (f"{worker.task} wrote last:", *(f"  {line}" for line in tail)) if tail else ())
        if fault.what is What.STOPPED:
            return Account("", (f"{worker.task} is stopped, and cannot say where it stands",))
        frames = self._ask_stack(worker, is_loading=fault.seen.phase is Phase.DATA)
        if not frames:
            return Account("", (f"{worker.task} does not say where it stands",))
        lines = [f'  File "{frame.file}", line {frame.line}, in {frame.name}' for frame in frames]
        return Account(stack.place(frames), (f"{worker.task} stands in (innermost first):", *lines))

    def _ask_stack(self, worker: _Worker, *, is_loading: bool) -> tuple[stack.Frame, ...]:
        if worker.board.read().pid != worker.process.pid:
            return ()  # it does not hear the signal yet, and would end by it
        path = worker.path.with_suffix(STACK)
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.process.pid, signal.SIGUSR1)
        deadline_s, size_bytes = time.monotonic() + _STACK_S, -1
        while time.monotonic() < deadline_s:
            time.sleep(0.05)
            before, size_bytes = size_bytes, path.stat().st_size
            if size_bytes and size_bytes == before:
                break
        return stack.stand(stack.parse(path.read_text(errors="replace")), is_loading=is_loading)

    def signal(self, number: int) -> None:
        """Sends a signal to each worker that is there; not to what it started, which a worker ends itself."""
        for worker in self._workers:
            if worker.process.poll() is None:
                worker.process.send_signal(number)

    def pause(self) -> None:
        """Stops the workers and what they started, as Ctrl-Z does."""
        self._signal_groups(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets them go on; the time in between counts for none of them."""
        self._resumed_at_s = time.monotonic()
        self._signal_groups(signal.SIGCONT)

    def mute(self, *, all_but: str = "") -> None:
        """From now on shows nothing of what the workers write, but for one."""
        self._pump.mute(all_but=all_but)

    @property
    def is_unread(self) -> bool:
        """Whether nobody reads this process's output any more."""
        return self._pump.is_broken

    def end(self, *, grace_s: float = GRACE_S) -> None:
        """Ends all workers with what they started, shows the last that they wrote, and removes the folder.

        Args:
            grace_s: how long they may take to end by themselves, in seconds; then they are killed.
        """
        try:
            self._end_processes(grace_s)
        finally:
            self._pump.close()
            for worker in self._workers:
                worker.board.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._keeper.forget()

    def _end_processes(self, grace_s: float) -> None:
        below = self._descendants()
        if grace_s > 0:
            self._signal_groups(signal.SIGTERM)
            # Who is stopped hears nothing.
            self._signal_groups(signal.SIGCONT)
            _wait(self._are_gone, grace_s)
        self._signal_groups(signal.SIGKILL)
        for process in below:  # those, too, that left for a session of their own
            with contextlib.suppress(psutil.Error):
                process.kill()
        for worker in self._workers:
            worker.process.wait()
        # One that forks at the wrong moment is met in the next round.
        _wait(self._is_killed, _KILL_S)

    def _is_killed(self) -> bool:
        if self._are_gone():
            return True
        guard.end(self._sessions())
        return False

    def _sessions(self) -> set[int]:
        return {worker.process.pid for worker in self._workers if not worker.is_gone}

    def _are_gone(self) -> bool:
        for worker in self._workers:
            self._note_gone(worker)
        return not self._sessions()

    def _note_gone(self, worker: _Worker) -> None:
        """Notes once that nothing of a worker is left: then its number may become another's, and is left alone."""
        if worker.is_gone or worker.process.poll() is None or guard.members({worker.process.pid}):
            return
        if not Path("/proc").is_dir():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(worker.process.pid, 0)
                return  # somebody of its group is there
        worker.is_gone = True
        self._keeper.gone(worker.process.pid)

    def _descendants(self) -> list[psutil.Process]:
        found = []
        for worker in self._workers:
            with contextlib.suppress(psutil.Error):
                if worker.process.poll() is None:
                    found += psutil.Process(worker.process.pid).children(recursive=True)
        return found

    def _signal_groups(self, number: int) -> None:
        for session in self._sessions():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(session, number)


def _wait(is_over: Callable[[], bool], timeout_s: float) -> None:
    """Looks again and again until it is over or the time has passed."""
    deadline_s = time.monotonic() + timeout_s
    while not is_over() and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)


def _is_stopped(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def _raised(path: Path) -> tuple[Raised | None, float | None]:
    """The exception that a worker left, and when, in seconds of the monotonic clock."""
    try:
        if path.stat().st_size > 16 * MAX_ERROR_CHARACTERS:
            return None, None
        record = json.loads(path.read_text())
        return Raised(str(record["kind"]), str(record["message"]), str(record["text"])), float(record["at_s"])
    except (OSError, ValueError, TypeError, KeyError):
        return None, None


def _raised_at(text: Sequence[str]) -> str:
    """The innermost place of the user's code in a traceback."""
    found = ""
    for line in text:
        match = _TRACE.match(line)
        if match:
            frame = stack.Frame(match["file"], int(match["line"]), match["name"])
            found = str(frame) if frame.is_user else found
    return found
