"""What is asked for, read and refused before any process starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dure.advise.ask import check_devices, checked, strategy_names, sync_interval
from dure.advise.record import Settings
from dure.devices.inventory import Device
from dure.errors import SpecError

OPTIONS = Settings("m", "d", ("single",), batch_size=25, epochs=10)


def test_names_have_one_spelling() -> None:
    assert strategy_names(" single , mirrored:02,") == ("single", "mirrored:2")
    assert strategy_names(["mirrored:1"]) == ("mirrored:1",)
    assert strategy_names("multi-worker:02, multi-worker:256") == ("multi-worker:2", "multi-worker:256")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            "single,mirored:2",
            r"strategy `mirored:2` is not known. Did you mean `mirrored`\? There are: mirrored, multi-worker, single. ",
        ),
        (
            "horovod",
            r"There are: mirrored, multi-worker, single. Write `single`, `mirrored:N` for N devices of one process, or",
        ),
        ("multi-workers:2", r"strategy `multi-workers:2` is not known. Did you mean `multi-worker`\?"),
        (
            "multi-worker",
            r"strategy `multi-worker` lacks its number of processes; write it after a colon, as `multi-worker:2`",
        ),
        (
            "multi-worker:0",
            r"`multi-worker:0` has `0` for its number of processes; give a whole number from 1 to 256, as in `multi",
        ),
        ("multi-worker:257", r"give a whole number from 1 to 256"),
        (
            "mirrored",
            r"strategy `mirrored` lacks its number of devices; write it after a colon, as `mirrored:2`",
        ),
        (
            "mirrored:0",
            r"strategy `mirrored:0` has `0` for its number of devices; give a whole number from 1 to 1024",
        ),
        ("mirrored:two", r"strategy `mirrored:two` has `two` for its number of devices"),
        ("mirrored:4096", r"give a whole number from 1 to 1024"),
        ("single:2", r"strategy `single:2` has a number, and `single` trains on one device"),
        ("single,mirrored:2,mirrored:2", r"strategy `mirrored:2` comes 2 times .* name it once"),
        (" , ", r"no strategy was given to compare"),
        ([object()], r"was given as object; .* name it, as in strategies="),
    ],
)
def test_a_strategy_that_is_none_is_refused(asked: object, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        strategy_names(asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", ["never", 0, -3, 1.5, True, "", "1e3"])
def test_an_interval_that_is_none_is_refused(asked: object) -> None:
    with pytest.raises(SpecError, match=r"sync_every is .*; it is `step`, `epoch` or a number of steps from 1"):
        sync_interval(asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_size": 0}, "batch_size is 0; give a whole number from 1 on"),
        ({"epochs": -1}, "epochs is -1; give a whole number from 1 on"),
        ({"repeat": 0}, "repeat is 0"),
        ({"repeat": 1.5}, "repeat is 1.5"),
        ({"seed": -1}, "seed is -1; give a whole number from 0 on"),
        ({"timeout_s": 0}, "timeout_s is 0; give the seconds"),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        checked(replace(OPTIONS, **changes))  # type: ignore[arg-type]


def test_what_makes_sense_is_taken() -> None:
    assert checked(replace(OPTIONS, sync_every="16", timeout_s=60)).sync_every == 16


def test_more_accelerators_than_there_are_is_refused_and_cpus_are_rehearsed() -> None:
    cpu = Device("cpu:0", "cpu", 2**30, virtual=False, model="a processor")
    gpus = [Device(f"gpu:{n}", "gpu", 2**30, virtual=False, model="an accelerator") for n in range(2)]
    check_devices(("single", "mirrored:8"), [cpu])
    check_devices(("single", "mirrored:2"), [cpu, *gpus])
    check_devices(("mirrored:8",), [cpu, replace(gpus[0], virtual=True)])
    with pytest.raises(SpecError, match=r"`multi-worker:3` needs 3 devices, one a process, and this machine has 2"):
        check_devices(("single", "multi-worker:3"), [cpu, *gpus])
    check_devices(("multi-worker:3",), [cpu])
    with pytest.raises(SpecError, match=r"`mirrored:4` needs 4 devices, and this machine has 2 .*: gpu:0, gpu:1; ask"):
        check_devices(("single", "mirrored:4"), [cpu, *gpus])
