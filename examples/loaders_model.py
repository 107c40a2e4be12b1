"""The small network that the examples of loaders train, in plain JAX: 8x8 images of digits, ten classes."""

from __future__ import annotations

import jax
import optax

import dure


def make_model() -> dure.Model:
    """Returns a network of one hidden layer for images [rows, 8, 8] with values 0 to 16."""

    def init(key: jax.Array) -> dict[str, jax.Array]:
        hidden, out = jax.random.split(key)
        return {
            "hidden": jax.random.normal(hidden, (64, 64)) * (2 / 64) ** 0.5,
            "out": jax.random.normal(out, (64, 10)) * (1 / 64) ** 0.5,
        }

    def apply(params: dict[str, jax.Array], x: jax.Array, *, key: jax.Array, training: bool) -> jax.Array:
        del key, training  # no dropout here
        pixels = x.reshape(x.shape[0], 64) / 16.0
        return jax.nn.relu(pixels @ params["hidden"]) @ params["out"]

    return dure.Model(
        init=init,
        apply=apply,
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(3e-3),
        metrics={"accuracy": "accuracy"},
    )
