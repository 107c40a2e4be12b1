"""The adaptor of compiled Keras 3 models on the JAX backend; imported only for such a model.

It follows Keras's own JAX trainer step by step through its stateless methods, so that the numbers are those
of `model.fit`. What differs: metrics are summed without rounding (see `dure.models.metrics`), and evaluation
does not move the seed generators on.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src.trainers.compile_utils import CompileMetrics

from dure.errors import SpecError
from dure.models.accept import check_built, check_compiled
from dure.models.merge import is_running_sum
from dure.models.metrics import Total, add, empty, value
from dure.models.pure import Array, Batch, Outline, PyTree, TrainState
from dure.models.shapes import cast_like, count_rows, explained, same_structure, specs
from dure.models.streams import seed_key

__all__ = ["KerasModel", "adapt_keras"]


def adapt_keras(model: Any) -> KerasModel:
    """The pure functions of a compiled Keras model.

    Args:
        model: An object whose class comes from Keras.

    Raises:
        SpecError: It cannot be trained as it is; the message shows the line that mends it.
    """
    check_compiled(model)
    return KerasModel(model)


class _Kind(Enum):
    """How a metric variable grows from batch to batch."""

    SUM = auto()  # floating, by addition: kept as a pair without rounding
    COUNT = auto()  # whole numbers, by addition
    OPAQUE = auto()  # of a user's own metric class: handed on from batch to batch as it is
    UNUSED = auto()  # of Keras's tracker of the loss, whose place `_Tally.loss` takes


class _Tally(NamedTuple):
    """Metrics in the making.

    Attributes:
        loss: Sum over the examples.
        examples: How many there were, uint32.
        variables: For each of Keras's metric variables a `Total`, an array, or `()`, by its kind.
    """

    loss: Total
    examples: Array
    variables: list[PyTree]


@final
class KerasModel:
    """A compiled Keras model as a `PureModel`.

    Args:
        model: Compiled, on the JAX backend; unbuilt is fine, `prepare` builds it from the data's shapes.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        # The values last seen in the Keras model, to tell what a callback assigned.
        self._seen: list[Any] = []
        self.unmerged: tuple[str, ...] = ()
        """Metrics of a user's own class that do more than add, as a largest value does."""

    def prepare(self, batch: Batch, *, predicting: bool = False) -> Outline:
        """Builds layers, metrics and optimizer as `model.fit` would, and traces a step."""
        model, batch = self._model, specs(batch)
        given = batch.x if predicting else tuple(batch)
        with explained(f"Keras model `{model.name}` cannot be built for this data", given):
            if not predicting:
                model._symbolic_build(data_batch=given)
            elif not all(layer.built for layer in model._flatten_layers()):
                model(jax.tree.map(lambda leaf: keras.KerasTensor(leaf.shape, str(leaf.dtype)), given))
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        check_built(model)
        state = specs(self._state())
        with explained(f"Keras model `{model.name}` cannot take x", batch.x):
            outputs = jax.eval_shape(self.predict, state, batch.x)
        if predicting:
            return Outline(outputs, ())
        with explained(f"Keras model `{model.name}` cannot be trained on this data", given):
            jax.eval_shape(self.gradients, state, self.new_metrics(), batch)
        self.unmerged = self._find_unmerged(state, batch)
        return Outline(outputs, _count_classes(model, outputs, batch.y))

    def init(self, seed: int) -> TrainState:
        """Copies of the model's values: an engine donates its arrays, which would delete Keras's own."""
        del seed  # Keras drew the weights when the model was built
        self._seen = [variable.value for variable in self._variables()]
        state: TrainState = jax.tree.map(np.array, self._state())
        return state

    def reseed(self, state: TrainState, seed: int) -> TrainState:
        """Restarts every seed generator from the seed and the generator's place among them."""
        words = [int(word) for word in seed_key(seed)]
        leaves, place = list(state.model_state), 0
        for index, variable in enumerate(self._model.non_trainable_variables):
            if variable.name == "seed_generator_state" and tuple(variable.shape) == (2,):
                start = np.random.SeedSequence([*words, place]).generate_state(1, np.uint32)[0]
                leaves[index] = np.array([start, 0], np.uint32).astype(leaves[index].dtype)
                place += 1
        return state._replace(model_state=leaves)

    def gradients(self, state: TrainState, metrics: PyTree, batch: Batch) -> tuple[PyTree, PyTree, PyTree]:
        """The gradients of Keras's own training step (scaled, where its optimizer scales the loss)."""

        def objective(params: list[Array]) -> tuple[Array, Any]:
            return self._objective(params, state, metrics, batch, training=True)

        grads, (loss, outputs, model_state, values) = jax.grad(objective, has_aux=True)(list(state.params))
        model_state = cast_like(list(model_state), state.model_state)
        return grads, model_state, self._counted(metrics, values, loss, outputs, batch)

    def update(self, state: TrainState, grads: PyTree, model_state: PyTree) -> TrainState:
        """One step of Keras's optimizer, with its schedule, clipping, decay, averages and loss scale."""
        params, opt_state = self._model.optimizer.stateless_apply(
            list(state.opt_state), list(grads), list(state.params)
        )
        fresh = TrainState(list(params), list(model_state), list(opt_state), state.key, state.step + 1)
        cast: TrainState = cast_like(fresh, state)
        return cast

    def new_metrics(self) -> PyTree:
        """Keras's metric variables as empty sums; those of a user's own metric class as it resets them."""
        with keras.StatelessScope() as scope:
            self._model.reset_metrics()
        slots: list[PyTree] = []
        for variable, kind in self._metric_variables():
            if kind is _Kind.SUM:
                slots.append(empty(tuple(variable.shape)))
            elif kind is _Kind.UNUSED:
                slots.append(())
            else:
                reset = scope.get_current_value(variable)
                slots.append(np.array(variable.value if reset is None else reset))
        return _Tally(empty(), np.zeros((), np.uint32), slots)

    def measure(self, state: TrainState, metrics: PyTree, batch: Batch) -> PyTree:
        """The metrics with this batch added, as Keras's own test step computes them."""
        params = list(state.params)
        _, (loss, outputs, _, values) = self._objective(params, state, metrics, batch, training=False)
        return self._counted(metrics, values, loss, outputs, batch)

    def result(self, metrics: PyTree) -> dict[str, float]:
        """Keras's results under Keras's names; one with several numbers gives `name_0`, `name_1`, ..."""
        variables = self._metric_variables()
        numbers = []
        for (variable, kind), slot in zip(variables, metrics.variables, strict=True):
            number = value(slot) if kind is _Kind.SUM else 0 if kind is _Kind.UNUSED else slot
            numbers.append((variable, np.broadcast_to(number, variable.shape).astype(variable.dtype)))
        with keras.StatelessScope(state_mapping=numbers):
            found = dict(self._model.get_metrics_result())
        examples = int(metrics.examples)
        loss = float(value(metrics.loss)) / examples if examples else float("nan")
        if "loss" not in found or any(kind is _Kind.UNUSED for _, kind in variables):
            found["loss"] = loss
        results: dict[str, float] = {}
        for name in sorted(found, key=lambda name: name != "loss"):
            array = np.asarray(found[name], np.float64)
            if array.size == 1:
                results[name] = float(array.item())
            else:
                results.update({f"{name}_{place}": float(item) for place, item in enumerate(array.ravel())})
        return results

    def predict(self, state: TrainState, x: PyTree) -> PyTree:
        """The model's outputs `[rows, ...]`."""
        return self._model.predict_step((list(state.params), list(state.model_state)), (x,))[0]

    def absorb(self, state: TrainState) -> None:
        """Writes weights, averages, seeds and optimizer variables into the Keras model; resets metrics."""
        leaves = [*state.params, *state.model_state, *state.opt_state]
        variables = self._variables()
        self._check_count(len(leaves), len(variables))
        for variable, leaf in zip(variables, leaves, strict=True):
            variable.assign(np.array(leaf))  # a copy: the engine may donate the leaf next
        self._model.reset_metrics()
        self._seen = [variable.value for variable in variables]

    def refresh(self, state: TrainState) -> TrainState:
        """Takes over what a callback assigned: learning rate, weights, any optimizer variable."""
        leaves = [*state.params, *state.model_state, *state.opt_state]
        variables = self._variables()
        self._check_count(len(leaves), len(variables))
        changed = False
        known = self._seen or [None] * len(variables)
        for place, (variable, seen) in enumerate(zip(variables, known, strict=True)):
            if variable.value is seen:
                continue
            fresh = np.array(variable.value)
            # `model.predict` assigns equal values anew; for those the state need not be placed again.
            if fresh.tobytes() != np.asarray(leaves[place]).tobytes():
                leaves[place], changed = fresh, True
        if not changed:
            return state
        self._seen = [variable.value for variable in variables]
        first, second = len(state.params), len(state.params) + len(state.model_state)
        return state._replace(params=leaves[:first], model_state=leaves[first:second], opt_state=leaves[second:])

    def finish(self, state: TrainState) -> TrainState:
        """With `use_ema` the averaged weights as the weights, as at the end of Keras's `fit`."""
        optimizer = self._model.optimizer
        if not getattr(optimizer, "inner_optimizer", optimizer).use_ema:
            return state
        trained = self._model.trainable_variables
        mapping = [
            *zip(trained, state.params, strict=True),
            *zip(optimizer.variables, state.opt_state, strict=True),
        ]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            optimizer.finalize_variable_values(trained)
        return state._replace(params=[np.array(scope.get_current_value(variable)) for variable in trained])

    def _objective(
        self, params: list[Array], state: TrainState, metrics: _Tally, batch: Batch, *, training: bool
    ) -> tuple[Array, Any]:
        """Keras's loss, and (loss without scale, outputs, non-trainable values, metric values)."""
        # Metrics that only add start each batch at zero; `_counted` adds them up without rounding.
        starts = [
            slot if kind is _Kind.OPAQUE else np.zeros(variable.shape, variable.dtype)
            for (variable, kind), slot in zip(self._metric_variables(), metrics.variables, strict=True)
        ]
        result: tuple[Array, Any] = self._model.compute_loss_and_updates(
            params,
            list(state.model_state),
            starts,
            batch.x,
            batch.y,
            batch.weight,
            training=training,
            optimizer_variables=list(state.opt_state),
        )
        return result

    def _counted(self, metrics: _Tally, values: Sequence[Array], loss: Array, outputs: PyTree, batch: Batch) -> _Tally:
        """The accumulators after Keras's metrics saw a batch."""
        model, rows, variables = self._model, count_rows(batch), self._metric_variables()
        mapping = [(variable, number) for (variable, _), number in zip(variables, values, strict=True)]
        compiled = [metric for metric in model.metrics if isinstance(metric, CompileMetrics)]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            if type(model).compute_metrics is not keras.Model.compute_metrics:
                model.compute_metrics(batch.x, batch.y, outputs, batch.weight)
            elif compiled:
                # What `compute_metrics` does, but for the results, which are wanted once an epoch.
                compiled[0].update_state(batch.y, outputs, batch.weight)
        slots: list[PyTree] = []
        for (variable, kind), slot in zip(variables, metrics.variables, strict=True):
            new = jnp.asarray(scope.get_current_value(variable), variable.dtype)
            match kind:
                case _Kind.SUM:
                    slots.append(add(slot, new))
                case _Kind.COUNT:
                    slots.append(slot + new)
                case _Kind.OPAQUE:
                    slots.append(new)
                case _Kind.UNUSED:
                    slots.append(())
        return _Tally(add(metrics.loss, loss * rows), metrics.examples + np.uint32(rows), slots)

    def _metric_variables(self) -> list[tuple[Any, _Kind]]:
        """The model's metric variables, in Keras's order, each with its kind."""
        found: list[tuple[Any, _Kind]] = []
        for container in self._model.metrics:
            inner = container.metrics if isinstance(container, CompileMetrics) else [container]
            for metric in inner:
                tracker = metric is self._model._loss_tracker
                own = type(metric).__module__.partition(".")[0] == "keras"
                for variable in metric.variables:
                    if tracker:
                        kind = _Kind.UNUSED
                    elif not own:
                        kind = _Kind.OPAQUE
                    else:
                        kind = _Kind.SUM if jnp.issubdtype(variable.dtype, jnp.floating) else _Kind.COUNT
                    found.append((variable, kind))
        return found

    def _find_unmerged(self, state: TrainState, batch: Batch) -> tuple[str, ...]:
        """The metrics of which a variable is not a running sum; looks at those of a user's own class."""
        kinds = self._metric_variables()
        if all(kind is not _Kind.OPAQUE for _, kind in kinds):
            return ()
        metrics = self.new_metrics()
        program, made = jax.make_jaxpr(self.measure, return_shape=True)(state, metrics, batch)
        starts, results = (
            jax.tree.unflatten(jax.tree.structure(tree), range(len(jax.tree.leaves(tree))))
            for tree in ((state, metrics, batch), made)
        )
        found = [
            variable.path.split("/")[0]
            for (variable, kind), start, result in zip(kinds, starts[1].variables, results.variables, strict=True)
            if kind is _Kind.OPAQUE and not is_running_sum(program, start, result)
        ]
        return tuple(dict.fromkeys(found))

    def _state(self) -> TrainState:
        """The model's own arrays."""
        model = self._model
        parts = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
        params, model_state, opt_state = ([variable.value for variable in part] for part in parts)
        return TrainState(params, model_state, opt_state, np.zeros(2, np.uint32), np.zeros((), np.int32))

    def _variables(self) -> list[Any]:
        """Every variable that training changes, in the order of `TrainState`."""
        model = self._model
        return [*model.trainable_variables, *model.non_trainable_variables, *model.optimizer.variables]

    def _check_count(self, given: int, existing: int) -> None:
        if given != existing:
            raise SpecError(
                f"Keras model `{self._model.name}` has {existing} variables, and the state has {given}: the "
                "model, its optimizer or its schedule is another one. Make a new `dure.Trainer` for it."
            )


