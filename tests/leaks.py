"""What a test may leave behind: nothing. A `Room` is looked at before a test and again after it."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path

import psutil

# How long what is ending may still take, all of it together. Nothing is waited for when nothing is left.
GRACE_S = 5.0

# Pools of other libraries that live as long as the process, by the start of their threads' names:
KEPT_THREADS = (
    "pytest_timeout",  # the timer of the limit of the test that runs
    "execnet",  # the channel of pytest-xdist to its main process
)

# Set by pytest itself between the phases of a test.
KEPT_VARIABLES = {"PYTEST_CURRENT_TEST"}

SHARED_MEMORY = Path("/dev/shm")


class Room:
    """The state of this process before a test.

    Args:
        folder: the working directory of the test, empty.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = set(threading.enumerate())
        self._children = set(psutil.Process().children(recursive=True))
        self._variables = _variables()
        self._interrupt = signal.getsignal(signal.SIGINT)
        self._blocks = _blocks()

    def left(self) -> list[str]:
        """Returns in words what is there now and was not before; puts back what would disturb others."""
        deadline = time.monotonic() + GRACE_S
        return [
            *self._left_threads(deadline),
            *self._left_children(deadline),
            *self._left_variables(),
            *self._left_handler(),
            *self._left_blocks(),
            *self._left_files(),
        ]

    def _left_threads(self, deadline: float) -> list[str]:
        new = [t for t in threading.enumerate() if t not in self._threads and not t.name.startswith(KEPT_THREADS)]
        for thread in new:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [f"thread `{thread.name}` (daemon: {thread.daemon})" for thread in new if thread.is_alive()]

    def _left_children(self, deadline: float) -> list[str]:
        new = [child for child in psutil.Process().children(recursive=True) if child not in self._children]
        _, alive = psutil.wait_procs(new, timeout=max(0.0, deadline - time.monotonic()))
        left = []
        for child in alive:
            try:
                left.append(f"process {child.pid} `{' '.join(child.cmdline())[:120]}`")
                child.kill()
            except psutil.NoSuchProcess:
                continue
        return left

    def _left_variables(self) -> list[str]:
        now = _variables()
        changed = sorted(
            name for name in now.keys() | self._variables.keys() if now.get(name) != self._variables.get(name)
        )
        for name in changed:
            if name in self._variables:
                os.environ[name] = self._variables[name]
            else:
                del os.environ[name]
        return [f"variable {name}: {self._variables.get(name)!r} became {now.get(name)!r}" for name in changed]

    def _left_handler(self) -> list[str]:
        handler = signal.getsignal(signal.SIGINT)
        if handler == self._interrupt:
            return []
        signal.signal(signal.SIGINT, self._interrupt)
        return [f"handler of SIGINT: {handler!r}"]

    def _left_blocks(self) -> list[str]:
        return [f"shared memory {path}" for path in sorted(_blocks() - self._blocks) if not _held_elsewhere(path)]

    def _left_files(self) -> list[str]:
        left = []
        if Path.cwd() != self._folder:
            left.append(f"the working directory {Path.cwd()}")
        for path in sorted(self._folder.iterdir()):
            left.append(f"file `{path.name}` in the working directory")
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        return left


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in KEPT_VARIABLES}


def _blocks() -> set[Path]:
    return set(SHARED_MEMORY.iterdir()) if SHARED_MEMORY.is_dir() else set()


def _held_elsewhere(path: Path) -> bool:
    """Whether a process that is not ours maps the block: other programs of this machine have theirs too."""
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    for process in psutil.process_iter():
        if process.pid in ours:
            continue
        try:
            if any(region.path == str(path) for region in process.memory_maps()):
                return True
        except (psutil.Error, OSError):
            continue
    return not path.exists()
