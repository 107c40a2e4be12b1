"""The machine that a comparison was measured on, as far as a reader of its report has to know it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

import psutil

from dure.advise.record import Machine

__all__ = ["this_machine"]


def this_machine(versions: Mapping[str, str]) -> Machine:
    """Describes this machine.

    Args:
        versions: Versions of the packages that trained, by name.
    """
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=_processor(),
        cores=usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        versions=dict(versions),
    )


def usable_cores() -> int:
    """Cores that this process may use, which in a container may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    """The CPU's name: Linux keeps it in a file, macOS gives a good one to `platform`."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
