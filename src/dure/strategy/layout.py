"""How a value of the full-batch program lies on the replicas: whole, by rows, or as parts of a sum.

A `Layout` says where a value is, never what it is: every rule that changes one keeps the value. So a layout can be
chosen freely, and a wrong choice costs time, not correctness.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

Array = Any

AXIS = "replica"
"""Name of the mesh axis that replicas lie on."""


class Spread(Enum):
    """The two layouts that need no axis."""

    WHOLE = "whole"
    """Every replica has the full-batch value."""
    PARTIAL = "partial"
    """The full-batch value is the sum of what the replicas have."""


class Rows(NamedTuple):
    """Each replica has the rows of its own share, `factor` neighbouring places of `axis` for each row."""

    axis: int
    factor: int = 1


Layout = Spread | Rows


class NotSplit(Exception):
    """An operation cannot be split by rows; the text says which and why. Never leaves the engine."""


@dataclass(frozen=True)
class Share:
    """Which rows of a batch a replica has: `size` of them from `index * size` on, the last ones fewer or none.

    Attributes:
        batch: rows of the full batch.
        replicas: how many replicas share it.
    """

    batch: int
    replicas: int

    @property
    def size(self) -> int:
        """Rows a replica computes: at most `ceil(batch / replicas)`."""
        return -(-self.batch // self.replicas)

    @property
    def is_even(self) -> bool:
        """Every replica has exactly `size` rows."""
        return self.size * self.replicas == self.batch

    def places(self) -> np.ndarray:
        """The rows that each replica computes, int32 `[replicas, size]`; the last row stands in for padding."""
        rows = np.arange(self.size * self.replicas, dtype=np.int32)
        return np.minimum(rows, self.batch - 1).reshape(self.replicas, self.size)

    def first(self) -> Array:
        """This replica's first row, an int32 scalar; only inside a mapped program."""
        if self.replicas == 1:
            return jnp.int32(0)
        return jax.lax.axis_index(AXIS).astype(jnp.int32) * self.size

    def local_shape(self, shape: tuple[int, ...], rows: Rows) -> tuple[int, ...]:
        """The shape of one replica's part of a value of the full `shape`."""
        return (*shape[: rows.axis], self.size * rows.factor, *shape[rows.axis + 1 :])

    def index(self, rows: Rows) -> Array:
        """This replica's places along the rows' axis, int32 `[size * factor]`; padding repeats the last row."""
        index = self.first() * rows.factor + jnp.arange(self.size * rows.factor, dtype=jnp.int32)
        if self.is_even:
            return index
        if rows.factor == 1:
            return jnp.minimum(index, self.batch - 1)
        row = jnp.minimum(index // rows.factor, self.batch - 1)
        return row * rows.factor + index % rows.factor

    def cut(self, value: Array, rows: Rows) -> Array:
        """This replica's part of a whole `value`."""
        if self.is_even:
            start, size = self.first() * rows.factor, self.size * rows.factor
            return jax.lax.dynamic_slice_in_dim(value, start, size, rows.axis)
        return jnp.take(value, self.index(rows), axis=rows.axis, mode="clip")

    def trim(self, value: Array, rows: Rows) -> Array:
        """The full value of the replicas' parts joined one after another: drops the padding at the end."""
        return jax.lax.slice_in_dim(value, 0, self.batch * rows.factor, axis=rows.axis)

    def masked(self, value: Array, rows: Rows, fill: Array) -> Array:
        """A replica's part with `fill` in the places that are padding."""
        if self.is_even:
            return value
        shape = [1] * value.ndim
        shape[rows.axis] = value.shape[rows.axis]
        place = jnp.arange(value.shape[rows.axis], dtype=jnp.int32) // rows.factor
        real = (self.first() + place < self.batch).reshape(shape)
        return jnp.where(real, value, jnp.asarray(fill, value.dtype))


@final
class Piece:
    """A value of the full-batch program as this replica has it.

    A whole value is made late, and in the form that is asked for: a mask drawn for all rows whose rows are all that is
    used is drawn for the replica's own rows only.

    Args:
        layout: how it lies.
        make: gives the replica's array.
        cut: for a whole value, gives this replica's rows without making the whole; None slices the whole.
    """

    def __init__(self, layout: Layout, make: Callable[[], Array], cut: Callable[[Rows], Array] | None = None) -> None:
        self.layout = layout
        self._make = make
        self._cut = cut
        self._value: Array | None = None
        self._cuts: dict[Rows, Array] = {}
        self.shared: Piece | None = None
        """The whole value, once it was exchanged."""

    @property
    def cuts_cheaply(self) -> bool:
        """Own rows can be made without the whole."""
        return self._cut is not None

    def value(self) -> Array:
        """The replica's array in the piece's own layout."""
        if self._value is None:
            self._value = self._make()
        return self._value

    def rows(self, share: Share, rows: Rows) -> Array:
        """The replica's own rows of a whole value, or of a value that lies by these very rows.

        Raises:
            NotSplit: the value lies otherwise.
        """
        if self.layout == rows:
            return self.value()
        if self.layout is not Spread.WHOLE:
            raise NotSplit(f"a value lies as {self.layout} where {rows} is needed")
        if rows not in self._cuts:
            self._cuts[rows] = self._cut(rows) if self._cut else share.cut(self.value(), rows)
        return self._cuts[rows]


def laid(value: Array, layout: Layout) -> Piece:
    """A piece of an array that is there already."""
    return Piece(layout, lambda: value)


def whole(value: Array) -> Piece:
    """A value that every replica has."""
    return laid(value, Spread.WHOLE)


def by_rows(value: Array, rows: Rows) -> Piece:
    """A value of which every replica has its own rows."""
    return laid(value, rows)


def partial(value: Array) -> Piece:
    """A value that is the sum of what the replicas have."""
    return laid(value, Spread.PARTIAL)
