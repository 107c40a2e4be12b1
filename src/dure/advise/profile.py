"""What the cost model has to know of a model, measured on one device in a child process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from dure.advise.probe import steps_by_rows
from dure.models.adapt import pure
from dure.models.pure import Batch, PureModel, PyTree, TrainState
from dure.strategy.base import Strategy
from dure.strategy.exchange import Exchange, Meeting
from dure.strategy.layout import AXIS, NotSplit, Share
from dure.strategy.rules import Context
from dure.strategy.split import partial_all, settle_all, split

__all__ = ["profile"]

LONG_STEP_S = 0.25
"""Where a step of the batch asked for takes longer, no larger batch is measured."""


def profile(
    model: object,
    strategy: Strategy,
    x: Any,
    y: Any,
    *,
    rows: Sequence[int],
    measure_s: float,
    counted: bool,
) -> dict[str, Any]:
    """Measures steps of one device at some numbers of rows, and counts what they hold.

    Args:
        model: a compiled Keras model or a `dure.Model`.
        strategy: one device.
        x: inputs, arrays `[rows, ...]`.
        y: targets, arrays `[rows, ...]`.
        rows: at which to measure, ascending; the last may be left out where a step is long.
        measure_s: how long each is measured, seconds.
        counted: also what XLA counts: operations and bytes. It compiles each step once more.

    Returns:
        Plain values, as `dure.advise.single` reads them.
    """
    network, data = pure(model), Batch(x, y)
    network.prepare(data)
    points, first_step_s = steps_by_rows(
        network, strategy, data, batch_sizes=rows, measure_s=measure_s, long_step_s=LONG_STEP_S
    )
    state = network.init(0)
    found = {
        "points": points,
        "first_step_s": first_step_s,
        "gradients": _gradients(network, state, data, rows[-1]),
        "state": _average(state),
        "state_bytes": _size_bytes(state),
        "flops": [],
        "traffic": [],
    }
    if counted:
        counts = [(count, _counted(network, state, data, count)) for count, _ in points]
        found["flops"] = [(count, number["flops"]) for count, number in counts]
        found["traffic"] = [(count, number["bytes accessed"]) for count, number in counts]
    return found


def _shapes(tree: PyTree, rows: int | None = None) -> PyTree:
    """Shapes and dtypes; of a batch with so many rows."""

    def of(leaf: Any) -> jax.ShapeDtypeStruct:
        shape = np.shape(leaf)
        return jax.ShapeDtypeStruct(shape if rows is None else (rows, *shape[1:]), np.asarray(leaf).dtype)

    return jax.tree.map(of, tree)


def _counted(network: PureModel, state: TrainState, batch: Batch, rows: int) -> dict[str, float]:
    """XLA's own count of a compiled step."""

    def step(state: TrainState, metrics: PyTree, batch: Batch) -> Any:
        grads, model_state, metrics = network.gradients(state, metrics, batch)
        return network.update(state, grads, model_state), metrics

    shapes = (_shapes(state), _shapes(network.new_metrics()), _shapes(batch, rows))
    counts = jax.jit(step).lower(*shapes).compile().cost_analysis() or {}
    return {name: float(counts.get(name, 0.0)) for name in ("flops", "bytes accessed")}


def _gradients(network: PureModel, state: TrainState, batch: Batch, rows: int) -> tuple[int, float, int]:
    """What two replicas exchange in a step: arrays, bytes, and messages between processes.

    Found by tracing the engine's step, which touches no second device.
    """
    share = Share(rows, 2)
    metrics = _shapes(network.new_metrics())
    program = jax.make_jaxpr(network.gradients)(_shapes(state), metrics, _shapes(batch, rows))
    mesh = AbstractMesh((2,), (AXIS,), axis_types=(AxisType.Auto,))

    def met(*, is_flat: bool) -> list[Meeting]:
        exchange = Exchange(is_flat=is_flat)

        def one(state: Any, metrics: Any, batch: Any) -> Any:
            context = Context(share, exchange)
            pieces = split(context, program, whole_in=state, partial_in=metrics, rows_in=batch)
            kept = len(pieces) - len(jax.tree.leaves(metrics))
            return settle_all(context, pieces[:kept]), partial_all(context, pieces[kept:])

        mapped = jax.shard_map(one, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
        jax.eval_shape(mapped, _shapes(state), metrics, _shapes(batch, share.size))
        return exchange.meetings

    try:
        arrays, messages = met(is_flat=False), met(is_flat=True)
    except NotSplit:
        # Left to XLA's partitioner, which exchanges the gradients at least.
        leaves = jax.tree.leaves(state.params)
        return len(leaves), _size_bytes(state.params), len(leaves)
    size_bytes = sum(math.prod(meeting.shape) * np.dtype(meeting.dtype).itemsize for meeting in arrays)
    return len(arrays), float(size_bytes), len(messages)


def _average(state: TrainState) -> tuple[int, float, int]:
    """What replicas exchange when they average: each leaf, each floating scalar twice, and their weights."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
    twice = [leaf for leaf in leaves if leaf.ndim == 0 and np.issubdtype(leaf.dtype, np.floating)]
    messages = 1 + len({leaf.dtype for leaf in twice}) + len({leaf.dtype for leaf in leaves})
    return len(leaves) + len(twice) + 1, _size_bytes(state), messages


def _size_bytes(tree: PyTree) -> float:
    return float(sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(tree)))
