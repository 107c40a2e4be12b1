"""Metrics of plain JAX models by name, one value an example, and sums that stay exact over many batches."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dure.errors import SpecError, hint
from dure.models.pure import Array, PyTree

__all__ = ["Metric", "Total", "add", "empty", "named", "value"]

Metric = Callable[[PyTree, PyTree], Array]
"""A function of (outputs, targets), pytrees of arrays `[batch, ...]`: one value an example, `[batch]`."""


class Total(NamedTuple):
    """A running sum as a pair of float32: plain sums lose examples beyond 2**24 of them.

    Both halves are additive: pairs of several replicas are merged by adding them leaf by leaf.

    Attributes:
        high: The rounded sum.
        low: What rounding has taken from it so far.
    """

    high: Array
    low: Array


def empty(shape: tuple[int, ...] = ()) -> Total:
    """A sum of nothing, on the host.

    Args:
        shape: Shape of each half.
    """
    return Total(np.zeros(shape, np.float32), np.zeros(shape, np.float32))


def add(total: Total, amount: Array) -> Total:
    """Adds to a running sum without losing what does not fit into 24 bits.

    Args:
        total: The sum so far.
        amount: What to add, of the same shape.

    Source: the branch-free two-sum of D. Knuth, The Art of Computer Programming, volume 2, section 4.2.2.
    """
    amount = jnp.asarray(amount, jnp.float32)
    high = total.high + amount
    held = high - total.high
    lost = (total.high - (high - held)) + (amount - held)
    return Total(high, total.low + lost)


def value(total: Total) -> np.ndarray:
    """The sum in float64, on the host; waits for the devices.

    Example:
        >>> float(value(Total(np.float32(16777216.0), np.float32(3.0))))
        16777219.0
    """
    return np.asarray(total.high, np.float64) + np.asarray(total.low, np.float64)


def named(name: str) -> Metric:
    """The metric of that name.

    "accuracy" looks at the shapes, as Keras does: targets with one axis less than the outputs (or with a last
    axis of one) are class numbers; targets shaped like outputs whose last axis is one, or that have a single
    axis, are binary and are compared with outputs above 0.5; targets shaped like outputs with more classes
    are one-hot. "top_5_accuracy" works with any number in place of 5.

    Args:
        name: As listed by the error for an unknown one.

    Returns:
        A function of (outputs `[batch, ...]`, targets `[batch, ...]`) that gives `[batch]` float32 values:
        for each example the mean over its further axes.

    Raises:
        SpecError: There is no such metric.

    Example:
        >>> accuracy = named("accuracy")
        >>> accuracy(jnp.array([[0.1, 0.9], [0.8, 0.2]]), jnp.array([1, 1])).tolist()
        [1.0, 0.0]
    """
    if (top := re.fullmatch(r"top_([1-9]\d*)_accuracy", name)) is not None:
        return _top(int(top.group(1)))
    if name not in _NAMED:
        raise SpecError(
            f"metric `{name}` is unknown. {hint(name, [*_NAMED, 'top_5_accuracy'])} "
            "Use one of them, or give a function of (outputs, targets) that returns one value an example."
        )
    return _NAMED[name]


def _accuracy(outputs: PyTree, targets: PyTree) -> Array:
    outputs, targets = _arrays("accuracy", outputs, targets)
    if outputs.ndim == 1 or outputs.shape[-1] == 1:
        return _binary_accuracy(outputs, targets)
    if outputs.shape == targets.shape:
        return _categorical_accuracy(outputs, targets)
    return _sparse_accuracy(outputs, targets)


def _sparse_accuracy(outputs: PyTree, targets: PyTree) -> Array:
    outputs, targets = _labels("sparse_categorical_accuracy", *_arrays("accuracy", outputs, targets))
    return _each(jnp.argmax(outputs, axis=-1) == targets)


def _categorical_accuracy(outputs: PyTree, targets: PyTree) -> Array:
    outputs, targets = _same("categorical_accuracy", *_arrays("accuracy", outputs, targets))
    return _each(jnp.argmax(outputs, axis=-1) == jnp.argmax(targets, axis=-1))


def _binary_accuracy(outputs: PyTree, targets: PyTree) -> Array:
    outputs, targets = _same("binary_accuracy", *_arrays("accuracy", outputs, targets))
    return _each((outputs > 0.5) == (targets > 0.5))


def _logit_accuracy(outputs: PyTree, targets: PyTree) -> Array:
    outputs, targets = _same("binary_logit_accuracy", *_arrays("accuracy", outputs, targets))
    return _each((outputs > 0) == (targets > 0.5))


def _top(k: int) -> Metric:
    name = f"top_{k}_accuracy"

    def top_accuracy(outputs: PyTree, targets: PyTree) -> Array:
        outputs, targets = _arrays(name, outputs, targets)
        if outputs.shape == targets.shape:
            targets = jnp.argmax(targets, axis=-1)
        outputs, targets = _labels(name, outputs, targets)
        own = jnp.take_along_axis(outputs, targets[..., None], axis=-1)
        # Counting the better classes needs no sort, and treats ties as Keras does.
        return _each(jnp.sum(outputs > own, axis=-1) < k)

    return top_accuracy


def _squared_error(outputs: PyTree, targets: PyTree) -> Array:
    outputs, targets = _same("mean_squared_error", *_arrays("mean_squared_error", outputs, targets))
    return _each(jnp.square(outputs - targets))


def _absolute_error(outputs: PyTree, targets: PyTree) -> Array:
    outputs, targets = _same("mean_absolute_error", *_arrays("mean_absolute_error", outputs, targets))
    return _each(jnp.abs(outputs - targets))


_NAMED: dict[str, Metric] = {
    "acc": _accuracy,
    "accuracy": _accuracy,
    "sparse_categorical_accuracy": _sparse_accuracy,
    "categorical_accuracy": _categorical_accuracy,
    "binary_accuracy": _binary_accuracy,
    "binary_logit_accuracy": _logit_accuracy,
    "mean_squared_error": _squared_error,
    "mse": _squared_error,
    "mean_absolute_error": _absolute_error,
    "mae": _absolute_error,
}


def _arrays(name: str, outputs: PyTree, targets: PyTree) -> tuple[Array, Array]:
    found = [jax.tree.leaves(outputs), jax.tree.leaves(targets)]
    if [len(leaves) for leaves in found] != [1, 1]:
        raise SpecError(
            f"metric `{name}` compares one array of outputs with one of targets, and there "
            f"are {len(found[0])} and {len(found[1])}. Give a function of (outputs, targets) that picks its own."
        )
    return jnp.asarray(found[0][0]), jnp.asarray(found[1][0])


def _labels(name: str, outputs: Array, targets: Array) -> tuple[Array, Array]:
    if targets.ndim == outputs.ndim and targets.shape[-1] == 1:
        targets = targets[..., 0]
    if targets.shape != outputs.shape[:-1]:
        raise SpecError(
            f"metric `{name}` takes class numbers shaped {list(outputs.shape[:-1])} for outputs "
            f"{list(outputs.shape)}, and the targets are {list(targets.shape)}. Reshape the targets."
        )
    return outputs, targets.astype(jnp.int32)


def _same(name: str, outputs: Array, targets: Array) -> tuple[Array, Array]:
    # [batch] against [batch, 1] would broadcast to [batch, batch] and give a number that means nothing.
    if outputs.ndim == targets.ndim + 1 and outputs.shape[-1] == 1:
        outputs = outputs[..., 0]
    elif targets.ndim == outputs.ndim + 1 and targets.shape[-1] == 1:
        targets = targets[..., 0]
    if outputs.shape != targets.shape:
        raise SpecError(
            f"metric `{name}` takes targets shaped like the outputs, {list(outputs.shape)}, and they are "
            f"{list(targets.shape)}. Reshape the targets, or choose another metric."
        )
    return outputs, targets


def _each(values: Array) -> Array:
    values = values.astype(jnp.float32)
    return values.reshape(values.shape[0], -1).mean(axis=1) if values.ndim > 1 else values
