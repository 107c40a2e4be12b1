"""A dozen steps by name, and the text of how each is split. Run as a program, it writes the golden files anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dure.models.adapt import pure
from dure.models.model import Model
from dure.models.pure import Batch, PureModel
from dure.strategy.show import show

FOLDER = Path(__file__).with_name("split_steps")
ROWS, REPLICAS = 37, 4
Forward = Callable[..., Any]


def _weights(**shapes: tuple[int, ...]) -> Callable[[Any], Any]:
    return lambda key: {name: jax.random.normal(key, shape) for name, shape in shapes.items()}


def _model(init: Callable[[Any], Any], apply: Forward, **options: Any) -> PureModel:
    settings = {
        "loss": optax.softmax_cross_entropy_with_integer_labels,
        "optimizer": optax.sgd(0.1),
        "metrics": {"accuracy": "accuracy"},
    }
    return pure(Model(init=init, apply=apply, **(settings | options)))


def dense() -> PureModel:
    """A hidden layer."""

    def apply(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        return jax.nn.relu(x @ params["first"]) @ params["second"]

    return _model(_weights(first=(8, 6), second=(6, 10)), apply)


def dropout() -> PureModel:
    """A mask of the full batch's draw."""

    def apply(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        if training:
            x = jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0)
        return x @ params["w"]

    return _model(_weights(w=(8, 10)), apply)


def own_keys() -> PureModel:
    """A mask of each row's own key, as with a network written for one example."""

    def apply(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        def one(key: Any, row: Any) -> Any:
            return row * jax.random.bernoulli(key, 0.5, row.shape) @ params["w"]

        return jax.vmap(one)(jax.random.split(key, len(x)), x)

    return _model(_weights(w=(8, 10)), apply)


def batch_normalisation() -> PureModel:
    """Statistics over all rows, and their moving averages."""

    def apply(params: Any, state: Any, x: Any, *, key: Any, training: bool) -> Any:
        hidden = x @ params["first"]
        mean, var = (hidden.mean(0), hidden.var(0)) if training else (state["mean"], state["var"])
        state = {"mean": 0.9 * state["mean"] + 0.1 * mean, "var": 0.9 * state["var"] + 0.1 * var}
        return (hidden - mean) * jax.lax.rsqrt(var + 1e-3) @ params["second"], state

    weights = _weights(first=(8, 6), second=(6, 10))
    state = {"mean": jnp.zeros(6), "var": jnp.ones(6)}
    return _model(lambda key: (weights(key), state), apply, has_state=True)


def convolution() -> PureModel:
    """A kernel over the eight places of a row, and the largest of each two."""

    def apply(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        numbers = ("NWC", "WIO", "NWC")
        hidden = jax.lax.conv_general_dilated(x[..., None], params["kernel"], (1,), "SAME", dimension_numbers=numbers)
        pooled = jax.lax.reduce_window(hidden, -jnp.inf, jax.lax.max, (1, 2, 1), (1, 2, 1), "VALID")
        return pooled.reshape(len(x), -1) @ params["w"]

    return _model(_weights(kernel=(3, 1, 4), w=(16, 10)), apply)


def recurrent() -> PureModel:
    """A loop over the places of a row."""

    def apply(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        def one(state: Any, element: Any) -> tuple[Any, None]:
            return jnp.tanh(state @ params["state"] + element[:, None] * params["input"]), None

        last, _ = jax.lax.scan(one, jnp.zeros((len(x), 5)), x.T)
        return last @ params["w"]

    return _model(_weights(state=(5, 5), input=(5,), w=(5, 10)), apply)


def statistics_in_a_loop() -> PureModel:
    """A loop that exchanges in every turn."""

    def apply(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        def one(hidden: Any, weight: Any) -> tuple[Any, None]:
            hidden = jnp.tanh(hidden @ weight)
            return hidden - hidden.mean(0), None

        return jax.lax.scan(one, x, params["layers"])[0] @ params["w"]

    return _model(_weights(layers=(3, 8, 8), w=(8, 10)), apply)


def embedding() -> PureModel:
    """A look-up by each row's numbers."""

    def apply(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        places = jnp.clip(jnp.abs(x * 4).astype(jnp.int32), 0, 19)
        return params["table"][places].mean(1) @ params["w"]

    return _model(_weights(table=(20, 6), w=(6, 10)), apply)


def attention() -> PureModel:
    """The places of a row that look at one another."""

    def apply(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        places = x[:, :, None] * params["place"]
        scores = jnp.einsum("bsd,btd->bst", places @ params["query"], places)
        return jnp.einsum("bst,btd->bd", jax.nn.softmax(scores), places) @ params["w"]

    return _model(_weights(place=(6,), query=(6, 6), w=(6, 10)), apply)


def contrast() -> PureModel:
    """Every row against every other."""

    def apply(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        return x @ params["w"]

    def loss(outputs: Any, targets: Any) -> Any:
        likeness = outputs @ outputs.T
        return optax.softmax_cross_entropy_with_integer_labels(likeness, jnp.arange(len(outputs)))

    return _model(_weights(w=(8, 10)), apply, loss=loss)


def mixed_rows() -> PureModel:
    """Each row blended with another."""

    def apply(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        if training:
            x = 0.7 * x + 0.3 * x[jax.random.permutation(key, len(x))]
        return x @ params["w"]

    return _model(_weights(w=(8, 10)), apply)


def ranked() -> PureModel:
    """Rows put in order: no rule splits that."""

    def apply(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        hidden = x @ params["w"]
        return hidden + jnp.sort(hidden, axis=0)

    return _model(_weights(w=(8, 10)), apply)


def weighted() -> PureModel:
    """Sample weights, and a penalty that has no rows."""

    def apply(params: Any, state: Any, x: Any, *, key: Any, training: bool) -> Any:
        return x @ params["w"], {"size": jnp.square(params["w"]).sum() + state["size"] * 0}

    weights = _weights(w=(8, 10))
    return _model(lambda key: (weights(key), {"size": jnp.zeros(())}), apply, has_state=True)


MODELS = [dense, dropout, own_keys, batch_normalisation, convolution, recurrent, statistics_in_a_loop]
MODELS += [embedding, attention, contrast, mixed_rows, ranked, weighted]
STEPS = {make.__name__: make for make in MODELS}


def text_of(name: str) -> str:
    """How a training step and an evaluation step of a named network are split."""
    model = STEPS[name]()
    weight = jax.ShapeDtypeStruct((ROWS,), np.float32) if name == "weighted" else None
    batch = Batch(jax.ShapeDtypeStruct((ROWS, 8), np.float32), jax.ShapeDtypeStruct((ROWS,), np.int32), weight)
    inputs = {"whole_in": model.init(0), "partial_in": model.new_metrics(), "rows_in": batch}
    trained = show(model.gradients, REPLICAS, **inputs, names=("gradient", "state", "metrics"))
    measured = show(model.measure, REPLICAS, **inputs, names=("metrics",))
    return f"TRAIN\n{trained}\n\nMEASURE\n{measured}\n"


if __name__ == "__main__":
    for name in STEPS:
        (FOLDER / f"{name}.txt").write_text(text_of(name), encoding="utf-8")
