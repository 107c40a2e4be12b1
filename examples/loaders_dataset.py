"""Trains from a `dure.data.Dataset`, and from a plain generator function.

Run: python loaders_dataset.py
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from loaders_model import make_model

import dure
from dure.data import Dataset


def main() -> None:
    """Trains the same network from both and prints what they reach."""
    (x, y), (x_test, y_test) = dure.data.load("digits")

    random = np.random.default_rng(0)

    def moved(row: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Moves an image by up to one pixel, another way each time."""
        image, label = row
        return np.roll(image, random.integers(-1, 2, 2), (0, 1)), label

    # Shuffled anew each epoch, changed row by row, made ahead in a thread while the devices work.
    dataset = Dataset.from_arrays(x, y).shuffle(seed=0).map(moved).batch(32).prefetch(8)

    # A function, not a generator: each epoch calls it for a new pass.
    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, len(x), 32):
            yield x[start : start + 32], y[start : start + 32]

    for name, data in {"dataset": dataset, "generator": batches}.items():
        with dure.SingleDevice() as strategy:
            trainer = dure.Trainer(make_model(), strategy)
            trainer.fit(data, epochs=10, seed=0, verbose=0)
            accuracy = trainer.evaluate(x_test, y_test, verbose=0)["accuracy"]
        print(f"{name}: accuracy {accuracy:.3f}")
        assert accuracy > 0.85, accuracy


if __name__ == "__main__":
    main()
