"""Trains a network of JAX from a `tf.data.Dataset`, as it is.

Run: python loaders_tf.py   (needs tensorflow, for its data sets alone)
"""

from __future__ import annotations

import sys

try:
    import tensorflow as tf
except ImportError:
    sys.exit("this example needs tensorflow: pip install tensorflow")

from loaders_model import make_model

import dure


def main() -> None:
    """Trains on shuffled batches, an endless stream cut into epochs, and prints the accuracy."""
    (x, y), (x_test, y_test) = dure.data.load("digits")
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(2_000, seed=0).batch(32).prefetch(2)
    with dure.SingleDevice() as strategy:
        trainer = dure.Trainer(make_model(), strategy)
        trainer.fit(data.repeat(), epochs=10, steps_per_epoch=45, verbose=0)
        accuracy = trainer.evaluate(x_test, y_test, verbose=0)["accuracy"]
    print(f"tf.data: accuracy {accuracy:.3f}")
    assert accuracy > 0.85, accuracy


if __name__ == "__main__":
    main()
