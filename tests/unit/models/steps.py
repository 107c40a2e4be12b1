"""A plain loop over a pure model, jitted on one device: what any engine must equal."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from dure.models.pure import Batch, PureModel, TrainState


def rows(batch: Batch, start: int, stop: int) -> Batch:
    """Some rows of a batch."""
    return jax.tree.map(lambda leaf: leaf[start:stop], batch)


@partial(jax.jit, static_argnums=0)  # compiled once a model, however often a test trains it
def _step(model: PureModel, state: TrainState, metrics: Any, batch: Batch) -> tuple[TrainState, Any]:
    grads, model_state, metrics = model.gradients(state, metrics, batch)
    return model.update(state, grads, model_state), metrics


@partial(jax.jit, static_argnums=0)
def _measure(model: PureModel, state: TrainState, metrics: Any, batch: Batch) -> Any:
    return model.measure(state, metrics, batch)


def train(
    model: PureModel, state: TrainState, data: Batch, *, size: int, epochs: int = 1
) -> tuple[TrainState, list[dict[str, float]]]:
    """The state after some epochs in order, and each epoch's results."""
    history = []
    for _ in range(epochs):
        metrics = model.new_metrics()
        for start in range(0, len(jax.tree.leaves(data.x)[0]), size):
            state, metrics = _step(model, state, metrics, rows(data, start, start + size))
        history.append(model.result(metrics))
    return state, history


def evaluate(model: PureModel, state: TrainState, data: Batch, *, size: int) -> dict[str, float]:
    """The results on some data."""
    metrics = model.new_metrics()
    for start in range(0, len(jax.tree.leaves(data.x)[0]), size):
        metrics = _measure(model, state, metrics, rows(data, start, start + size))
    return model.result(metrics)
