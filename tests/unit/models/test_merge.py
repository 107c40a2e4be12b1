"""Which results are running sums of an argument."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from dure.models.merge import is_running_sum


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda total, x: total + x.sum(), True),
        (lambda total, x: x.sum() + (total + 1.0), True),
        (lambda total, x: total, True),
        (lambda total, x: (total.astype("float16") + x.sum().astype("float16")).astype("float32"), True),
        (lambda total, x: jnp.maximum(total, x.max()), False),
        (lambda total, x: 0.9 * total + x.sum(), False),
        (lambda total, x: total + total, False),
        (lambda total, x: total + jnp.where(total > 0, x.sum(), 0.0), False),
        (lambda total, x: x.sum(), False),
        (lambda total, x: 1.0, False),
        (lambda total, x: x, False),
        # What is hidden in a program of its own is not looked into.
        (lambda total, x: jax.jit(lambda total: total + 1.0)(total), False),
    ],
)
def test_only_what_adds_is_a_running_sum(step: Any, expected: bool) -> None:
    program = jax.make_jaxpr(step)(jnp.zeros(()), jnp.ones(3))
    assert is_running_sum(program, 0, 0) is expected
