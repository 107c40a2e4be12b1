"""Small networks that compile fast, and the data they learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dure
from dure import Model


def make_classifier(*, dropout: float = 0.0, features: int = 4, classes: int = 3, rate: float = 0.05) -> Model:
    """A dense network with one hidden layer, Adam, and dropout if asked."""

    def init(key):
        first, second = jax.random.split(key)
        return {
            "first": jax.random.normal(first, (features, 8)) * 0.5,
            "second": jax.random.normal(second, (8, classes)) * 0.5,
        }

    def apply(params, x, *, key, training):
        hidden = jnp.tanh(x.astype(jnp.float32) @ params["first"])
        if training and dropout:
            hidden = hidden * jax.random.bernoulli(key, 1 - dropout, hidden.shape) / (1 - dropout)
        return hidden @ params["second"]

    return Model(
        init=init,
        apply=apply,
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(rate),
        metrics={"accuracy": "accuracy"},
    )


def make_counter() -> Model:
    """A model whose weights count how often each row was trained on: row i is the unit vector i.

    The objective is the mean, so a step of b rows adds 1/b for each of them; the row's own number of copies
    in a weight of its own is read back by giving each row the weight b.
    """

    def apply(params, x, *, key, training):
        return x @ params["seen"]

    return Model(
        init=lambda key: {"seen": jnp.zeros(64)},
        apply=apply,
        loss=lambda outputs, targets: -outputs * targets,
        optimizer=optax.sgd(1.0),
    )


def make_echo() -> Model:
    """A model whose outputs are its inputs."""
    return Model(
        init=lambda key: {"w": jnp.ones(())},
        apply=lambda params, x, *, key, training: jax.tree.map(lambda leaf: leaf * params["w"], x),
        loss=lambda outputs, targets: jnp.zeros(jax.tree.leaves(outputs)[0].shape[0]) * targets,
        optimizer=optax.sgd(0.1),
    )


@pytest.fixture(scope="session")
def classifier() -> Callable[..., Model]:
    return make_classifier


@pytest.fixture
def counter() -> Model:
    return make_counter()


@pytest.fixture
def echo() -> Model:
    return make_echo()


@pytest.fixture
def single() -> Iterator[dure.SingleDevice]:
    with dure.SingleDevice() as strategy:
        yield strategy


@pytest.fixture(scope="session")
def data() -> tuple[np.ndarray, np.ndarray]:
    """37 rows of three classes that can be learnt."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 37)
    x = generator.normal(size=(37, 4)).astype(np.float32)
    x[np.arange(37), y] += 3
    return x, y
