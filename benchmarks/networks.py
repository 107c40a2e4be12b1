"""The networks that the benchmarks train, as plain JAX functions and as Keras models, and their data."""

import os
from typing import NamedTuple

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import jax.numpy as jnp
import numpy as np
import optax

import dure


class Case(NamedTuple):
    """A network, its batch, and how many rows of Fashion-MNIST an epoch has."""

    name: str
    batch: int
    rows: int


CASES = {
    "seed": Case("seed", 25, 25 * 2000),
    "large": Case("large", 256, 256 * 24),
    "conv": Case("conv", 64, 64 * 150),
}
SIZES = {"seed": (784, 128, 10), "large": (784, 2048, 2048, 10)}


def data(case):
    """Rows of Fashion-MNIST: x float32 `[rows, 784]` or `[rows, 28, 28, 1]` in 0..1, y int32 `[rows]`."""
    (x, y), _ = dure.data.load("fashion_mnist")
    x, y = np.resize(x, (case.rows, 28, 28)), np.resize(y, case.rows).astype(np.int32)
    x = (x / 255.0).astype(np.float32)
    return (x[..., None] if case.name == "conv" else x.reshape(-1, 784)), y


def functions(name):
    """(init, apply): the network without dropout, so that every hand-written form gives its numbers."""
    if name == "conv":
        return conv_init, conv_apply
    sizes = SIZES[name]

    def init(key):
        keys = jax.random.split(key, len(sizes) - 1)
        shapes = zip(keys, sizes[:-1], sizes[1:], strict=True)
        return [{"w": jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, "b": jnp.zeros(b)} for k, a, b in shapes]

    def apply(params, x, *, key, training):
        for layer in params[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
        return x @ params[-1]["w"] + params[-1]["b"]

    return init, apply


def conv_init(key):
    a, b, c = jax.random.split(key, 3)
    return {
        "a": jax.random.normal(a, (3, 3, 1, 16)) * 0.3,
        "b": jax.random.normal(b, (3, 3, 16, 32)) * 0.1,
        "w": jax.random.normal(c, (7 * 7 * 32, 10)) * 0.03,
        "bias": jnp.zeros(10),
    }


def conv_apply(params, x, *, key, training):
    for name in "ab":
        x = jax.lax.conv_general_dilated(x, params[name], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(len(x), -1) @ params["w"] + params["bias"]


losses = optax.softmax_cross_entropy_with_integer_labels


def jax_model(name):
    """The network for `dure.Trainer`."""
    init, apply = functions(name)
    return dure.Model(init=init, apply=apply, loss=losses, optimizer=optax.adam(1e-3))


def keras_model(name, **options):
    """The network in Keras, compiled; the seed network with its dropout."""
    import keras

    layers = keras.layers
    keras.utils.set_random_seed(0)
    body = {
        "seed": lambda: [
            layers.Input((784,)),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.2),
        ],
        "large": lambda: [
            layers.Input((784,)),
            layers.Dense(2048, activation="relu"),
            layers.Dense(2048, activation="relu"),
        ],
        "conv": lambda: [
            layers.Input((28, 28, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
        ],
    }[name]()
    model = keras.Sequential([*body, layers.Dense(10, activation="softmax")])
    model.compile(
        optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["sparse_categorical_accuracy"], **options
    )
    return model
