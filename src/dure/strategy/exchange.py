"""How the replicas' parts meet: XLA's collectives, in one order on every replica."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from dure.strategy.layout import AXIS

Array = Any


class Meeting(NamedTuple):
    """One exchange between all replicas.

    Attributes:
        operation: "sum" or "gather".
        shape: of what each replica brings.
        dtype: its name.
    """

    operation: str
    shape: tuple[int, ...]
    dtype: str


@final
class Exchange:
    """The collectives of one program, in the order in which they are asked for.

    When each is run is left to XLA: on accelerators it overlaps exchanges with computing, on CPU devices it runs one
    after another. What keeps dispatches from starving one another is `spmd.MOST_IN_FLIGHT`.

    Args:
        is_flat: `sum_all` sends one message a dtype. Between processes the number of messages decides.
    """

    def __init__(self, *, is_flat: bool = False) -> None:
        self._is_flat = is_flat
        self.meetings: list[Meeting] = []
        """What was exchanged so far, in order; what a loop or a branch exchanges is with it, once."""

    def sum(self, value: Array) -> Array:
        """The sum of the replicas' parts, on every replica; of truth values, whether any is true."""
        if value.dtype == jnp.bool_:
            return self.extreme(value, is_max=True)
        return self._meet("sum", jax.lax.psum, value)

    def sum_all(self, values: list[Array]) -> list[Array]:
        """The sum of the replicas' parts of each value, on every replica."""
        if not self._is_flat or len(values) < 2 or jax.lax.axis_size(AXIS) == 1:
            return [self.sum(value) for value in values]
        summed: dict[int, Array] = {}
        for dtype in dict.fromkeys(value.dtype for value in values):
            alike = [index for index, value in enumerate(values) if value.dtype == dtype]
            if dtype == jnp.bool_:
                summed.update((index, self.sum(values[index])) for index in alike)
                continue
            # Written piece by piece: on CPU devices XLA fuses a concatenation of them into a slower program.
            flat = jnp.zeros(sum(values[index].size for index in alike), dtype)
            edges = np.cumsum([0, *(values[index].size for index in alike)])
            for index, start in zip(alike, edges, strict=False):
                flat = jax.lax.dynamic_update_slice(flat, values[index].ravel(), (int(start),))
            total = self.sum(flat)
            for index, start in zip(alike, edges, strict=False):
                shape = values[index].shape
                summed[index] = total[int(start) : int(start) + values[index].size].reshape(shape)
        return [summed[index] for index in range(len(values))]

    def extreme(self, value: Array, *, is_max: bool) -> Array:
        """The largest or smallest of the replicas' values, on every replica; NaN where one is, as in a reduction."""
        # Not `pmax`: in XLA's CPU collectives a NaN loses against any number.
        values = self.gather(value[None], 0)
        return jnp.max(values, axis=0) if is_max else jnp.min(values, axis=0)

    def gather(self, value: Array, axis: int) -> Array:
        """The replicas' arrays joined along an axis, on every replica."""
        return self._meet("gather", functools.partial(jax.lax.all_gather, axis=axis, tiled=True), value)

    def _meet(self, operation: str, collective: Callable[[Array, str], Array], value: Array) -> Array:
        if jax.lax.axis_size(AXIS) == 1:
            return value  # XLA would keep an exchange among one
        self.meetings.append(Meeting(operation, value.shape, str(value.dtype)))
        return collective(value, AXIS)
