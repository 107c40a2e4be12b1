"""What `fit`, `evaluate` and `predict` are given: checked before anything is compiled, and cut into rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from dure.data.tree import as_array
from dure.errors import DataError, SpecError
from dure.models.pure import Batch, PyTree
from dure.strategy.memory import aligned

__all__ = [
    "Empty",
    "Rows",
    "check_finite",
    "check_labels",
    "divide",
    "is_arrays",
    "named_leaves",
    "narrow",
    "narrowed",
    "rows_of",
    "struct_of",
    "whole_number",
]

Empty = Callable[[tuple[int, ...], np.dtype[Any]], np.ndarray]
"""Gives memory for an array of a shape and dtype."""


@final
@dataclass(frozen=True)
class Rows:
    """A data set of arrays with one number of rows, in the dtypes that the user gave.

    Attributes:
        batch: leaves are NumPy arrays `[num_rows, ...]`; they may be the user's own.
        num_rows: how many examples there are.
    """

    batch: Batch
    num_rows: int

    @property
    def size_bytes(self) -> int:
        """Bytes of all rows on a device."""
        leaves = jax.tree.leaves(self.batch)
        return sum(leaf.size * narrow(leaf.dtype).itemsize for leaf in leaves)

    def struct(self, rows: int) -> Batch:
        """Shapes and dtypes of a batch of `rows` rows on a device."""
        return Batch(*jax.tree.map(lambda leaf: _struct((rows, *leaf.shape[1:]), leaf.dtype), self.batch))

    def whole(self) -> Batch:
        """All rows in the dtypes of the device; leaves that have them already are not copied."""
        return _map_named(narrowed, self.batch)

    def take(self, places: np.ndarray, empty: Empty = aligned) -> Batch:
        """Copies some rows, in the dtypes of the device.

        Args:
            places: numbers of rows, integers of any shape.
            empty: gives the memory to copy to.

        Returns:
            Leaves `[*places.shape, ...]`, in memory of their own.
        """

        def picked(leaf: np.ndarray, name: str) -> np.ndarray:
            out = empty((*places.shape, *leaf.shape[1:]), leaf.dtype)
            # "clip" spares NumPy a second buffer; a plan never asks for a row that is not there.
            return narrowed(np.take(leaf, places, axis=0, mode="clip", out=out), name, empty)

        return _map_named(picked, self.batch)

    def part(self, start: int, stop: int) -> Rows:
        """The rows from `start` to before `stop`, without a copy."""
        return Rows(Batch(*jax.tree.map(lambda leaf: leaf[start:stop], self.batch)), stop - start)


def is_arrays(x: object) -> bool:
    """Whether `x`, given alone, is arrays: one, or a dict, tuple or list of them. Else it yields batches."""
    if isinstance(x, Mapping):
        return True
    if isinstance(x, tuple | list):
        # A list of arrays is several inputs, as for Keras; a list of tuples or dicts is a list of batches.
        return all(_is_array(part) or isinstance(part, int | float) for part in x)
    return _is_array(x)


def rows_of(x: PyTree, y: PyTree = None, weight: PyTree = None) -> Rows:
    """Reads arrays and checks that they fit together.

    Args:
        x: inputs: an array `[rows, ...]`, or a dict, tuple or list of them.
        y: targets, likewise, or None.
        weight: sample weights `[rows]`, or None; a Keras model with several outputs takes a dict or list of
            them.

    Raises:
        DataError: a leaf is no array of numbers, has no rows, or another number of rows than the first.

    Example:
        >>> rows = rows_of({"left": np.zeros((6, 2)), "right": np.zeros((6, 3))}, np.arange(6))
        >>> rows.num_rows, rows.struct(2).y
        (6, ShapeDtypeStruct(shape=(2,), dtype=int32))
        >>> rows_of(np.zeros((6, 2)), np.arange(5))
        Traceback (most recent call last):
        ...
        dure.errors.DataError: x has 6 rows and y has 5: each needs the same number. Cut or mend one of them.
    """
    batch = _map_named(_leaf, Batch(x, y, weight))
    if weight is not None:
        batch = batch._replace(weight=jax.tree.map(lambda leaf: leaf.astype(np.float32), batch.weight))
    named = named_leaves(batch)
    if not jax.tree.leaves(batch.x):
        raise DataError(f"x is {x!r}, which holds no array. Give an array [rows, ...].")
    first, rows = named[0][0], len(named[0][1])
    for name, leaf in named[1:]:
        if len(leaf) != rows:
            raise DataError(
                f"{first} has {rows} rows and {name} has {len(leaf)}: each needs the same number. "
                "Cut or mend one of them."
            )
    if not rows:
        raise DataError(f"{first} has the shape {list(named[0][1].shape)}, so no rows. Give at least one.")
    for name, leaf in named:
        if name.startswith("weight") and leaf.ndim != 1:
            raise DataError(
                f"sample_weight has the shape {list(leaf.shape)}, and it is one number a row: [{rows}]. Reshape it."
            )
    return Rows(batch, rows)


def divide(rows: Rows, share: object) -> tuple[Rows, Rows]:
    """Splits off the last rows for validation, as Keras does: before any shuffle.

    Args:
        rows: all.
        share: for validation, between 0 and 1.

    Raises:
        SpecError: the share is out of range, or one of the parts would be empty.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise SpecError(
            f"validation_split is {share!r}, and it is a share of the rows between 0 and 1. Write for "
            f"example `validation_split=0.1`."
        )
    first = math.floor(rows.num_rows * (1 - share))
    if first in (0, rows.num_rows):
        raise SpecError(
            f"validation_split={share} of {rows.num_rows} rows leaves {first} to train on and "
            f"{rows.num_rows - first} to validate with. Give more rows, or another share."
        )
    return rows.part(0, first), rows.part(first, rows.num_rows)


