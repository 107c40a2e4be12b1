"""Processes that measure rows of the table of strategies: `dure run` starts them once for a layout and a network."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dure.devices import configuration

# Programs that run for a moment; what is under test is what they compute.
QUICK = "--xla_backend_optimization_level=0 --xla_cpu_multi_thread_eigen=false"


class Layout(NamedTuple):
    """Processes, and how many devices each has."""

    workers: int
    devices: int

    @property
    def replicas(self) -> int:
        """Devices of all of them."""
        return self.workers * self.devices


def answers(layout: Layout, model: str, row: str, ask: str) -> list[list[np.ndarray]]:
    """What the processes measured for a row, in order of their ranks; leaves of a tree."""
    return [told[f"{row}: {ask}"] for told in _run(layout, model)]


@functools.cache
def _run(layout: Layout, model: str) -> list[dict[str, list[np.ndarray]]]:
    """Starts the processes of a layout; they measure all of its rows that train a network."""
    settings = configuration.Settings(cpu_devices=layout.devices, intra_op_threads=1)
    path = os.pathsep.join(part for part in sys.path if part)
    environment = configuration.child_environment(settings, {**os.environ, "XLA_FLAGS": QUICK, "PYTHONPATH": path})
    with tempfile.TemporaryDirectory(prefix="dure-laws-") as folder:
        launcher = [sys.executable, "-c", "from dure.cli import main; main()", "run", "--workers", str(layout.workers)]
        program = ["-m", "laws.worker", folder, model, str(layout.workers), str(layout.devices)]
        done = subprocess.run(
            [*launcher, *program], check=False, env=environment, cwd=folder, capture_output=True, text=True, timeout=55
        )
        assert done.returncode == 0, done.stderr
        return [_read(Path(folder) / f"rank-{rank}.npz") for rank in range(layout.workers)]


def write(path: Path, told: dict[str, list[np.ndarray]]) -> None:
    """Writes what a process measured: the leaves of each answer under its name."""
    np.savez(path, **{f"{name}#{number}": leaf for name, leaves in told.items() for number, leaf in enumerate(leaves)})


def _read(path: Path) -> dict[str, list[np.ndarray]]:
    told: dict[str, list[np.ndarray]] = {}
    with np.load(path) as file:
        for key in file.files:
            told.setdefault(key.rpartition("#")[0], []).append(file[key])
    return told
