"""Processes that a test has started without knowing them: looked for by a file that each of them writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil


def running(folder: Path) -> list[int]:
    """The processes that said in a folder that they hang, as far as they are there."""
    told = [int(path.suffix[1:]) for path in folder.glob("hangs.*")]
    return [pid for pid in told if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def until(is_so: Callable[[], object], limit_s: float = 20.0) -> None:
    """Waits until something is so, and fails when it does not come about."""
    deadline_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline_s, "it did not come about in time"
        time.sleep(0.01)
