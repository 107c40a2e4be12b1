"""Where the drawings of a report put things."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.advise import chart
from unit.advise.records import MS, loses_to, probes, record, trial


def test_bars_are_as_long_as_the_times() -> None:
    single, mirrored = chart.bars(record({"single": (8.0, 8.2), "mirrored:2": (16.2, 16.2), "mirrored:4": ()}))
    assert mirrored.width == pytest.approx(2 * single.width)
    assert single.low < single.width < single.high <= 100
    assert (mirrored.name, mirrored.colour, mirrored.label) == ("mirrored:2", 1, "16.2 s")
    assert single.title == "single: 8.00 s, 8.20 s"


@given(chain=st.lists(st.floats(1e-6, 1e-2), min_size=5, max_size=5))
def test_the_pieces_of_a_step_end_where_the_step_does(chain: list[float]) -> None:
    measured = record({"single": (1.0,), "mirrored:2": (1.0,)}, probes("mirrored:2", 25, chain))
    single, mirrored = chart.stacks(measured)
    longest = max(chain[0], chain[-1]) * 1.02
    assert single.segments[0].width == pytest.approx(100 * chain[0] / longest)
    end = 0.0
    for segment in mirrored.segments:
        assert segment.start == pytest.approx(end, abs=1e-9)
        assert segment.width > 0
        end = segment.start + segment.width
    assert end == pytest.approx(100 * chain[-1] / longest)


def test_every_cause_has_a_cell_with_its_sign() -> None:
    _, mirrored = chart.stacks(loses_to("exchange"))
    assert mirrored.cells == ("+10.0 µs", "+10.0 µs", "+10.0 µs", "+350 µs")
    noisy = probes("mirrored:2", 25, [1 * MS, 0.4 * MS, 0.5 * MS, 0.6 * MS, 2 * MS], noise=0.3 * MS)
    _, mirrored = chart.stacks(record({"single": (1.0,), "mirrored:2": (1.0,)}, noisy))
    assert mirrored.cells == ("-100 µs ?", "+100 µs ?", "+100 µs ?", "+1.40 ms")


def test_without_measuring_runs_there_are_no_stacks() -> None:
    assert chart.stacks(record({"single": (8.0,), "mirrored:2": (16.0,)})) == ()


def test_a_curve_lies_inside_its_drawing_and_falls() -> None:
    measured = record({"single": (8.0,), "mirrored:2": (16.0,)})
    for against in ("seconds", "steps"):
        drawn = chart.lines(measured, against=against)
        assert drawn is not None
        assert [curve.name for curve in drawn.curves] == ["single", "mirrored:2"]
        for curve in drawn.curves:
            for x, y, _ in curve.marks:
                assert chart.LEFT <= x <= chart.WIDTH - chart.RIGHT + 0.01
                assert chart.TOP - 0.01 <= y <= chart.HEIGHT - chart.BOTTOM + 0.01
            heights = [y for _, y, _ in curve.marks]
            assert heights == sorted(heights)  # SVG counts downwards: a loss that falls goes down
        places = [tick.place for tick in drawn.x_ticks]
        assert places == sorted(places)
        assert 3 <= len(places) <= 8
    against_steps = chart.lines(measured, against="steps")
    assert against_steps is not None
    first, second = against_steps.curves
    assert first.points == second.points  # the same numbers lie on one another
    assert against_steps.x_ticks[1].label == "5k"


def test_the_run_nearest_to_the_median_is_drawn() -> None:
    base = record({"single": (8.0, 12.0, 8.5)})
    drawn = chart.lines(base, against="seconds")
    assert drawn is not None
    assert drawn.curves[0].marks[-1][2] == "single: loss 0.3073 after 8.50 s"
    bare = replace(base, trials=(trial("single", 0, 8.0, curve=()),))
    assert chart.lines(bare, against="seconds") is None


@given(low=st.floats(-1e6, 1e6), span=st.floats(0, 1e6))
def test_ticks_cover_the_range_in_round_steps(low: float, span: float) -> None:
    high = low + span
    marks = chart.ticks(low, high)
    assert 2 <= len(marks) <= 13
    slack = 1e-6 * max(1.0, abs(low), abs(high))
    assert marks[0] <= low + slack
    assert marks[-1] >= high - slack
