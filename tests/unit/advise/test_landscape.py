"""The drawings of advice, as numbers."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.advise.counsel import counsel
from dure.advise.landscape import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    WIDTH,
    Landscape,
    against_batch,
    against_devices,
    logarithmic,
)
from dure.advise.outlook import Outlook
from dure.advise.record import Facts
from unit.advise.outlooks import LARGE, SEED, calibration, outlook, separate, site

PAYS = outlook(LARGE, separate(8, 2e-3), strategies=("single", "mirrored:2", "mirrored:8"), batch_size=512, most=8)
SITE = outlook(
    LARGE, site=site(), strategies=("single", "mirrored:2", "mirrored:8", "multi-worker:16"), batch_size=1024
)


def both(asked: Outlook) -> list[Landscape]:
    found = [against_batch(counsel(asked)), against_devices(counsel(asked))]
    assert None not in found
    return [one for one in found if one]


@pytest.mark.parametrize("asked", [outlook(), PAYS, SITE], ids=["seed", "pays", "site"])
def test_everything_lies_inside_and_labels_lie_apart(asked: Outlook) -> None:
    for drawn in both(asked):
        for curve in drawn.curves:
            for pair in curve.points.split():
                x, y = map(float, pair.split(","))
                assert LEFT <= x <= WIDTH - RIGHT
                assert drawn.top - 0.01 <= y <= HEIGHT - BOTTOM + 0.01
        heights = [mark.label_y for mark in drawn.marks]
        assert all(low + 14 <= high for low, high in itertools.pairwise(heights))
        assert all(height < drawn.top for height in heights)
        for mark in drawn.marks:
            width = 6.6 * len(mark.label)  # of letters of 12 units
            assert mark.x - width >= 0 if mark.is_left else mark.x + width <= WIDTH
        places = [tick.place for tick in drawn.y_ticks]
        assert all(high - low >= 12 for low, high in zip(places[1:], places, strict=False))


def test_the_crossing_lies_where_the_lines_meet() -> None:
    drawn = against_batch(counsel(PAYS))
    assert drawn is not None
    (line,) = (one for one in counsel(PAYS).lines if (one.strategy, one.sync_every) == ("mirrored:2", "step"))
    low = line.pays[-1][0]
    (mark,) = (one for one in drawn.marks if one.label == f"mirrored:2: {low:,}")
    assert drawn.curves[mark.colour].name == "mirrored:2"
    (single_y,) = {float(pair.split(",")[1]) for pair in drawn.curves[0].points.split()}
    assert mark.y == pytest.approx(single_y, abs=4)
    share = math.log(low) / math.log(60_000)
    assert mark.x == pytest.approx(LEFT + (WIDTH - LEFT - RIGHT) * share, abs=0.1)
    assert f"Faster than one device from: mirrored:2: {low:,}" in drawn.text


def test_what_was_asked_is_marked() -> None:
    drawn = against_batch(counsel(outlook()))
    assert drawn is not None
    assert [(mark.label, mark.colour) for mark in drawn.marks if mark.colour < 0] == [("asked: 25", -1)]
    assert "Faster than one device from: " in drawn.text


def test_over_devices_there_is_one_line_a_kind_and_a_mark_where_it_pays() -> None:
    drawn = against_devices(counsel(PAYS))
    assert drawn is not None
    assert [curve.name for curve in drawn.curves] == ["single", "mirrored", "mirrored, every epoch"]
    assert "mirrored: 2" in [mark.label for mark in drawn.marks]
    assert [tick.label for tick in drawn.x_ticks] == ["1", "2", "4", "8"]
    assert len(drawn.curves[1].marks) == 8


def test_nothing_is_drawn_where_there_is_nothing_to_set_against_one_device() -> None:
    alone = counsel(outlook(strategies=("single",)))
    assert (against_batch(alone), against_devices(alone)) == (None, None)
    unknown = counsel(outlook(here=calibration(inside=(), between=())))
    assert (against_batch(unknown), against_devices(unknown)) == (None, None)
    assert against_batch(counsel(outlook(facts=Facts(1)))) is None


def test_a_line_that_falls_to_nothing_far_below_what_was_measured_is_not_drawn_there() -> None:
    points = tuple(point._replace(seconds=point.size * 1e-6 - 4e-6) for point in SEED.points)
    asked = outlook(replace(SEED, points=points, points_one=()), separate(2), strategies=("single", "mirrored:2"))
    drawn = against_batch(counsel(replace(asked, most=64)))
    assert drawn is not None
    assert all(curve.points for curve in drawn.curves)
    assert against_devices(counsel(replace(asked, most=64))) is not None


@given(st.floats(1e-7, 1e4), st.floats(1.5, 1e8))
def test_logarithmic_marks_are_few_and_lie_inside(low: float, factor: float) -> None:
    found = logarithmic(low, low * factor)
    assert found == tuple(sorted(set(found)))
    assert 2 <= len(found) <= 8
    assert found[0] >= low * 0.999
    assert found[-1] <= low * factor * 1.001