def _count_classes(model: Any, outputs: PyTree, targets: PyTree) -> tuple[int | None, ...]:
    """Number of classes for each leaf of the targets whose loss takes class numbers."""
    leaves = jax.tree.leaves(targets)
    classes: list[int | None] = [None] * len(leaves)
    losses = getattr(model._compile_loss, "_flat_losses", None) or []
    places = jax.tree.unflatten(jax.tree.structure(targets), range(len(leaves)))
    names = list(getattr(model, "output_names", None) or [])
    for path, loss, _, _ in losses:
        place, output = _follow(path, places, names), _follow(path, outputs, names)
        if isinstance(place, int) and hasattr(output, "shape") and _takes_labels(loss):
            classes[place] = int(output.shape[-1])
    return tuple(classes)


def _follow(path: tuple[Any, ...], tree: PyTree, names: list[str]) -> Any:
    """What lies at a loss's path: Keras may write an output's name where the data holds its index."""
    for step in path:
        if same_structure(tree, 0):
            return tree if len(path) == 1 else None
        if not isinstance(tree, dict) and step in names:
            tree = tree[names.index(step)]
        elif isinstance(tree, dict) and isinstance(step, int) and step < len(names):
            tree = tree[names[step]]
        else:
            tree = tree[step]
    return tree


def _takes_labels(loss: Any) -> bool:
    options = getattr(loss, "_fn_kwargs", {})
    return (
        getattr(loss, "fn", None) is keras.losses.sparse_categorical_crossentropy
        and options.get("ignore_class") is None
        and options.get("axis", -1) == -1
    )
