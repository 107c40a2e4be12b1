"""Which targets are class numbers, so that one out of range is refused before it makes the loss NaN."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dure.models.pure import Array, PyTree
from dure.models.shapes import same_structure

__all__ = ["count_classes"]

# A probe of the loss holds one example's outputs; beyond this many numbers it is not worth its memory.
_MOST_PROBED = 1_000_000


def count_classes(loss: Callable[[PyTree, PyTree], Array], outputs: PyTree, targets: PyTree) -> tuple[int | None, ...]:
    """For each leaf of the targets the number of classes that its labels count, or None.

    A loss is a free function, so what it makes of a label is tried: integer targets shaped like the outputs
    without their last axis are labels if the loss of the first class is finite and the loss of one class too
    many is NaN.

    Args:
        loss: The user's function of (outputs, targets).
        outputs: Arrays or `jax.ShapeDtypeStruct`, `[batch, ...]`.
        targets: The same, `[batch, ...]`, or None.

    Example:
        >>> outputs, targets = jnp.zeros((4, 10)), jnp.zeros(4, jnp.int32)
        >>> count_classes(optax.softmax_cross_entropy_with_integer_labels, outputs, targets)
        (10,)
        >>> count_classes(lambda outputs, counts: outputs[:, 0] - counts * outputs[:, 1], outputs, targets)
        (None,)
    """
    known = jax.tree.leaves(targets)
    unknown = (None,) * len(known)
    if len(known) != 1 or not same_structure(outputs, 0):
        return unknown
    target = known[0]
    if not jnp.issubdtype(target.dtype, jnp.integer) or target.shape != outputs.shape[:-1]:
        return unknown
    classes = int(outputs.shape[-1]) if outputs.ndim > 1 else 0
    if classes < 2:
        return unknown
    if loss is optax.softmax_cross_entropy_with_integer_labels:
        return (classes,)
    probed = (1, *outputs.shape[1:])
    if math.prod(probed) > _MOST_PROBED:
        return unknown
    blank = np.zeros(probed, outputs.dtype)

    @jax.jit
    def is_nan(label: Array) -> Array:
        return jnp.isnan(loss(blank, jnp.full(probed[:-1], label, target.dtype))).any()

    try:
        return (classes,) if is_nan(np.int32(classes)) and not is_nan(np.int32(0)) else unknown
    except (TypeError, ValueError):  # a loss that takes no batch of one example
        return unknown
