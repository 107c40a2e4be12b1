"""Collectives: what they give, and that on CPU devices each waits for the one before."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dure.strategy.exchange import Exchange
from dure.strategy.layout import AXIS


def test_sums_extremes_and_joined_rows_are_on_every_replica() -> None:
    def replica(value: Any) -> Any:
        exchange = Exchange(one_at_a_time=True)
        results = (
            exchange.sum(value),
            exchange.sum(value > 1),
            exchange.extreme(value, is_max=True),
            exchange.extreme(value, is_max=False),
            exchange.gather(value, 0),
        )
        operations = [meeting.operation for meeting in exchange.meetings]
        assert operations == ["sum", "gather", "gather", "gather", "gather"]
        assert [meeting.shape for meeting in exchange.meetings] == [(2,), (1, 2), (1, 2), (1, 2), (2,)]
        return results

    values = np.array([[1.0, np.nan], [4.0, 0.5], [-2.0, 0.0]], np.float32)
    found = jax.vmap(replica, axis_name=AXIS)(values)
    expected = (values.sum(0), (values > 1).any(0), values.max(0), values.min(0), values.ravel())
    for one, other in zip(found, expected, strict=True):
        for replica_value in one:
            np.testing.assert_array_equal(replica_value, other)


@pytest.mark.parametrize("one_at_a_time", [True, False])
def test_each_collective_waits_for_the_one_before_where_asked(one_at_a_time: bool) -> None:
    def replica(first: Any, second: Any) -> Any:
        exchange = Exchange(one_at_a_time=one_at_a_time)
        return exchange.sum(first), exchange.sum(second)

    traced = jax.make_jaxpr(replica, axis_env=[(AXIS, 2)])(jnp.ones(2), jnp.ones(3))
    names = [equation.primitive.name for equation in traced.jaxpr.eqns]
    assert names.count("optimization_barrier") == (1 if one_at_a_time else 0)


def test_what_follows_an_exchange_in_a_loop_waits_for_it() -> None:
    def replica(value: Any) -> Any:
        exchange = Exchange(one_at_a_time=True)
        assert exchange.after([value])[0] is value  # nothing to wait for yet
        total = exchange.sum(value)
        (later,) = exchange.after([value])
        assert later is not value
        exchange.follow([later])
        return total + exchange.sum(later)

    found = jax.vmap(replica, axis_name=AXIS)(jnp.ones((2, 1)))
    np.testing.assert_array_equal(found, np.full((2, 1), 4.0))
