"""Unlike devices side by side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.advise.pace import pace, shares
from dure.advise.reckon import exchange_s, step_s
from unit.advise.outlooks import LARGE, beside, site


def test_the_cpu_sets_the_pace_with_equal_shares() -> None:
    found = beside()
    met = pace(found, LARGE, 512, 0.4)
    assert met is not None
    assert (met.slowest.name, met.fastest.name, met.share) == ("cpu", "gpu", 256)
    cpu_s, gpu_s = (step_s(found.devices[name], LARGE, 256, 0.4) for name in ("cpu", "gpu"))
    assert met.factor == pytest.approx(cpu_s / gpu_s)
    assert met.factor == pytest.approx(60, rel=0.2)  # 60 TFLOP/s beside 1
    met_s = exchange_s(found, (2,), LARGE.gradients.size_bytes)
    assert met.equal_s == pytest.approx(cpu_s + met_s)
    assert met.without_s == pytest.approx(step_s(found.best, LARGE, 512, 0.4))
    assert met.equal_s > 10 * met.without_s


def test_shares_by_speed_end_together() -> None:
    found = beside(20e12, bytes_per_s="1 TB/s")
    met = pace(found, LARGE, 8192, 0.4)
    assert met is not None
    rows = {member.name: member.rows for member in met.members}
    assert sum(rows.values()) == 8192
    ends = [step_s(found.devices[name], LARGE, rows[name], 0.4) for name in rows]
    assert max(ends) == pytest.approx(min(ends), rel=0.01)
    assert rows["gpu"] == pytest.approx(3 * rows["cpu"], rel=0.05)
    assert met.fitted_s < met.without_s < met.equal_s


def test_a_device_that_is_slower_to_start_than_the_rest_is_to_end_gets_nothing() -> None:
    met = pace(beside(1e12, dispatch_s="1 s"), LARGE, 512, 0.4)
    assert met is not None
    assert {member.name: member.rows for member in met.members} == {"cpu": 0, "gpu": 512}
    assert met.fitted_s == met.without_s


def test_like_devices_have_one_pace() -> None:
    assert pace(site(), LARGE, 512, 0.4) is None


def test_the_fast_ones_among_themselves_are_what_the_slow_ones_are_set_against() -> None:
    devices = {"gpu": {**vars_of("gpu")}, "old": {**vars_of("gpu"), "flops_per_s": 1e12}}
    found = site(devices=devices, machines={"box": {"devices": {"gpu": 3, "old": 1}}})
    met = pace(found, LARGE, 400, 0.4)
    assert met is not None
    assert (met.slowest.name, met.slowest.number, met.fastest.number) == ("old", 1, 3)
    own_s = step_s(found.best, LARGE, 134, 0.4) + exchange_s(found, (3,), LARGE.gradients.size_bytes)
    assert met.without_s == pytest.approx(own_s)


def vars_of(kind: str) -> dict[str, object]:
    return {"kind": kind, "flops_per_s": 60e12, "bytes_per_s": 2e12}


@given(st.integers(1, 5000), st.floats(1e11, 6e13), st.integers(1, 3), st.integers(1, 3))
def test_every_row_is_given_once_and_no_other_shares_end_earlier(
    batch_size: int, flops_per_s: float, gpus: int, cpus: int
) -> None:
    found = beside(flops_per_s)
    crew = [found.devices["gpu"]] * gpus + [found.devices["cpu"]] * cpus
    rows = shares(crew, LARGE, batch_size, 0.4)
    assert sum(rows) == batch_size
    assert min(rows) >= 0
    last_s = max(step_s(one, LARGE, count, 0.4) for one, count in zip(crew, rows, strict=True) if count)
    equal = -(-batch_size // len(crew))
    assert last_s <= max(step_s(one, LARGE, equal, 0.4) for one in crew) * (1 + 1e-9)
