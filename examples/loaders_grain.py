"""Trains a network of JAX from a Grain data set, as it is.

Run: python loaders_grain.py   (needs grain)
"""

from __future__ import annotations

import sys

try:
    import grain
except ImportError:
    sys.exit("this example needs grain: pip install grain")

from loaders_model import make_model

import dure


def main() -> None:
    """Trains on shuffled batches and prints the accuracy."""
    (x, y), (x_test, y_test) = dure.data.load("digits")
    data = grain.MapDataset.source(list(zip(x, y, strict=True))).shuffle(seed=0).batch(32)
    with dure.SingleDevice() as strategy:
        trainer = dure.Trainer(make_model(), strategy)
        trainer.fit(data, epochs=10, verbose=0)
        accuracy = trainer.evaluate(x_test, y_test, verbose=0)["accuracy"]
    print(f"grain: accuracy {accuracy:.3f}")
    assert accuracy > 0.85, accuracy


if __name__ == "__main__":
    main()
