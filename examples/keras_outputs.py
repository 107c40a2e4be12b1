"""A subclassed Keras network with two outputs, a loss for each, sample weights and a metric of its own.

Run: python keras_outputs.py
"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

import dure


class Reader(keras.Model):
    """Reads a digit and says how much ink it is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(48, activation="relu")
        self.digit = keras.layers.Dense(10, activation="softmax", name="digit")
        self.ink = keras.layers.Dense(1, name="ink")
        self.certainty = keras.metrics.Mean(name="certainty")

    def call(self, x: keras.KerasTensor) -> dict[str, keras.KerasTensor]:
        """Images `[batch, 64]` to scores and amounts; a penalty keeps the hidden layer sparse."""
        hidden = self.hidden(x)
        self.add_loss(1e-3 * keras.ops.mean(hidden))
        return {"digit": self.digit(hidden), "ink": self.ink(hidden)}

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """The metrics given to `compile`, and the certainty of the scores."""
        self.certainty.update_state(keras.ops.max(y_pred["digit"], axis=-1))
        return super().compute_metrics(x, y, y_pred, sample_weight)


def make_model() -> keras.Model:
    """The compiled network; its layers are built from the data."""
    keras.utils.set_random_seed(0)
    model = Reader()
    model.compile(
        optimizer=keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.01, 100, 0.9)),
        loss={"digit": "sparse_categorical_crossentropy", "ink": "mse"},
        loss_weights={"digit": 1.0, "ink": 0.5},
        metrics={"digit": ["accuracy"], "ink": ["mae"]},
    )
    return model


def main(epochs: int = 10) -> dict[str, float]:
    """Trains mirrored over two devices, rare digits counting more; returns the results on the test images."""
    (x, y), (x_test, y_test) = dure.data.load("digits")
    x, x_test = x.reshape(len(x), -1) / 16.0, x_test.reshape(len(x_test), -1) / 16.0
    targets = {"digit": y, "ink": x.mean(axis=1, keepdims=True)}
    test_targets = {"digit": y_test, "ink": x_test.mean(axis=1, keepdims=True)}
    weight = (len(y) / 10 / np.bincount(y, minlength=10))[y]
    with dure.Mirrored(num_devices=2) as strategy, dure.Trainer(make_model(), strategy) as trainer:
        trainer.fit(x, targets, sample_weight=weight, epochs=epochs, batch_size=50, seed=0, verbose=0)
        results = trainer.evaluate(x_test, test_targets, verbose=0)
    print(", ".join(f"{name} {number:.3f}" for name, number in results.items()))
    return results


if __name__ == "__main__":
    dure.configure(cpu_devices=2)
    main()
