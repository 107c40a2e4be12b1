"""Keras's layers, through the real adaptor: gradients, new state and metrics are those of one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import keras
import numpy as np
import pytest
from keras import layers

from dure.models.adapt import pure
from dure.models.pure import Batch
from unit.strategy.replicas import QUICK, equals_the_whole

# Of five rows four replicas have two, two, one and none.
ROWS, REPLICAS = 5, 4


class Case(NamedTuple):
    """A network and what goes in.

    Attributes:
        body: layers between the input and the classes.
        shape: a row's.
        options: of `compile`.
    """

    body: Callable[[], list[Any]]
    shape: tuple[int, ...] = (8, 3)
    dtype: str = "float32"
    options: dict[str, Any] = {}  # noqa: RUF012  # of a tuple that nothing changes


def _images() -> list[Any]:
    return [
        layers.Conv2D(4, 3, padding="same", use_bias=False),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.MaxPooling2D(),
        layers.DepthwiseConv2D(3, padding="same"),
        layers.SeparableConv2D(6, 2),
        layers.GroupNormalization(2),
        layers.SpatialDropout2D(0.3),
        layers.Conv2DTranspose(4, 3, strides=2),
        layers.AveragePooling2D(2),
        layers.UpSampling2D(),
        layers.GlobalMaxPooling2D(),
    ]


class Attention(layers.Layer):
    """Rows that look at themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = layers.MultiHeadAttention(2, 4, dropout=0.2)

    def build(self, shape: Any) -> None:
        """Builds what it is made of."""
        self.attend.build(shape, shape)

    def call(self, x: Any, training: bool = False) -> Any:
        """Attends."""
        return self.attend(x, x, training=training)


CASES: dict[str, Case] = {
    "images": Case(_images, (8, 8, 1)),
    "recurrent": Case(
        lambda: [
            layers.Bidirectional(layers.GRU(4, return_sequences=True)),
            layers.LayerNormalization(),
            layers.LSTM(5, dropout=0.2, recurrent_dropout=0.1),
        ]
    ),
    "attention": Case(
        lambda: [
            layers.Conv1D(4, 3, padding="causal", activation="gelu"),
            Attention(),
            layers.UnitNormalization(),
            layers.Flatten(),
            layers.GaussianNoise(0.1),
        ],
        options={"metrics": ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(3)]},
    ),
    "sequences of words": Case(
        lambda: [
            layers.Embedding(20, 6, mask_zero=True),
            layers.SpatialDropout1D(0.2),
            layers.GlobalAveragePooling1D(),
        ],
        shape=(8,),
        dtype="int32",
    ),
    "regularised": Case(
        lambda: [
            layers.Flatten(),
            layers.Dense(8, kernel_regularizer="l2", activity_regularizer="l1"),
            layers.BatchNormalization(momentum=0.8),
            layers.AlphaDropout(0.2),
            layers.PReLU(),
        ],
        options={"weighted_metrics": ["accuracy"]},
    ),
}


def compiled(case: Case) -> Any:
    """The case's network, compiled."""
    keras.utils.set_random_seed(3)
    entrance = layers.Input(case.shape, dtype=case.dtype)
    model = keras.Sequential([entrance, *case.body(), layers.Dense(4, activation="softmax")])
    model.compile("sgd", **({"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]} | case.options))
    return model


def rows_for(case: Case) -> Batch:
    """Rows with labels and sample weights."""
    rng = np.random.default_rng(5)
    shape = (ROWS, *case.shape)
    x = rng.integers(0, 20, shape) if case.dtype == "int32" else rng.normal(size=shape)
    return Batch(x.astype(case.dtype), rng.integers(0, 4, ROWS).astype(np.int32), rng.random(ROWS, np.float32))


@pytest.mark.parametrize("name", CASES)
def test_a_step_of_keras_layers_is_that_of_one_device(name: str) -> None:
    case = CASES[name]
    model, rows = pure(compiled(case)), rows_for(case)
    model.prepare(rows)
    state = model.init(0)
    # The gradient of an attention's key bias is zero, and rounding makes it 1e-9.
    found = equals_the_whole(model.gradients, state, rows, REPLICAS, sums=model.new_metrics(), noise=1e-8)
    assert found.computed_whole == []


def test_evaluation_of_keras_metrics_is_that_of_one_device() -> None:
    options = {"metrics": ["accuracy"], "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy()]}
    case = Case(lambda: [layers.Flatten(), layers.BatchNormalization(), layers.Dropout(0.5)], options=options)
    model, rows = pure(compiled(case)), rows_for(case)
    model.prepare(rows)
    state = model.init(0)
    found = equals_the_whole(model.measure, state, rows, REPLICAS, sums=model.new_metrics())
    assert found.exchanged == []  # each replica counts its own, and nothing is exchanged
    expected = jax.jit(model.measure, compiler_options=QUICK)(state, model.new_metrics(), rows)
    metrics = jax.tree.unflatten(jax.tree.structure(expected), found.values)
    assert model.result(metrics) == pytest.approx(model.result(expected), rel=1e-6)
