"""Replicas that are no longer equal are found and named."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.errors import StepError
from dure.strategy.group import ALONE
from dure.strategy.mirrored import Mirrored, SingleDevice
from dure.train.digest import check_equal, diverged
from unit.strategy.engine import network


def with_a_flipped_bit(leaf: Any, replica: int) -> Any:
    """A placed leaf, the last bit of one number of which differs on one replica."""
    parts = [np.array(shard.data) for shard in leaf.addressable_shards]
    words = parts[replica].reshape(-1).view(np.uint32)
    words[-1] ^= 1
    devices = [shard.device for shard in leaf.addressable_shards]
    placed = [jax.device_put(part, device) for part, device in zip(parts, devices, strict=True)]
    return jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, placed)


def placed_on(strategy: Any) -> Any:
    model = network()
    return strategy.open(model).place(model.init(0))


def test_equal_replicas_pass() -> None:
    for strategy in (SingleDevice(), Mirrored(num_devices=3), Mirrored(num_devices=3, sync_every=2)):
        check_equal(placed_on(strategy), ALONE, step=1)


@pytest.mark.parametrize("replica", range(3))
def test_one_bit_on_one_replica_is_found_and_its_tensor_named(replica: int) -> None:
    placed = placed_on(Mirrored(num_devices=3))
    placed = placed._replace(params={"w": with_a_flipped_bit(placed.params["w"], replica)})
    words = (
        rf"all 3 replicas are to be equal after step 40, and `params\['w'\]` of replica {replica} has other bits than "
        r"the others have\. .* Go back to an earlier checkpoint"
    )
    with pytest.raises(StepError, match=words) as caught:
        check_equal(placed, ALONE, step=40)
    assert (caught.value.node, caught.value.step, caught.value.task) == ("params['w']", 40, None)


def test_it_is_found_under_local_sgd_too() -> None:
    placed = placed_on(Mirrored(num_devices=2, sync_every="epoch"))
    params = {"w": with_a_flipped_bit(placed.state.params["w"], 1)}
    with pytest.raises(StepError, match="of replica 1 has other bits"):
        check_equal(placed._replace(state=placed.state._replace(params=params)), ALONE, step=4)


def test_what_each_replica_keeps_of_its_own_is_not_compared() -> None:
    placed = placed_on(Mirrored(num_devices=2))
    check_equal(placed._replace(key=with_a_flipped_bit(placed.key, 1)), ALONE, step=1)


@given(st.data())
def test_the_one_that_differs_from_most_is_named(data: Any) -> None:
    each = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4).filter(lambda each: sum(each) > 2))
    tensors = data.draw(st.integers(1, 4))
    number, tensor = data.draw(st.integers(0, sum(each) - 1)), data.draw(st.integers(0, tensors - 1))
    told = [[["same"] * tensors for _ in range(count)] for count in each]
    worker, place = [(w, p) for w, count in enumerate(each) for p in range(count)][number]
    told[worker][place][tensor] = "other"
    found = diverged([f"t{n}" for n in range(tensors)], told)
    assert found == (f"t{tensor}", 0, number, worker, sum(each), len(each))


def test_of_two_the_second_is_named_and_how_much_differs() -> None:
    found = diverged(["a", "b", "c"], [[["1", "2", "3"]], [["1", "0", "0"]]])
    assert found == ("b", 1, 1, 1, 2, 2)
