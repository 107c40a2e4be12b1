"""What a caller asks advice for."""

from __future__ import annotations

import pytest

from dure.advise.options import intervals, most_devices, strategies_for
from dure.devices.inventory import Device
from dure.errors import SpecError
from unit.advise.outlooks import beside, site

CPU = [Device("cpu:0", "cpu", 1 << 34, virtual=False, model="a processor")]
GPUS = [Device(f"gpu:{n}", "gpu", 1 << 36, virtual=False, model="a GPU") for n in range(4)]


def test_one_way_to_meet_or_several() -> None:
    assert intervals("step, 10,100, epoch") == ("step", 10, 100, "epoch")
    assert intervals("epoch") == ("epoch",)
    assert intervals(16) == (16,)
    assert intervals(["step", 16, "16"]) == ("step", 16)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("step,often", r"sync_every is 'often'; it is"),
        (0, "sync_every is 0"),
        (" , ", "names no interval; write `step`"),
    ],
)
def test_another_way_is_refused(asked: object, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        intervals(asked)  # type: ignore[arg-type]


def test_the_machines_choose_where_nobody_does() -> None:
    assert strategies_for(None, None, CPU) == ("single", "mirrored:2", "mirrored:4", "multi-worker:2")
    assert strategies_for(None, None, GPUS) == ("single", "mirrored:2", "mirrored:4")
    assert strategies_for(None, None, GPUS[:1]) == ("single",)
    assert strategies_for(None, site(), CPU) == ("single", "mirrored:2", "mirrored:8", "multi-worker:16")
    assert strategies_for(None, beside(), CPU) == ("single",)


def test_single_is_always_there_and_first() -> None:
    assert strategies_for("mirrored:2,single", None, CPU) == ("single", "mirrored:2")
    assert strategies_for(["multi-worker:2"], None, CPU) == ("single", "multi-worker:2")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("mirrored:9", r"`mirrored:9` needs 9 devices, and of `gpu`, the fastest of a-site, its fullest machine has 8"),
        ("mirrored:16", r"ask for at most 8, or `multi-worker:16` over several"),
        ("multi-worker:17", r"all its machines have 16; ask for at most 16$"),
    ],
)
def test_more_than_the_machines_have_is_refused(asked: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        strategies_for(asked, site(), CPU)


def test_more_accelerators_than_there_are_are_refused() -> None:
    with pytest.raises(SpecError, match=r"`mirrored:5` needs 5 devices"):
        strategies_for("mirrored:5", None, GPUS)


def test_how_many_devices_are_looked_at() -> None:
    assert most_devices(("single", "mirrored:2"), None, CPU, 2) == 4
    assert most_devices(("single", "mirrored:8"), None, CPU, 2) == 8
    assert most_devices(("single",), None, CPU, 16) == 16
    assert most_devices(("single", "mirrored:2"), None, GPUS, 64) == 4
    assert most_devices(("single",), site(), CPU, 2) == 16
