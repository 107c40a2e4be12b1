"""The adaptor of `dure.Model`: user functions become the pure steps that strategies trace."""

from __future__ import annotations

from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dure.errors import SpecError
from dure.models.labels import count_classes
from dure.models.metrics import Metric, Total, add, empty, named, value
from dure.models.model import Model
from dure.models.pure import Array, Batch, Outline, PyTree, TrainState
from dure.models.shapes import cast_like, count_rows, describe, explained, same_structure, specs
from dure.models.streams import decode, encode, next_key, seed_key, split_key, wrap

__all__ = ["Functions"]


@final
class Functions:
    """A `dure.Model` as a `PureModel`.

    Args:
        model: The user's functions.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.unmerged: tuple[str, ...] = ()
        """No metric: all are sums over the examples."""
        self._metrics: dict[str, Metric] = {
            name: named(metric) if isinstance(metric, str) else metric for name, metric in model.metrics.items()
        }

    def prepare(self, batch: Batch, *, predicting: bool = False) -> Outline:
        """Traces the network, the loss and the metrics on a batch's shapes; see `PureModel.prepare`."""
        batch = specs(batch)
        state = self._start_specs()
        with explained("the network cannot be applied to x", batch.x):
            outputs = jax.eval_shape(self.predict, state, batch.x)
        if predicting:
            return Outline(outputs, ())
        with explained("loss or metrics cannot take (outputs, targets)", (outputs, batch.y)):
            jax.eval_shape(self.measure, state, self.new_metrics(), batch)
        with explained("the network cannot be trained on x", batch.x):
            jax.eval_shape(self.gradients, state, self.new_metrics(), batch)
        return Outline(outputs, count_classes(self._model.loss, outputs, batch.y))

    def init(self, seed: int) -> TrainState:
        """A fresh state; the same seed gives the same numbers."""
        key = seed_key(seed)
        try:
            # As one program: what random numbers are made of, operation by operation, would be the peak of memory.
            made = jax.jit(self._start)(key)
        except TypeError:
            made = self._start(key)  # it cannot be traced
        state: TrainState = jax.tree.map(np.asarray, made)
        return state

    def reseed(self, state: TrainState, seed: int) -> TrainState:
        """Restarts the stream of keys that `apply` is given."""
        return state._replace(key=np.array(split_key(seed_key(seed))[1]))

    def gradients(self, state: TrainState, metrics: PyTree, batch: Batch) -> tuple[PyTree, PyTree, PyTree]:
        """Gradients of the mean loss, the network's new state, and the metrics with this batch added."""

        def objective(params: PyTree) -> tuple[Array, tuple[PyTree, PyTree, Array]]:
            outputs, model_state = self._forward(params, state, batch.x, training=True)
            losses = self._losses(outputs, batch)
            return jnp.mean(losses), (outputs, model_state, losses)

        grads, (outputs, model_state, losses) = jax.grad(objective, has_aux=True)(state.params)
        return grads, model_state, self._counted(metrics, outputs, losses, batch)

    def update(self, state: TrainState, grads: PyTree, model_state: PyTree) -> TrainState:
        """One step of the optimizer."""
        old = decode(state.opt_state)
        updates, opt_state = self._model.optimizer.update(grads, old, state.params)
        params = optax.apply_updates(state.params, updates)
        fresh = TrainState(params, model_state, encode(opt_state), next_key(state.key), state.step + 1)
        cast: TrainState = cast_like(fresh, state)
        return cast

    def new_metrics(self) -> PyTree:
        """Number of examples, and a running sum for the loss and for each metric."""
        return {
            "examples": np.zeros((), np.uint32),
            "sums": {name: empty() for name in ("loss", *self._metrics)},
        }

    def measure(self, state: TrainState, metrics: PyTree, batch: Batch) -> PyTree:
        """The metrics with this batch added, in evaluation mode."""
        outputs, _ = self._forward(state.params, state, batch.x, training=False)
        return self._counted(metrics, outputs, self._losses(outputs, batch), batch)

    def result(self, metrics: PyTree) -> dict[str, float]:
        """Means over all examples; NaN when there were none."""
        examples = int(metrics["examples"])
        sums: dict[str, Total] = metrics["sums"]
        names = ("loss", *self._metrics)
        return {name: float(value(sums[name])) / examples if examples else float("nan") for name in names}

    def predict(self, state: TrainState, x: PyTree) -> PyTree:
        """The network's outputs `[rows, ...]` in evaluation mode."""
        return self._forward(state.params, state, x, training=False)[0]

    def absorb(self, state: TrainState) -> None:
        """Nothing: a `dure.Model` holds no weights."""

    def refresh(self, state: TrainState) -> TrainState:
        """The state itself: there is no object that a callback could change."""
        return state

    def finish(self, state: TrainState) -> TrainState:
        """The state itself."""
        return state

    def _start_specs(self) -> TrainState:
        try:
            state: TrainState = jax.eval_shape(lambda: self._start(seed_key(0)))
        except TypeError:
            # An init that reads files or computes with NumPy cannot be traced: it is run for its shapes.
            state = specs(self._start(seed_key(0)))
        return state

    def _start(self, key: Array) -> TrainState:
        initial, stream = split_key(key)
        made = self._model.init(wrap(initial))
        params, model_state = _pair("init", "params", made) if self._model.has_state else (made, ())
        params, model_state = _arrays(params, "params"), _arrays(model_state, "state")
        _check_params(params)
        opt_state = _arrays(self._model.optimizer.init(params), "optimizer state")
        return TrainState(params, model_state, opt_state, stream, jnp.zeros((), jnp.int32))

    def _forward(self, params: PyTree, state: TrainState, x: PyTree, *, training: bool) -> tuple[PyTree, PyTree]:
        key = wrap(state.key)
        if not self._model.has_state:
            return self._model.apply(params, x, key=key, training=training), state.model_state
        made = self._model.apply(params, decode(state.model_state), x, key=key, training=training)
        outputs, model_state = _pair("apply", "outputs", made)
        model_state = encode(model_state)
        _check_state(model_state, state.model_state)
        return outputs, cast_like(model_state, state.model_state)

    def _losses(self, outputs: PyTree, batch: Batch) -> Array:
        losses = jnp.asarray(self._model.loss(outputs, batch.y))
        _check_each("loss", losses, outputs, batch)
        # At least float32, so that a narrow loss is averaged well; where the user computes in float64, that.
        losses = losses.astype(jnp.promote_types(losses.dtype, jnp.float32))
        return losses if batch.weight is None else losses * batch.weight

    def _counted(self, metrics: PyTree, outputs: PyTree, losses: Array, batch: Batch) -> PyTree:
        sums = dict(metrics["sums"])
        sums["loss"] = add(sums["loss"], jnp.sum(losses))
        for name, metric in self._metrics.items():
            values = jnp.asarray(metric(outputs, batch.y))
            _check_each(f"metric `{name}`", values, outputs, batch)
            sums[name] = add(sums[name], jnp.sum(values.astype(jnp.float32)))
        return {"examples": metrics["examples"] + np.uint32(count_rows(batch)), "sums": sums}


