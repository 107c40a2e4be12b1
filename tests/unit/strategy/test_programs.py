"""Programs made by chance: whichever operations follow one another, values and gradients are those of one device."""

from __future__ import annotations

from typing import Any, NamedTuple

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from unit.strategy.replicas import QUICK, spread

LARGEST = 600


class Turn(NamedTuple):
    """One operation of a program: which, on which of the values so far, and along which axis."""

    name: str
    first: int
    second: int
    axis: int


def unary(value: Any, other: Any, axis: int, batch: int) -> Any:
    return jnp.tanh(value) if axis % 2 else -0.5 * value


def binary(value: Any, other: Any, axis: int, batch: int) -> Any:
    try:
        jnp.broadcast_shapes(value.shape, other.shape)
    except ValueError:
        other = other.mean()
    return [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum][axis % 4](value, other)


def reduced(value: Any, other: Any, axis: int, batch: int) -> Any:
    return [jnp.mean, jnp.sum, jnp.max, jnp.std][axis % 4](value + 0.1, axis=axis % value.ndim)


def centred(value: Any, other: Any, axis: int, batch: int) -> Any:
    return value - value.mean(axis % value.ndim, keepdims=True)


def weighted(value: Any, other: Any, axis: int, batch: int) -> Any:
    size = value.shape[-1]
    return value @ jnp.cos(jnp.arange(size * 3.0)).reshape(size, 3)


def crossed(value: Any, other: Any, axis: int, batch: int) -> Any:
    flat = value.reshape(value.shape[0], -1)
    return (flat.T @ flat) / len(flat) if axis % 2 else jax.nn.softmax(flat @ flat.T) @ flat


def turned(value: Any, other: Any, axis: int, batch: int) -> Any:
    return jnp.moveaxis(value, axis % value.ndim, 0)


def joined(value: Any, other: Any, axis: int, batch: int) -> Any:
    place = axis % max(value.ndim - 1, 1)
    return value.reshape(*value.shape[:place], -1, *value.shape[place + 2 :])


def parted(value: Any, other: Any, axis: int, batch: int) -> Any:
    place = axis % value.ndim
    size = value.shape[place]
    return (
        value.reshape(*value.shape[:place], batch, size // batch, *value.shape[place + 1 :])
        if size % batch == 0
        else value
    )


def widened(value: Any, other: Any, axis: int, batch: int) -> Any:
    place = axis % (value.ndim + 1)
    return jnp.repeat(jnp.expand_dims(value, place), 2, place)


def shortened(value: Any, other: Any, axis: int, batch: int) -> Any:
    place = axis % value.ndim
    return jax.lax.slice_in_dim(value, 1, None, axis=place) if value.shape[place] > 1 else value


def doubled(value: Any, other: Any, axis: int, batch: int) -> Any:
    return jnp.concatenate([value, jnp.sin(value)], axis=axis % value.ndim)


def ordered(value: Any, other: Any, axis: int, batch: int) -> Any:
    return [jnp.sort, jnp.cumsum, jax.nn.softmax][axis % 3](value, axis=axis // 3 % value.ndim)


def chosen(value: Any, other: Any, axis: int, batch: int) -> Any:
    return jnp.where(value > 0, value, jnp.cos(other.sum()))


FUNCTIONS = [unary, binary, reduced, centred, weighted, crossed, turned]
FUNCTIONS += [joined, parted, widened, shortened, doubled, ordered, chosen]
OPERATIONS = {function.__name__: function for function in FUNCTIONS}
TURNS = st.builds(Turn, st.sampled_from(sorted(OPERATIONS)), *[st.integers(0, 11)] * 3)


def run(turns: list[Turn], weight: Any, x: Any) -> list[Any]:
    """The values of a program over rows `x` `[batch, 2, 3]` and a whole `weight` `[2, 3]`."""
    values = [x, weight]
    for turn in turns:
        value, other = values[turn.first % len(values)], values[turn.second % len(values)]
        if value.ndim == 0:
            value = value * x
        new = OPERATIONS[turn.name](value, other, turn.axis, len(x))
        if new.size <= LARGEST and new.ndim <= 4:
            values.append(new)
    return values[2:]


@hypothesis.settings(max_examples=25)
@hypothesis.given(st.lists(TURNS, min_size=3, max_size=9), st.sampled_from([(8, 4), (7, 3), (5, 4), (9, 8), (3, 2)]))
def test_programs_made_by_chance_equal_one_device(turns: list[Turn], share: tuple[int, int]) -> None:
    batch, replicas = share
    rng = np.random.default_rng(len(turns))
    weight, x = (rng.uniform(-1, 1, shape) for shape in ((2, 3), (batch, 2, 3)))

    def function(weight: Any, _: Any, x: Any) -> Any:
        def objective(weight: Any, x: Any) -> Any:
            values = run(turns, weight, x)
            places = (jnp.cos(jnp.arange(v.size, dtype=v.dtype)).reshape(v.shape) for v in values)
            return sum((jnp.mean(v * place) for v, place in zip(values, places, strict=True)), jnp.sum(weight)), values

        gradients, values = jax.grad(objective, argnums=(0, 1), has_aux=True)(weight, x)
        return [*gradients, *values]

    # In 64 bits, so that programs which enlarge what rounding does still tell right from wrong.
    with jax.enable_x64(True):
        found = spread(function, weight, x, replicas)
        expected = jax.jit(function, compiler_options=QUICK)(weight, (), x)
    for place, (one, other) in enumerate(zip(found.values, expected, strict=True)):
        limit = 1e-9 * max(1.0, float(np.abs(other).max()))
        np.testing.assert_allclose(one, other, rtol=0, atol=limit, err_msg=f"value {place} of {turns}")
