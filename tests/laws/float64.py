"""Trains in float64, in a process of its own: there the numbers agree to 1e-12. Prints how many leaves it compared."""

from __future__ import annotations

import functools

import jax
import numpy as np

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

from dure.strategy.mirrored import Mirrored, SingleDevice
from laws.bench import Row, train
from laws.networks import normalised
from laws.strategies import close


def main() -> None:
    """Compares eight replicas with one device."""
    # Of 9 rows eight replicas have two, one or none.
    rows = [Row(make, normalised) for make in (SingleDevice, functools.partial(Mirrored, num_devices=8))]
    single, mirrored = (train(row, 9).last for row in rows)
    close(mirrored, single, 1e-12)
    print(sum(leaf.dtype == np.float64 for leaf in jax.tree.leaves(mirrored)))


if __name__ == "__main__":
    main()
