"""Collectives: what they give, and that nothing holds them back."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dure.strategy.exchange import Exchange
from dure.strategy.layout import AXIS


def test_sums_extremes_and_joined_rows_are_on_every_replica() -> None:
    def replica(value: Any) -> Any:
        exchange = Exchange()
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


def test_the_collectives_are_left_to_xla_to_order() -> None:
    def replica(first: Any, second: Any) -> Any:
        exchange = Exchange()
        return exchange.sum(first), exchange.sum(second)

    traced = jax.make_jaxpr(replica, axis_env=[(AXIS, 2)])(jnp.ones(2), jnp.ones(3))
    assert [equation.primitive.name for equation in traced.jaxpr.eqns] == ["psum", "psum"]
