"""Keras networks of every kind that the adaptor must train as Keras does, each with its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np


class Case(NamedTuple):
    """A compiled network and data for it."""

    make: Callable[[], Any]
    x: Any
    y: Any
    weight: Any = None


ROWS = 60


def _data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(ROWS, *shape)).astype(np.float32)


def _labels(classes: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, classes, ROWS).astype(np.int32)


def _dense(**options: Any) -> Any:
    model = keras.Sequential(
        [
            keras.layers.Input((12,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    return _compiled(model, **options)


def _compiled(model: Any, **options: Any) -> Any:
    chosen = {"optimizer": "adam", "loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]}
    model.compile(**(chosen | options))
    return model


def _unbuilt() -> Any:
    return _compiled(keras.Sequential([keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(10, "softmax")]))


def _convolutional() -> Any:
    return _compiled(
        keras.Sequential(
            [
                keras.layers.Input((8, 8, 1)),
                keras.layers.Conv2D(4, 3, use_bias=False),
                keras.layers.BatchNormalization(),
                keras.layers.Activation("relu"),
                keras.layers.GaussianNoise(0.1),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(10),
            ]
        ),
        optimizer=keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["sparse_categorical_accuracy", keras.metrics.SparseTopKCategoricalAccuracy(3)],
    )


def _regularised() -> Any:
    model = keras.Sequential(
        [
            keras.layers.Input((12,)),
            keras.layers.Dense(16, "relu", kernel_regularizer=keras.regularizers.L2(0.01)),
            keras.layers.ActivityRegularization(l1=0.001),
            keras.layers.Dense(10, "softmax", bias_regularizer="l1", kernel_constraint="max_norm"),
        ]
    )
    return _compiled(model)


def _branched() -> Any:
    a, b = keras.Input((12,), name="a"), keras.Input((5,), name="b")
    hidden = keras.layers.Dense(16, "relu")(keras.layers.Concatenate()([a, b]))
    label = keras.layers.Dense(10, "softmax", name="label")(hidden)
    amount = keras.layers.Dense(2, name="amount")(hidden)
    model = keras.Model(inputs=[a, b], outputs=[label, amount])
    model.compile(
        optimizer=keras.optimizers.RMSprop(0.01),
        loss=["sparse_categorical_crossentropy", "mse"],
        loss_weights=[1.0, 0.3],
        metrics=[["accuracy"], ["mae"]],
        weighted_metrics=[["accuracy"], ["mse"]],
    )
    return model


def _named() -> Any:
    a = keras.Input((12,), name="a")
    hidden = keras.layers.Dense(16, "relu")(a)
    outputs = {
        "label": keras.layers.Dense(10, name="label")(hidden),
        "amount": keras.layers.Dense(2, name="amount")(hidden),
    }
    model = keras.Model(inputs={"a": a}, outputs=outputs)
    model.compile(
        optimizer="nadam",
        loss={"label": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "amount": "mae"},
        loss_weights={"label": 2.0, "amount": 0.5},
        metrics={"amount": ["mse", "r2_score"]},
    )
    return model


class Residual(keras.Model):
    """A subclassed model with a loss of its own, a metric of its own and an `add_loss`."""

    def __init__(self) -> None:
        super().__init__()
        self.first = keras.layers.Dense(12, activation="relu")
        self.normalise = keras.layers.BatchNormalization()
        self.drop = keras.layers.Dropout(0.3)
        self.last = keras.layers.Dense(1, activation="sigmoid")
        self.size = keras.metrics.Mean(name="size")

    def call(self, x: Any, training: bool = False) -> Any:
        """A residual block and an output between 0 and 1."""
        x = x + self.drop(self.normalise(self.first(x), training=training), training=training)
        self.add_loss(0.01 * keras.ops.mean(keras.ops.square(x)))
        return self.last(x)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Keras's metrics, and the mean of the outputs."""
        self.size.update_state(y_pred)
        return super().compute_metrics(x, y, y_pred, sample_weight)


def _subclassed() -> Any:
    model = Residual()
    model.compile(
        optimizer=keras.optimizers.AdamW(0.01, weight_decay=0.02),
        loss="binary_crossentropy",
        metrics=["accuracy", "precision", "auc", keras.metrics.F1Score(threshold=0.5)],
    )
    return model


def _frozen() -> Any:
    schedule = keras.optimizers.schedules.CosineDecay(0.05, decay_steps=5, warmup_target=0.1, warmup_steps=2)
    model = _dense()
    model.layers[0].trainable = False
    return _compiled(model, optimizer=keras.optimizers.SGD(schedule, momentum=0.5))


def _clipped() -> Any:
    return _dense(optimizer=keras.optimizers.SGD(0.1, clipnorm=0.1), weighted_metrics=["accuracy"])


def _averaged() -> Any:
    return _dense(optimizer=keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3))


def _accumulated() -> Any:
    return _dense(
        optimizer=keras.optimizers.Adam(0.01, gradient_accumulation_steps=2),
        loss=keras.losses.SparseCategoricalCrossentropy(reduction="sum"),
    )


def _mixed() -> Any:
    layers = [
        keras.layers.Input((12,)),
        keras.layers.Dense(16, "relu", dtype="mixed_float16"),
        keras.layers.Dense(10, "softmax", dtype="mixed_float16"),
    ]
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), dynamic_growth_steps=2)
    return _compiled(keras.Sequential(layers), optimizer=optimizer)


def _recurrent() -> Any:
    return _compiled(
        keras.Sequential(
            [
                keras.layers.Input((7,), dtype="int32"),
                keras.layers.Embedding(20, 8, mask_zero=True),
                keras.layers.LSTM(8, dropout=0.1),
                keras.layers.Dense(10, "softmax"),
            ]
        )
    )


_X, _Y = _data(12), _labels(10)
_WEIGHT = np.random.default_rng(9).uniform(0.1, 2.0, ROWS).astype(np.float32)

CASES: dict[str, Case] = {
    "dropout": Case(_dense, _X, _Y),
    "unbuilt, global clipnorm": Case(_unbuilt, _X, _Y),
    "batch normalisation, noise": Case(_convolutional, _data(8, 8, 1), _Y),
    "regularised": Case(_regularised, _X, _Y),
    "several outputs": Case(_branched, [_X, _data(5, seed=3)], [_Y, _data(2, seed=4)], _WEIGHT),
    "named outputs": Case(_named, {"a": _X}, {"label": _Y, "amount": _data(2, seed=4)}),
    "subclassed": Case(_subclassed, _X, (_X.sum(axis=1, keepdims=True) > 0).astype(np.float32)),
    "sample weights, clipnorm": Case(_clipped, _X, _Y, _WEIGHT),
    "frozen layers, schedule": Case(_frozen, _X, _Y),
    "moving average of weights": Case(_averaged, _X, _Y),
    "accumulated gradients": Case(_accumulated, _X, _Y),
    "mixed precision": Case(_mixed, _X, _Y),
    "masked sequences": Case(_recurrent, np.random.default_rng(5).integers(0, 20, (ROWS, 7)).astype(np.int32), _Y),
}
