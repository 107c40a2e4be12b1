"""What the measuring processes answer is what the readings ask for."""

from __future__ import annotations

from typing import Any

import pytest

from dure.advise import gauge, readings
from dure.advise.readings import SIZES, STREAM, product, update


def asked(devices: int) -> dict[str, Any]:
    """What this process, which has eight devices, answers."""
    sent: list[dict[str, Any]] = []
    stages: list[str] = []
    gauge.answer({"gauge": "devices", "devices": devices}, sent.append, stages.append)
    (result,) = sent
    assert stages == ["calibration"]
    assert result["event"] == "result"
    assert min(result["times"].values()) > 0
    return result


def test_one_device_is_measured_by_itself() -> None:
    found = asked(1)
    assert found["kind"] == "cpu"
    assert 0 < found["dispatch_s"] < 0.1
    assert found["times"].keys() == {product("alone"), STREAM, *(update("alone", 2, size) for size in SIZES[1:])}
    assert readings.bytes_per_s(found["times"]) > 1e6
    # Four times the bytes and more take longer: the loops are not optimized away.
    times = [found["times"][update("alone", 2, size)] for size in SIZES[1:]]
    assert times[1] > times[0]


def test_two_devices_are_measured_together_and_make_a_team() -> None:
    times = asked(2)["times"]
    team = readings.inside(2, times, times, times, cores=2)
    assert team.exchange.seconds(2, SIZES[-1]) > 0
    assert team.computing >= 1
    # An exchange of 16 MiB takes time, whatever else the machine does.
    assert times[update("sum", 2, SIZES[-1])] > times[update("sum", 2, SIZES[0])]


def test_only_what_is_known_is_measured() -> None:
    with pytest.raises(KeyError, match="gauge"):
        gauge.answer({}, lambda _: None, lambda _: None)
