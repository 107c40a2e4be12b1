"""Which rows of a batch a replica has."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.strategy.layout import AXIS, NotSplit, Rows, Share, Spread, by_rows, whole
from unit.strategy.replicas import join

SHARES = st.builds(Share, batch=st.integers(1, 300), replicas=st.integers(1, 64))


@given(SHARES)
def test_every_row_has_a_place_and_no_replica_more_than_its_part(share: Share) -> None:
    places = share.places()
    assert places.shape == (share.replicas, -(-share.batch // share.replicas))
    # Padding comes last and repeats the last row, so that the first rows in order are the batch.
    assert places.ravel()[: share.batch].tolist() == list(range(share.batch))
    assert set(places.ravel()[share.batch :].tolist()) <= {share.batch - 1}
    assert share.is_even == (places.size == share.batch)


@pytest.mark.parametrize(("batch", "replicas"), [(8, 4), (7, 3), (5, 4), (2, 8)])
@pytest.mark.parametrize("rows", [Rows(0), Rows(1), Rows(0, 3), Rows(1, 2)])
def test_parts_joined_again_are_the_whole(batch: int, replicas: int, rows: Rows) -> None:
    share = Share(batch, replicas)
    shape = [2, 3]
    shape[rows.axis] = batch * rows.factor
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)

    def replica(_: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        part = share.cut(jnp.asarray(value), rows)
        return (
            part,
            share.masked(part, rows, -1),
            share.trim(jax.lax.all_gather(part, AXIS, axis=rows.axis, tiled=True), rows),
        )

    parts, masked, gathered = jax.vmap(replica, axis_name=AXIS)(jnp.arange(replicas))
    assert parts.shape[1:] == share.local_shape(value.shape, rows)
    np.testing.assert_array_equal(join(np.asarray(parts), rows, share), value)
    np.testing.assert_array_equal(join(np.asarray(masked), rows, share), value)
    np.testing.assert_array_equal(gathered[-1], value)
    real = np.asarray(masked) != -1
    assert real.sum() == value.size
    np.testing.assert_array_equal(np.asarray(parts)[real], np.asarray(masked)[real])


def test_a_whole_piece_is_made_once_and_cut_once() -> None:
    made: list[str] = []

    def value() -> jax.Array:
        made.append("whole")
        return jnp.arange(4)

    piece = whole(jnp.arange(4))
    lazy = type(piece)(Spread.WHOLE, value)
    assert made == []
    assert lazy.value() is lazy.value()
    assert made == ["whole"]


def test_rows_of_a_piece_that_lies_otherwise_are_refused() -> None:
    piece = by_rows(jnp.zeros((2, 2)), Rows(1))
    assert piece.rows(Share(4, 2), Rows(1)) is piece.value()
    with pytest.raises(NotSplit, match="lies as Rows\\(axis=1, factor=1\\) where Rows\\(axis=0, factor=1\\) is needed"):
        piece.rows(Share(4, 2), Rows(0))
