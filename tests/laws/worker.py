"""The program of a process of a layout: measures all of its rows, and leaves the numbers where `across` reads them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jax
import numpy as np

import dure
from laws.across import Layout, write
from laws.bench import measured
from laws.strategies import KERAS, SELDOM, STRATEGIES


def main(folder: str, model: str, workers: str, devices: str) -> None:
    """Measures the rows of a layout that train a network."""
    # The first strategy joins the processes, before a model opens JAX's devices.
    first = dure.MultiWorkerMirrored()
    rank = int(os.environ["DURE_TASK"].rpartition(":")[2])
    layout = Layout(int(workers), int(devices))
    assert (first.num_workers, first.num_replicas) == (layout.workers, layout.replicas)
    told = {
        f"{row.name}: {ask}": [np.asarray(leaf) for leaf in jax.tree.leaves(found)]
        for row in (*STRATEGIES.values(), *SELDOM.values(), *KERAS.values())
        if row.layout == layout and row.model.__name__ == model
        for ask, found in measured(row).items()
    }
    write(Path(folder) / f"rank-{rank}.npz", told)


if __name__ == "__main__":
    main(*sys.argv[1:])