def _pair(name: str, first: str, made: Any) -> tuple[Any, Any]:
    if not isinstance(made, tuple) or len(made) != 2:
        raise SpecError(
            f"{name} returned a {type(made).__name__}, and with has_state=True it returns the pair "
            f"`({first}, state)`. Return both, or leave has_state out."
        )
    return made


def _arrays(tree: PyTree, what: str) -> PyTree:
    """Numbers as arrays of JAX's own width, random keys as their data; the rest is refused by name."""

    def convert(path: Any, leaf: Any) -> Array:
        if isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
            return jnp.asarray(leaf)
        raise SpecError(
            f"{what}{jax.tree_util.keystr(path)} is a {type(leaf).__name__}, and a state holds arrays only. "
            "Keep it outside: `equinox.partition(network, equinox.is_array)` and `flax.nnx.split` part them."
        )

    return jax.tree.map_with_path(convert, encode(tree))


def _check_params(params: PyTree) -> None:
    leaves = jax.tree.leaves_with_path(params)
    if not leaves:
        raise SpecError(f"init returned params without an array: {params!r}. Return what is to be trained.")
    for path, leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise SpecError(
                f"params{jax.tree_util.keystr(path)} is {leaf.dtype}{list(leaf.shape)}, and only floating "
                "arrays can be trained. Keep it out of params, or in the state of `has_state=True`."
            )


def _check_state(new: PyTree, old: PyTree) -> None:
    if not same_structure(new, old):
        raise SpecError(
            f"apply returned a state of structure {jax.tree.structure(new)}, and init's is "
            f"{jax.tree.structure(old)}. Return the same structure."
        )
    for (path, leaf), known in zip(jax.tree.leaves_with_path(new), jax.tree.leaves(old), strict=True):
        if jnp.shape(leaf) != known.shape:
            raise SpecError(
                f"apply returned state{jax.tree_util.keystr(path)} of shape {list(jnp.shape(leaf))}, and "
                f"init's is {list(known.shape)}. A state keeps its shapes."
            )


def _check_each(name: str, values: Array, outputs: PyTree, batch: Batch) -> None:
    rows = count_rows(batch)
    if values.shape == (rows,):
        return
    if values.ndim == 0:
        cure = "Dure takes the mean over the batch: leave `jnp.mean` or `jnp.sum` over axis 0 out of it"
    elif values.ndim > 1 and values.shape[0] == rows:
        axes = ", ".join(map(str, range(1, values.ndim)))
        cure = f"Take the mean over the further axes, `jnp.mean(values, axis=({axes},))`"
        if values.shape == (rows, rows) and rows > 1:
            cure += ", or give outputs and targets one shape: [batch] against [batch, 1] spreads to this"
    else:
        cure = "Return one number for each row of the batch"
    raise SpecError(
        f"{name} gave {describe(values)} for outputs {describe(outputs)} and targets {describe(batch.y)}, "
        f"and it gives one value an example, [{rows}]. {cure}."
    )
