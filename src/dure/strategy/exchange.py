"""How the replicas' parts meet: XLA's collectives, in one order on every replica."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

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

    On CPU devices each is written after the one before, so that their order is the traced program's on every replica:
    an in-process collective holds a thread of the pool until all replicas have come to it. XLA takes the barriers out
    again before it joins the sums, so they cost nothing. Elsewhere the order is left to XLA, which overlaps exchanges
    with computing. What keeps dispatches from starving one another is `spmd.MOST_IN_FLIGHT`.

    Args:
        one_at_a_time: chain them.
    """

    def __init__(self, *, one_at_a_time: bool) -> None:
        self.one_at_a_time = one_at_a_time
        """Whether each waits for the one before."""
        self._last: Array | None = None
        self.meetings: list[Meeting] = []
        """What was exchanged so far, in order; what a loop or a branch exchanges is with it, once."""

    def sum(self, value: Array) -> Array:
        """The sum of the replicas' parts, on every replica; of truth values, whether any is true."""
        if value.dtype == jnp.bool_:
            return self.extreme(value, is_max=True)
        return self._meet("sum", jax.lax.psum, value)

    def extreme(self, value: Array, *, is_max: bool) -> Array:
        """The largest or smallest of the replicas' values, on every replica; NaN where one is, as in a reduction."""
        # Not `pmax`: in XLA's CPU collectives a NaN loses against any number.
        values = self.gather(value[None], 0)
        return jnp.max(values, axis=0) if is_max else jnp.min(values, axis=0)

    def gather(self, value: Array, axis: int) -> Array:
        """The replicas' arrays joined along an axis, on every replica."""
        return self._meet("gather", functools.partial(jax.lax.all_gather, axis=axis, tiled=True), value)

    def after(self, values: list[Array]) -> list[Array]:
        """The values, not there before the last collective is done: what is made of them may exchange in its turn."""
        if not self.one_at_a_time or self._last is None or not values:
            return values
        *values, _ = jax.lax.optimization_barrier([*values, self._last])
        return values

    def follow(self, values: list[Array]) -> None:
        """Makes the next collective wait for these values, whose making may have exchanged."""
        if values:
            self._last = values[0]

    def inside(self) -> "Exchange":
        """The exchange of a loop's or a branch's body, whose chain is its own and whose meetings are listed here."""
        inner = Exchange(one_at_a_time=self.one_at_a_time)
        inner.meetings = self.meetings
        return inner

    def _meet(self, operation: str, collective: Callable[[Array, str], Array], value: Array) -> Array:
        if jax.lax.axis_size(AXIS) == 1:
            return value  # XLA would keep an exchange among one
        if self.one_at_a_time and self._last is not None:
            value, _ = jax.lax.optimization_barrier((value, self._last))
        self.meetings.append(Meeting(operation, value.shape, str(value.dtype)))
        self._last = collective(value, AXIS)
        return self._last