def check_finite(rows: Rows, where: str = "") -> None:
    """Refuses NaN and infinite values.

    Args:
        rows: what to look at.
        where: what they are part of, for the message.

    Raises:
        DataError: there is one; the first bad row of the leaf is named.
    """
    for name, leaf in named_leaves(rows.batch):
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            continue
        bad = ~np.isfinite(leaf.reshape(len(leaf), -1)).all(axis=1)
        if bad.any():
            row = int(bad.argmax())
            raise DataError(
                f"{where}{name} has a value that is not finite in row {row}, and {int(bad.sum())} such rows "
                f"of {len(leaf)}. Mend or drop them, or leave out check_finite."
            )


def check_labels(rows: Rows, classes: tuple[int | None, ...], where: str = "") -> None:
    """Refuses class numbers that the model has no output for.

    Args:
        rows: with targets.
        classes: for each leaf of the targets how many classes there are; None where they are no class
            numbers.
        where: what they are part of, for the message.

    Raises:
        DataError: a label is negative or too large; the first bad row is named.
    """
    targets = [(name, leaf) for name, leaf in named_leaves(rows.batch) if name[0] == "y"]
    for (name, leaf), number in zip(targets, classes, strict=False):
        if number is None or leaf.size == 0:
            continue
        if leaf.min() >= 0 and leaf.max() < number:
            continue
        bad = ((leaf < 0) | (leaf >= number)).reshape(len(leaf), -1)
        row = int(bad.any(axis=1).argmax())
        label = leaf.reshape(len(leaf), -1)[row, int(bad[row].argmax())]
        raise DataError(
            f"{where}{name} has the label {label} in row {row}, and {int(bad.any(axis=1).sum())} such rows: "
            f"the model has {number} classes, labels 0 to {number - 1}. Mend the labels, or give the last "
            f"layer more outputs."
        )


def whole_number(name: str, value: object, *, least: int = 1) -> int:
    """Returns an option that must be a whole number.

    Raises:
        SpecError: it is none, or less than `least`.

    Example:
        >>> whole_number("epochs", -1, least=0)
        Traceback (most recent call last):
        ...
        dure.errors.SpecError: epochs is -1 (int); it is a whole number of at least 0. Write `epochs=10`.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < least:
        example = {"batch_size": 32, "epochs": 10}.get(name, max(least, 1))
        raise SpecError(
            f"{name} is {value!r} ({type(value).__name__}); it is a whole number of at least {least}. "
            f"Write `{name}={example}`."
        )
    return number


def narrow(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that an array has on a device: 64 bits become 32 unless JAX's x64 is on."""
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype.newbyteorder("=")))


def narrowed(leaf: np.ndarray, name: str, empty: Empty = aligned) -> np.ndarray:
    """The array in the dtype it has on a device; itself where it has that already.

    Args:
        leaf: the array.
        name: its name in messages.
        empty: gives the memory for another dtype.

    Raises:
        DataError: whole numbers that do not fit into 32 bits.
    """
    dtype = narrow(leaf.dtype)
    if dtype == leaf.dtype and leaf.dtype.isnative:
        return leaf
    if leaf.dtype.kind in "iu" and leaf.size:
        held = np.iinfo(dtype)
        if leaf.min() < held.min or leaf.max() > held.max:
            raise DataError(
                f"{name} is {leaf.dtype} with values from {leaf.min()} to {leaf.max()}, which {dtype} cannot "
                f"hold. "
                'Make them smaller, or allow 64 bits: `jax.config.update("jax_enable_x64", True)`.'
            )
    out = empty(leaf.shape, dtype)
    np.copyto(out, leaf, casting="unsafe")
    return out


def struct_of(batch: Batch) -> Batch:
    """Shapes and dtypes of a batch."""
    return Batch(*jax.tree.map(lambda leaf: _struct(leaf.shape, leaf.dtype), batch))


def _struct(shape: tuple[int, ...], dtype: np.dtype[Any]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, narrow(dtype))


def named_leaves(batch: Batch) -> list[tuple[str, np.ndarray]]:
    """Each leaf of a batch with its name: `x`, `y['left']`, `weight`."""
    return [
        (f"{part}{jax.tree_util.keystr(path)}", leaf)
        for part, tree in zip(("x", "y", "weight"), batch, strict=True)
        for path, leaf in jax.tree.leaves_with_path(tree)
    ]


def _map_named(function: Any, batch: Batch) -> Batch:
    """Applies `function(leaf, name)` to every leaf."""

    def one(part: str, tree: PyTree) -> PyTree:
        return jax.tree.map_with_path(lambda path, leaf: function(leaf, f"{part}{jax.tree_util.keystr(path)}"), tree)

    return Batch(*(one(part, tree) for part, tree in zip(("x", "y", "weight"), batch, strict=True)))


def _is_array(value: object) -> bool:
    if isinstance(value, str | bytes | type):
        return False
    return hasattr(value, "__array__") or (hasattr(value, "shape") and hasattr(value, "dtype"))


def _leaf(value: object, name: str) -> np.ndarray:
    if isinstance(value, bool | int | float | complex | str):
        raise DataError(
            f"{name} is {value!r}, a {type(value).__name__}, where an array [rows, ...] belongs. A list is "
            f"several inputs: make one array of its numbers, `np.asarray(...)`."
        )
    try:
        array = as_array(value)
    except DataError as error:
        raise DataError(f"{name} is no array that can be used: {error}") from error
    if array.ndim == 0:
        raise DataError(f"{name} is the single value {array!r}, without rows. Give an array [rows, ...].")
    if array.dtype.char in "gG":
        raise DataError(f"{name} is {array.dtype}, which no device computes with. Use float32.")
    return array
