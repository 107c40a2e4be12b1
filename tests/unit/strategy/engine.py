"""A small network and its data, for tests of the runners."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dure.models.adapt import pure
from dure.models.model import Model
from dure.models.pure import Batch, PureModel

WIDTH, CLASSES = 6, 4


def forward(params: Any, x: Any, *, key: Any, training: bool) -> Any:
    """One layer on rows of any number type."""
    return x.astype(jnp.float32) @ params["w"]


def network(
    apply: Any = forward, optimizer: optax.GradientTransformation | None = None, metrics: Any = None
) -> PureModel:
    """A network of one layer."""
    return pure(
        Model(
            init=lambda key: {"w": jax.random.normal(key, (WIDTH, CLASSES))},
            apply=apply,
            loss=optax.softmax_cross_entropy_with_integer_labels,
            optimizer=optimizer or optax.sgd(0.1),
            metrics={"accuracy": "accuracy"} if metrics is None else metrics,
        )
    )


def rows(count: int, dtype: Any = np.float32, *, weighted: bool = False) -> Batch:
    """Rows with labels."""
    rng = np.random.default_rng(count)
    x = (rng.normal(size=(count, WIDTH)) * 20).astype(dtype)
    weight = rng.random(count, np.float32) if weighted else None
    return Batch(x, rng.integers(0, CLASSES, count).astype(np.int32), weight)


def steps(batch: Batch, size: int) -> Batch:
    """The same rows as steps `[steps, size, ...]`."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]), batch)


def in_order(count: int, size: int) -> np.ndarray:
    """Which held rows make each step: all, in order."""
    return np.arange(count, dtype=np.int32).reshape(-1, size)
