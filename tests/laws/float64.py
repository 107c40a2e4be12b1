"""Trains in float64, in a process of its own: there the numbers agree to 1e-12. Prints the batch sizes that it tried."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

from dure.strategy.mirrored import Mirrored, SingleDevice
from laws.networks import normalised
from laws.strategies import BATCHES, Row, close, train


def main() -> None:
    """Compares eight replicas with one device."""
    for batch in (37, 9):
        rows = [Row(make, normalised, BATCHES) for make in (SingleDevice, lambda: Mirrored(num_devices=8))]
        single, mirrored = (train(row, batch).last for row in rows)
        assert {leaf.dtype for leaf in jax.tree.leaves(single.params)} == {np.dtype(np.float64)}, single.params
        assert jnp.ones(1).dtype == np.float64
        close(mirrored, single, 1e-12)
        print(batch)


if __name__ == "__main__":
    main()
