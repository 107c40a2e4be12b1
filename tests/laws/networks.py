"""Networks that show what a strategy does with each example: masks, counts, statistics and gradients."""

from __future__ import annotations

from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dure.models.adapt import pure
from dure.models.model import Model
from dure.models.pure import Batch, PureModel, PyTree, TrainState

EXAMPLES = 200
UNITS = 16


def data(dtype: Any = np.float32) -> Batch:
    """Examples that carry their own number: x has "value" `[n, 12]` and "id" `[n]`; labels of ten classes; weights."""
    rng = np.random.default_rng(7)
    x = {"value": rng.normal(size=(EXAMPLES, 12)).astype(dtype), "id": np.arange(EXAMPLES, dtype=np.int32)}
    labels = rng.integers(0, 10, EXAMPLES).astype(np.int32)
    return Batch(x, labels, rng.uniform(0.1, 2.0, EXAMPLES).astype(np.float32))


def keeping_gradients() -> optax.GradientTransformation:
    """Passes gradients on and keeps the last ones as its state."""
    return optax.GradientTransformation(
        lambda params: jax.tree.map(jnp.zeros_like, params), lambda updates, _, params=None: (updates, updates)
    )


def _init(key: Any) -> Any:
    first, second = jax.random.split(key)
    return {
        "first": jax.random.normal(first, (12, UNITS)) * 0.3,
        "scale": jnp.ones(UNITS),
        "shift": jnp.zeros(UNITS),
        "second": jax.random.normal(second, (UNITS, 10)) * 0.3,
    }


def _dropped(key: Any, hidden: Any) -> tuple[Any, Any]:
    kept = jax.random.bernoulli(key, 0.75, hidden.shape).astype(hidden.dtype)
    return hidden * kept / 0.75, kept


def _normalised(params: Any, state: Any, x: Any, *, key: Any, training: bool) -> Any:
    hidden = x["value"] @ params["first"]
    mean, var = state["mean"], state["var"]
    if training:
        mean = hidden.mean(0)
        var = jnp.square(hidden - mean).mean(0)
        state |= {"mean": 0.9 * state["mean"] + 0.1 * mean, "var": 0.9 * state["var"] + 0.1 * var}
    hidden = (hidden - mean) * jax.lax.rsqrt(var + 1e-3) * params["scale"] + params["shift"]
    if training:
        hidden, mask = _dropped(key, hidden)
        state |= {"masks": state["masks"].at[x["id"]].add(mask)}
    return jnp.tanh(hidden) @ params["second"], state


def normalised() -> PureModel:
    """Batch normalisation and dropout, trained with Adam; the state holds moving averages and each example's masks."""

    def init(key: Any) -> Any:
        state = {"mean": jnp.zeros(UNITS), "var": jnp.ones(UNITS), "masks": jnp.zeros((EXAMPLES, UNITS))}
        return _init(key), state

    optimizer = optax.chain(keeping_gradients(), optax.adam(1e-2))
    return Counted(_model(init=init, apply=_normalised, optimizer=optimizer, has_state=True))


def plain() -> PureModel:
    """Dropout alone, trained with plain gradient descent: what local SGD can train to the same numbers."""

    def apply(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        hidden = (x["value"] @ params["first"]) * params["scale"] + params["shift"]
        if training:
            hidden, _ = _dropped(key, hidden)
        return jnp.tanh(hidden) @ params["second"]

    return Counted(_model(init=_init, apply=apply, optimizer=optax.sgd(0.1)))


def of_keras() -> PureModel:
    """Convolution, batch normalisation and dropout of Keras, trained with its Adam."""
    import keras  # slow, and not needed by the process that trains in float64

    keras.utils.set_random_seed(3)
    layers = [
        keras.layers.Input((12,)),
        keras.layers.Reshape((12, 1)),
        keras.layers.Conv1D(4, 3, use_bias=False),
        keras.layers.BatchNormalization(),
        keras.layers.ReLU(),
        keras.layers.Dropout(0.25),
        keras.layers.Flatten(),
        keras.layers.Dense(10, kernel_regularizer="l2"),
    ]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], weighted_metrics=["accuracy"])
    return pure(model)


def _model(**parts: Any) -> PureModel:
    loss = optax.softmax_cross_entropy_with_integer_labels
    return pure(Model(loss=loss, metrics={"accuracy": "accuracy"}, **parts))


@final
class Counted:
    """A model that also counts how often each example was seen.

    Args:
        model: what it trains; its batches have an "id" in `x`.
    """

    def __init__(self, model: PureModel) -> None:
        self._model = model
        self.unmerged = model.unmerged
        for name in ("prepare", "init", "reseed", "update", "absorb", "refresh", "finish"):
            setattr(self, name, getattr(model, name))

    def gradients(self, state: TrainState, metrics: PyTree, batch: Batch) -> Any:
        """As the model's, with the batch counted."""
        grads, model_state, inner = self._model.gradients(state, metrics["inner"], batch)
        return grads, model_state, self._counted(metrics, inner, batch)

    def measure(self, state: TrainState, metrics: PyTree, batch: Batch) -> PyTree:
        """As the model's, with the batch counted."""
        return self._counted(metrics, self._model.measure(state, metrics["inner"], batch), batch)

    def new_metrics(self) -> PyTree:
        """The model's, and no example seen."""
        return {"inner": self._model.new_metrics(), "seen": np.zeros(EXAMPLES, np.int32)}

    def result(self, metrics: PyTree) -> dict[str, Any]:
        """The model's, and how often each example was seen under "seen"."""
        return self._model.result(metrics["inner"]) | {"seen": np.asarray(metrics["seen"])}

    def predict(self, state: TrainState, x: PyTree) -> PyTree:
        """As the model's."""
        return self._model.predict(state, x)

    def _counted(self, metrics: PyTree, inner: PyTree, batch: Batch) -> PyTree:
        return {"inner": inner, "seen": metrics["seen"].at[batch.x["id"]].add(1)}
