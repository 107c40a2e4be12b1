"""A replica's rows of a draw are the single device's rows, bit for bit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dure.strategy.draws import can_draw_rows, draw_rows


@pytest.mark.parametrize("shape", [(9,), (9, 5), (9, 3, 2), (2**9, 2**9)])
def test_any_rows_are_those_of_the_whole_draw(shape: tuple[int, ...]) -> None:
    key = jax.random.key(11)
    expected = np.asarray(jax.random.bits(key, shape))
    rows = np.array([0, 3, 4, 8, 8])
    found = draw_rows(key, jnp.asarray(rows, jnp.int32), (len(rows), *shape[1:]))
    np.testing.assert_array_equal(found, expected[rows])


def test_draws_of_another_kind_are_left_whole() -> None:
    key = jax.random.key(0)
    assert can_draw_rows(key, bit_width=32, shape=(4, 2))
    assert not can_draw_rows(key, bit_width=8, shape=(4, 2))
    assert not can_draw_rows(jax.random.split(key, 4), bit_width=32, shape=(2,))
    assert not can_draw_rows(jax.random.key(0, impl="rbg"), bit_width=32, shape=(4, 2))
    assert not can_draw_rows(key, bit_width=32, shape=(2**16, 2**16))
    with jax.threefry_partitionable(False):
        assert not can_draw_rows(key, bit_width=32, shape=(4, 2))
