from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.errors import SpecError
from dure.models.streams import decode, encode, next_key, seed_key, split_key, wrap


@given(st.integers(0, 2**31 - 1))
def test_the_key_of_a_seed_is_that_of_jax(seed: int) -> None:
    assert seed_key(seed).tolist() == jax.random.key_data(jax.random.key(seed)).tolist()


@given(st.integers(-(2**70), 2**70))
def test_every_whole_number_is_a_seed(seed: int) -> None:
    data = seed_key(seed)
    assert (data.shape, data.dtype) == ((2,), np.uint32)
    assert np.array_equal(data, seed_key(np.int64(seed))) if abs(seed) < 2**63 else True


@pytest.mark.parametrize("seed", [1.0, "0", None, True])
def test_anything_else_is_none(seed: object) -> None:
    with pytest.raises(SpecError, match=r"seed is .*give a whole number"):
        seed_key(seed)  # type: ignore[arg-type]


def test_the_keys_of_steps_give_independent_draws() -> None:
    _, data = split_key(seed_key(0))
    draws = []
    for _ in range(64):
        draws.append(np.asarray(jax.random.normal(wrap(data), (256,))))
        data = next_key(data)
    correlation = np.corrcoef(np.stack(draws))
    assert np.abs(correlation - np.eye(64)).max() < 0.35


def test_steps_of_neighbouring_seeds_do_not_meet() -> None:
    seen = set()
    for seed in range(50):
        _, data = split_key(seed_key(seed))
        for _ in range(20):
            seen.add(tuple(np.asarray(data).tolist()))
            data = next_key(data)
    assert len(seen) == 1000


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_keys_within_a_state_come_back_as_they_were(impl: str) -> None:
    tree = {"key": jax.random.key(3, impl=impl), "mean": np.ones(2)}
    plain = encode(tree)
    assert all(leaf.dtype in (np.uint32, np.float64) for leaf in jax.tree.leaves(plain))
    back = decode(jax.tree.map(np.asarray, plain))
    assert jax.random.key_impl(back["key"]) == jax.random.key_impl(tree["key"])
    assert jax.random.bits(back["key"]) == jax.random.bits(tree["key"])
