"""What a calibration's values say, and their dictionary form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.advise.calibration import Calibration, Exchange, Point, interpolated
from dure.errors import SpecError
from unit.advise.outlooks import US, calibration

LINE = (Point(10, 1.0), Point(20, 3.0), Point(40, 4.0))


@pytest.mark.parametrize(
    ("size", "seconds"), [(10, 1.0), (15, 2.0), (20, 3.0), (30, 3.5), (40, 4.0), (60, 5.0), (5, 0.0), (0, 0.0)]
)
def test_between_the_points_and_beyond_them_the_lines_go_on_but_never_below_zero(size: float, seconds: float) -> None:
    assert interpolated(LINE, size) == pytest.approx(seconds)


def test_one_point_holds_for_all_sizes() -> None:
    assert interpolated(LINE[:1], 1e9) == 1.0


@given(st.floats(0, 1e12), st.floats(0, 1e12), st.integers(1, 100))
def test_an_exchange_of_more_takes_as_long_or_longer(one: float, other: float, arrays: int) -> None:
    exchange = Exchange((Point(1e3, 20 * US), Point(1e6, 90 * US), Point(1e7, 4000 * US)), 4, 2 * US)
    few, many = sorted((one, other))
    assert 0 < exchange.seconds(arrays, few) <= exchange.seconds(arrays, many)
    assert exchange.seconds(arrays, few) <= exchange.seconds(arrays + 1, few)


def test_below_the_smallest_size_the_latency_is_left() -> None:
    exchange = Exchange((Point(1e3, 20 * US), Point(1e6, 90 * US)), 1, 0.0)
    assert exchange.seconds(1, 1) == exchange.seconds(1, 1e3) == 20 * US


def test_a_calibration_survives_json() -> None:
    found = calibration(notes=("a note",))
    assert Calibration.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 99}, "format 99 was given, this version reads format 1"),
        ({"inside": 3}, "lacks something or has something else"),
        ({"between": [{"number": 2}]}, r"KeyError: 'exchange'\); measure again with `dure devices --calibrate`"),
        ({"colour": "blue"}, "colour"),
    ],
)
def test_what_is_no_calibration_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        Calibration.from_dict({**calibration().to_dict(), **change})
