"""Runs of `dure run` for tests: small scripts that write on their boards and wait for files, without JAX."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

LIMIT_S = 40.0

HEAD = """
import os, signal, subprocess, sys, time
from pathlib import Path
from dure.launch.board import Phase, here

board, task, folder = here(), os.environ["DURE_TASK"], Path(__file__).parent

def note(name, text=""):
    made = folder / (name + ".part")
    made.write_text(text)
    made.rename(folder / name)

def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.01)

def wait():
    board.enter(Phase.COLLECTIVE, 7)
    note("waits-" + task[-1], str(os.getpid()))
    wait_for("never")
"""


class Ended(NamedTuple):
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        return self.err.splitlines()[-1]


class Run:
    """One launcher and what it starts; everything is ended and looked for in `close`."""

    def __init__(
        self, folder: Path, script: str, *options: str, arguments: tuple[str, ...] = (), token: str = ""
    ) -> None:
        self.folder = folder
        self.script = folder / "script.py"
        self.script.write_text(HEAD + script)
        self.runs = folder / "runs"
        self.runs.mkdir(exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(self.runs)}
        if token:
            environment["DURE_TOKEN"] = token
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from dure.cli import main; main()", "run", *options, str(self.script), *arguments],
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> Ended:
        """Waits for the launcher; asserts that nothing is left."""
        try:
            out, err = self.process.communicate(timeout=LIMIT_S)
        except BaseException:
            self.close()
            raise
        self.assert_nothing_left()
        return Ended(self.process.returncode, out, err)

    def pid(self, worker: int) -> int:
        """Waits until a worker has said that it waits; returns its process."""
        return int(self.text(f"waits-{worker}"))

    def text(self, name: str) -> str:
        """Waits for a file that a worker writes; returns its text."""
        path = self.folder / name
        until(path.exists)
        return path.read_text()

    def ours(self) -> list[psutil.Process]:
        """The processes that run the script, or belong to its run folder."""
        found = []
        for process in psutil.process_iter():
            try:
                words = " ".join(process.cmdline())
                if str(self.folder) in words and process.pid not in (os.getpid(), self.process.pid):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def assert_nothing_left(self) -> None:
        until(lambda: not self.ours())
        until(lambda: not list(self.runs.iterdir()))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for process in self.ours():
            process.kill()
        self.process.communicate()


def until(is_so: Callable[[], object], limit_s: float = 10.0) -> None:
    """Waits until something is so, and fails when it does not come about."""
    deadline_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline_s, "it did not come about in time"
        time.sleep(0.01)


def run(folder: Path, script: str, *options: str, arguments: tuple[str, ...] = ()) -> Ended:
    """Runs a script by `dure run --workers 2` to its end."""
    return Run(folder, script, "--workers", "2", *options, arguments=arguments).end()


def is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


def without_numbers(line: str) -> str:
    """A line with what differs from run to run left out."""
    return re.sub(r"host [^,]+, pid \d+", "host h, pid n", line)


SIGKILL = int(signal.SIGKILL)
