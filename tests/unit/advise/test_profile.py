"""What the cost model has to know of a model: steps by rows, and what its replicas exchange."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dure
from dure.advise import profile as module
from dure.advise.profile import profile

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 12)).astype(np.float32)
Y = (np.arange(64) % 3).astype(np.int32)
WEIGHTS_BYTES = 4 * (12 * 5 + 5 + 5 * 3)


def model(**changes: Any) -> dure.Model:
    def init(key: jax.Array) -> dict[str, jax.Array]:
        first, second = jax.random.split(key)
        return {"a": jax.random.normal(first, (12, 5)), "b": jnp.zeros(5), "c": jax.random.normal(second, (5, 3))}

    def apply(params: Any, x: jax.Array, *, key: jax.Array, training: bool) -> jax.Array:
        return jax.nn.relu(x @ params["a"] + params["b"]) @ params["c"]

    values: dict[str, Any] = {
        "init": init,
        "apply": apply,
        "loss": optax.softmax_cross_entropy_with_integer_labels,
        "optimizer": optax.adam(1e-3),
    }
    return dure.Model(**{**values, **changes})


def profiled(of: object, **changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"rows": (8, 32), "measure_s": 0.01, "counted": False}
    with dure.SingleDevice(device="cpu:0") as strategy:
        return profile(of, strategy, X, Y, **{**options, **changes})


def test_steps_are_measured_at_each_number_of_rows() -> None:
    found = profiled(model())
    assert [rows for rows, _ in found["points"]] == [8, 32]
    assert all(0 < seconds < 1 for _, seconds in found["points"])
    assert found["first_step_s"] > 0
    assert (found["flops"], found["traffic"]) == ([], [])


def test_replicas_exchange_each_gradient_inside_a_process_and_one_message_between_them() -> None:
    found = profiled(model())
    assert found["gradients"] == (3, WEIGHTS_BYTES, 1)
    # Weights and two moments; Adam's count, the step, and the model's key.
    arrays, size_bytes, _ = found["state"]
    assert found["state_bytes"] == size_bytes
    assert 3 * WEIGHTS_BYTES < size_bytes < 3 * WEIGHTS_BYTES + 64
    assert arrays >= 9


def test_xla_counts_operations_and_bytes() -> None:
    found = profiled(model(), counted=True)
    (few, small), (many, large) = found["flops"]
    assert (few, many) == (8, 32)
    # Forward, and back for weights of both layers and for the hidden one: 2 x rows x weights each.
    assert large - small > 2 * 2 * 24 * (12 * 5 + 5 * 3)
    assert found["traffic"][1][1] > found["traffic"][0][1] > 3 * WEIGHTS_BYTES


def test_after_a_long_step_no_larger_batch_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONG_STEP_S", 0.0)
    assert [rows for rows, _ in profiled(model())["points"]] == [8]


def test_what_cannot_be_split_exchanges_its_gradients() -> None:
    def printing(params: Any, x: jax.Array, *, key: jax.Array, training: bool) -> jax.Array:
        jax.debug.callback(lambda: None)
        return x @ params["a"] @ params["c"] + params["b"][:3]

    assert profiled(model(apply=printing))["gradients"] == (3, WEIGHTS_BYTES, 3)
