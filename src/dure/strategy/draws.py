"""A replica's own rows of a random draw, without drawing the others.

JAX's partitionable threefry hashes each element's own number in row-major order. So any rows are the same hash of other
numbers, and a mask that is drawn so is exactly the single device's rows.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dure import _jax

Array = Any

DRAWS = {"random_bits", "random_split"}
"""Draws of which a replica can have its own rows."""


class Draw(NamedTuple):
    """A random draw, as far as its kind decides.

    Attributes:
        operation: its primitive's name.
        keys: shape of its keys; each of them gives a `shape`.
        shape: of what a key gives.
    """

    operation: str
    keys: tuple[int, ...]
    shape: tuple[int, ...]

    @staticmethod
    def of(equation: Any) -> "Draw":
        """The draw that an equation makes."""
        operation, result = equation.primitive.name, equation.outvars[-1].aval.shape
        if operation not in DRAWS:
            return Draw(operation, (), tuple(result))
        return Draw(operation, tuple(equation.invars[0].aval.shape), tuple(equation.params["shape"]))


def can_draw_rows(key: Array, *, bit_width: int, shape: tuple[int, ...]) -> bool:
    """Says whether `draw_rows` gives what the whole draw gives: threefry, partitionable, 32 bits, under 2**32 elements.

    Args:
        key: a typed key, scalar.
        bit_width: bits of an element.
        shape: the whole draw's, rows first.
    """
    return (
        str(jax.random.key_impl(key)) == "threefry2x32"
        and bool(jax.config.jax_threefry_partitionable)  # type: ignore[attr-defined]
        and bit_width == 32
        and key.ndim == 0
        and math.prod(shape) < 2**32
    )


def draw_rows(key: Array, rows: Array, shape: tuple[int, ...]) -> Array:
    """Draws the bits of some rows.

    Args:
        key: a typed threefry key, scalar.
        rows: numbers of the rows wanted, int32 `[rows]`.
        shape: their shape, `[rows, ...]`.

    Returns:
        uint32 `[rows, ...]`: these rows of what the key gives for any larger number of rows.

    Source:
        The counter layout is that of `jax.random.bits` under `jax_threefry_partitionable`.
    """
    data = jax.random.key_data(key)
    row_size = math.prod(shape[1:])
    starts = rows.astype(jnp.uint32) * jnp.uint32(row_size)
    low = (starts[:, None] + jax.lax.iota(jnp.uint32, row_size)).reshape(-1)
    high = jnp.zeros_like(low)
    return _jax.threefry_bits(data[0], data[1], high, low).reshape(shape)
