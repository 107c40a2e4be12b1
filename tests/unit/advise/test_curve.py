"""The curve of a run, from running means that start anew with each epoch."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from dure.advise.curve import thinned


@given(
    losses=st.lists(st.floats(0.01, 10), min_size=1, max_size=60),
    per_epoch=st.integers(1, 20),
    dispatch=st.integers(1, 7),
    count=st.integers(1, 20),
)
def test_points_are_means_of_the_steps_since_the_point_before(
    losses: list[float], per_epoch: int, dispatch: int, count: int
) -> None:
    points = []
    for step in range(1, len(losses) + 1):
        begin = (step - 1) // per_epoch * per_epoch
        ends = (step - begin) % dispatch == 0 or step % per_epoch == 0 or step == len(losses)
        if ends:
            points.append((step, float(step), math.fsum(losses[begin:step]) / (step - begin)))
    kept = thinned(points, per_epoch, count=count)
    assert len(kept) <= count + 1
    assert kept[-1][0] == len(losses)
    last = 0
    for step, seconds, loss in kept:
        assert seconds == float(step)
        assert math.isclose(loss, math.fsum(losses[last:step]) / (step - last), rel_tol=1e-6, abs_tol=1e-9)
        last = step


def test_no_dispatch_gives_no_point() -> None:
    assert thinned([], 10) == ()
