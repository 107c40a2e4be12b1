"""Shapes in messages and in loops: errors of user code that show the data, states that keep their types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from dure.errors import DureError, SpecError
from dure.models.pure import Batch, PyTree

__all__ = ["cast_like", "count_rows", "describe", "explained", "same_structure", "specs"]


def describe(tree: PyTree) -> str:
    """Shapes and dtypes for a message, with paths where there are several leaves.

    Args:
        tree: Leaves with `.shape` and `.dtype`.

    Example:
        >>> import numpy as np
        >>> describe(np.zeros((25, 784), np.float32))
        'float32[25, 784]'
        >>> describe({"a": np.zeros(2, np.int32), "b": np.zeros((), np.int32)})
        "['a'] int32[2], ['b'] int32[]"
    """
    texts = [
        (jax.tree_util.keystr(path), f"{leaf.dtype}{list(leaf.shape)}")
        for path, leaf in jax.tree.leaves_with_path(tree)
    ]
    if len(texts) == 1:
        return texts[0][1]
    return ", ".join(f"{path} {text}" for path, text in texts) or "nothing"


def specs(tree: PyTree) -> PyTree:
    """The tree with `jax.ShapeDtypeStruct` leaves.

    Args:
        tree: Leaves with `.shape` and `.dtype`.
    """
    make: Any = jax.ShapeDtypeStruct
    return jax.tree.map(lambda leaf: make(leaf.shape, leaf.dtype), tree)


def same_structure(one: PyTree, other: PyTree) -> bool:
    """Whether two trees nest their leaves alike."""
    structures: list[Any] = [jax.tree.structure(one), jax.tree.structure(other)]
    return bool(structures[0] == structures[1])


def count_rows(batch: Batch) -> int:
    """How many rows a batch has.

    Args:
        batch: Leaves `[rows, ...]`.
    """
    return int(jax.tree.leaves(batch.x)[0].shape[0])


@contextmanager
def explained(what: str, shapes: PyTree) -> Iterator[None]:
    """Turns an error of the user's code under trace into a `SpecError` that shows what the code was given.

    Args:
        what: What could not be done, the start of the message.
        shapes: What the code was given; leaves with `.shape` and `.dtype`.
    """
    try:
        yield
    except DureError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise SpecError(
            f"{what}: {describe(shapes)}. It raised {type(error).__name__}: {str(error).rstrip('.')}. "
            "Give data of the shape that the model takes, or change the model."
        ) from error


def cast_like(new: PyTree, old: PyTree) -> PyTree:
    """The leaves of `new` in the dtypes of `old`, never weakly typed: a loop keeps its state's types."""
    return jax.tree.map(lambda leaf, known: jnp.asarray(leaf, known.dtype), new, old)
