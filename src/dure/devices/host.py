"""The machine's processor and memory, as far as this process may use them."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

__all__ = ["cgroup_limit_bytes", "cores", "memory_bytes", "processor"]

# A cgroup of version 1 without a limit says a number near 2**63; no machine has that much.
_UNLIMITED = 1 << 60


def memory_bytes(root: Path = Path("/")) -> int:
    """Returns the memory that this process may use, in bytes: the machine's or its cgroup's limit.

    Args:
        root: where the file system starts that is read for limits.
    """
    total = int(psutil.virtual_memory().total)
    limit = cgroup_limit_bytes(root)
    return total if limit is None else min(total, limit)


def cgroup_limit_bytes(root: Path = Path("/")) -> int | None:
    """Returns the smallest memory limit of this process's cgroups, in bytes; None where there is none.

    A limit anywhere on the way from the process's own group to the root holds for it, so all are read.
    Version 2 keeps it in `memory.max`, version 1 in `memory.limit_in_bytes` below `memory/`. In a container
    the path that the process sees may not exist below its own `/sys/fs/cgroup`, whose root then is the
    container's group.

    Args:
        root: where the file system starts.
    """
    limits = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base, file = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, file = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = base / path.lstrip("/")
        above = (folder for folder in (group, *group.parents) if folder.is_relative_to(base))
        limits += [_read(folder / file).strip() for folder in above]
    numbers = [int(text) for text in limits if text.isdecimal()]
    return min((number for number in numbers if 0 < number < _UNLIMITED), default=None)


def processor(root: Path = Path("/")) -> str:
    """Returns what the processor calls itself, as `AMD EPYC`; its architecture where it says nothing.

    Args:
        root: where the file system starts.
    """
    for line in _read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine() or "CPU"


def cores() -> int:
    """Returns the number of processor cores that this process may run on."""
    # Not on macOS, where a process cannot be bound to cores either.
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _read(path: Path) -> str:
    """The text of a file of the system; nothing where it is missing or may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
