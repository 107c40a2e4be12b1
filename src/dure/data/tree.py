"""Elements as trees: tuples, lists and dicts whose leaves are arrays. JAX reads the same trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dure.errors import DataError

__all__ = ["Array", "Tree", "as_array", "flat", "leaves", "map_leaves", "numbers_as_arrays", "structure"]

# tuple | list | dict | NamedTuple | None of trees, or a leaf. Python's types cannot say it of users' own
# classes.
Tree: TypeAlias = Any
Array: TypeAlias = NDArray[Any]

# Object, text, bytes, raw, date and time span: nothing that a network computes with.
REFUSED_KINDS = "OUSVmM"


def map_leaves(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Returns the tree with each leaf replaced by `function(leaf, *leaves of the others)`.

    Args:
        function: called once a leaf, in the order of `leaves`.
        tree: a tree; `None` is a tree without leaves.
        others: trees of the same structure.

    Example:
        >>> map_leaves(lambda a: a * 2, (1, {"b": 2}, None))
        (2, {'b': 4}, None)
    """
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        keys = sorted(tree, key=str)
        return {key: map_leaves(function, tree[key], *(other[key] for other in others)) for key in keys}
    if isinstance(tree, tuple | list):
        parts = [map_leaves(function, *pair) for pair in zip(tree, *others, strict=True)]
        if isinstance(tree, list):
            return parts
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return function(tree, *others)


def leaves(tree: Tree) -> Iterator[Any]:
    """Yields the leaves of a tree, dict entries in the order of their keys' text.

    Example:
        >>> list(leaves(({"b": 2, "a": 1}, [3, None])))
        [1, 2, 3]
    """
    if tree is None:
        return
    if isinstance(tree, Mapping):
        for key in sorted(tree, key=str):
            yield from leaves(tree[key])
    elif isinstance(tree, tuple | list):
        for part in tree:
            yield from leaves(part)
    else:
        yield tree


def flat(tree: Tree) -> tuple[list[Array], str]:
    """Returns the leaves as arrays, in the order of `leaves`, and the structure, for each row of a batch.

    Example:
        >>> flat((np.float32(2), np.zeros(2)))
        ([array(2., dtype=float32), array([0., 0.])], '(*, *)')
    """
    # Most rows are plain tuples of arrays and NumPy's numbers, for which the general walk costs five times as
    # much.
    if type(tree) is tuple and all(type(part) is np.ndarray or isinstance(part, np.number) for part in tree):
        row = [np.asarray(part) for part in tree]
        if all(part.dtype.kind in "biufc" for part in row):
            return row, f"({', '.join('*' * len(row))}{',' * (len(row) == 1)})"
    return [as_array(leaf) for leaf in leaves(tree)], structure(tree)


def structure(tree: Tree, leaf: Callable[[Any], str] = lambda _: "*") -> str:
    """Returns a tree's structure as text: equal texts, equal structures.

    Args:
        tree: a tree.
        leaf: the text of a leaf.

    Example:
        >>> structure(({"b": 2, "a": 1}, [3]))
        "({'a': *, 'b': *}, [*])"
    """
    if tree is None:
        return "None"
    if isinstance(tree, Mapping):
        return "{" + ", ".join(f"{key!r}: {structure(tree[key], leaf)}" for key in sorted(tree, key=str)) + "}"
    if isinstance(tree, tuple | list):
        inner = ", ".join(structure(part, leaf) for part in tree)
        return f"[{inner}]" if isinstance(tree, list) else f"({inner}{',' * (len(tree) == 1)})"
    return leaf(tree)


def numbers_as_arrays(tree: Tree) -> Tree:
    """Returns the tree with lists of plain numbers read as arrays, as NumPy reads them.

    Args:
        tree: a tree, in which a list may stand for an array or for several of them.

    Example:
        >>> numbers_as_arrays(([[1, 2], [3, 4]], {"a": [0.5, 0.1]}))
        (array([[1, 2],
               [3, 4]]), {'a': array([0.5, 0.1])})
    """
    if isinstance(tree, list) and tree and _only_numbers(tree):
        return as_array(tree)
    if isinstance(tree, Mapping):
        return {key: numbers_as_arrays(part) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        parts = [numbers_as_arrays(part) for part in tree]
        if isinstance(tree, list):
            return parts
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return tree


def _only_numbers(tree: Tree) -> bool:
    if isinstance(tree, list):
        return all(_only_numbers(part) for part in tree)
    return isinstance(tree, int | float | complex | np.generic)


def as_array(value: object) -> Array:
    """Returns a leaf of any library as a NumPy array on the host, without importing that library.

    Args:
        value: a number, a NumPy or JAX array, a TensorFlow or torch tensor, or whatever speaks `__array__` or
            DLPack.

    Returns:
        The array; it may share the value's memory.

    Raises:
        DataError: not an array of numbers or booleans.

    Example:
        >>> as_array([1, 2]).shape
        (2,)
    """
    try:
        array = _converted(value)
    except (TypeError, ValueError, RuntimeError, BufferError, AttributeError) as error:
        raise DataError(
            f"asked to read a {type(value).__module__}.{type(value).__qualname__} as an array: {error}. "
            "Give arrays of numbers; turn this value into one first."
        ) from error
    if array.dtype.kind in REFUSED_KINDS and not _is_small_float(array.dtype):
        raise DataError(
            f"asked to read a {type(value).__module__}.{type(value).__qualname__} as an array: its dtype is "
            f"`{array.dtype}` and its shape {list(array.shape)}. Give numbers or booleans, all rows of one "
            "length."
        )
    return array


def _converted(value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if callable(getattr(value, "detach", None)):  # a torch tensor may hold a gradient, or lie on a GPU
        value = value.detach().cpu()
    if callable(getattr(value, "numpy", None)):
        return np.asarray(value.numpy())
    if hasattr(value, "__array__") or not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    return np.from_dlpack(value)


def _is_small_float(dtype: np.dtype[Any]) -> bool:
    """bfloat16, float8 and int4 of `ml_dtypes` are numbers of kind V, as raw memory (`numpy.void`) is."""
    return dtype.kind == "V" and not issubclass(dtype.type, np.void)
