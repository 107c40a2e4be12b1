"""A convolutional Keras network with batch normalisation: one device, then mirrored from the saved file.

Run: python keras_convolution.py
"""

import os
import tempfile
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"

import keras

import dure


def make_model() -> keras.Model:
    """A compiled network for images of digits, 8x8."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Rescaling(1 / 16),
            keras.layers.Conv2D(16, 3, padding="same", kernel_regularizer=keras.regularizers.L2(1e-4)),
            keras.layers.BatchNormalization(),
            keras.layers.Activation("relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.25),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.01, global_clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def main(epochs: int = 8) -> float:
    """Trains for half of the epochs on one device, saves, and goes on mirrored; returns the test accuracy."""
    (x, y), (x_test, y_test) = dure.data.load("digits")
    x, x_test = x[..., None], x_test[..., None]
    model = make_model()
    with dure.SingleDevice() as strategy, dure.Trainer(model, strategy) as trainer:
        trainer.fit(x, y, epochs=epochs // 2, batch_size=50, seed=0, verbose=0)
    # After `fit` the Keras model holds the weights and the optimizer's state: all of Keras works on it.
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "digits.keras")
        model = keras.saving.load_model(Path(folder) / "digits.keras")

    slower = keras.callbacks.LearningRateScheduler(lambda _, rate: rate * 0.8)
    with dure.Mirrored(num_devices=2) as strategy, dure.Trainer(model, strategy) as trainer:
        trainer.fit(x, y, epochs=epochs // 2, batch_size=50, seed=1, callbacks=[slower], verbose=0)
        accuracy = trainer.evaluate(x_test, y_test, verbose=0)["accuracy"]
    print(f"accuracy {accuracy:.3f} at a learning rate of {float(model.optimizer.learning_rate.value):.4f}")
    return accuracy


if __name__ == "__main__":
    dure.configure(cpu_devices=2)
    main()
