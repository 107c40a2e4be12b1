"""What a strategy takes, refuses and says of itself."""

from __future__ import annotations

from typing import Any

import jax
import pytest

from dure.errors import ClosedError, SpecError
from dure.strategy.local import LocalRunner
from dure.strategy.mirrored import Mirrored, SingleDevice
from dure.strategy.spmd import MeshRunner
from unit.strategy.engine import network


def test_a_single_device_is_one_replica() -> None:
    with SingleDevice() as strategy:
        assert (strategy.num_replicas, strategy.is_chief) == (1, True)
        assert str(strategy) == "SingleDevice(cpu:0)"
        runner = strategy.open(network())
        assert isinstance(runner, MeshRunner)
        assert runner.resident_bytes > 0
    assert SingleDevice(device="cpu:2").devices[0].name == "cpu:2"


def test_a_mirror_has_a_copy_on_each_device() -> None:
    strategy = Mirrored(num_devices=3)
    assert (strategy.num_replicas, strategy.is_chief) == (3, True)
    runner: Any = strategy.open(network())
    assert list(runner.mesh.devices.ravel()) == jax.devices()[:3]
    assert Mirrored().num_replicas == 8
    assert Mirrored(devices=["cpu:4", "cpu:1"]).num_replicas == 2
    assert str(Mirrored(devices=["cpu:4", "cpu:1"], sync_every=5)) == "Mirrored(cpu:4, cpu:1, sync_every=5)"


def test_how_often_replicas_meet_decides_the_engine() -> None:
    assert isinstance(Mirrored(num_devices=2).open(network()), MeshRunner)
    for sync_every in (1, 100, "epoch"):
        strategy = Mirrored(num_devices=2, sync_every=sync_every, optimizer_state="keep")  # type: ignore[arg-type]
        assert isinstance(strategy.open(network()), LocalRunner)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_devices": 9}, r"asked Mirrored for 9 devices: need 9, have 8 of the fastest kind \(cpu:0, .*cpu:7\)"),
        ({"num_devices": 0}, r"asked Mirrored for 0 devices; it takes a whole number from 1 on"),
        ({"num_devices": 2, "devices": ["cpu:0"]}, r"2 devices and for \['cpu:0'\] by name; give one of the two"),
        ({"devices": ["cpu:0", "cpu:0"]}, r"cpu:0 more than once"),
        ({"sync_every": 0}, r'sync_every=0; it is "step", "epoch", or a number of steps from 1 on'),
        ({"sync_every": True}, r'sync_every=True; it is "step"'),
        ({"sync_every": "batch"}, r"sync_every='batch'; it is \"step\""),
        ({"optimizer_state": "drop"}, r"optimizer_state='drop'; it is \"average\" or \"keep\""),
    ],
)
def test_what_cannot_be_is_refused_in_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Mirrored(**options)


def test_there_are_no_servers_to_train_at() -> None:
    with pytest.raises(SpecError, match=r"asked to train at `10\.0\.0\.1:2222`, .*no servers to train at"):
        SingleDevice("10.0.0.1:2222")


@pytest.mark.parametrize("make", [SingleDevice, Mirrored])
def test_a_closed_strategy_opens_nothing(make: Any) -> None:
    strategy = make()
    with strategy:
        pass
    strategy.close()  # twice is fine
    with pytest.raises(ClosedError, match=r"(SingleDevice|Mirrored)\(cpu:0.*\) is closed: .*make a new one"):
        strategy.open(network())
