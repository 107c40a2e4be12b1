"""The loss of a run as a curve of few points, from what a history notes at each dispatch."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["thinned"]


def thinned(
    points: Sequence[tuple[int, float, float]], steps_per_epoch: int, *, count: int = 40
) -> tuple[tuple[int, float, float], ...]:
    """Turns running means, which start anew with each epoch, into means over stretches of equal length.

    Args:
        points: (updates so far, seconds, mean loss of the epoch so far), one a dispatch.
        steps_per_epoch: Updates of an epoch.
        count: The most points to return.

    Returns:
        (updates so far, seconds, mean loss since the point before), the last dispatch's included.

    Example:
        >>> thinned([(1, 0.1, 2.0), (2, 0.2, 1.5), (3, 0.3, 0.5), (4, 0.4, 0.5)], steps_per_epoch=2, count=2)
        ((2, 0.2, 1.5), (4, 0.4, 0.5))
    """
    if not points:
        return ()
    stretch = points[-1][0] / count
    kept: list[tuple[int, float, float]] = []
    total = finished = 0.0  # the loss summed over all steps so far; over the finished epochs
    epoch, last_step, last_total = 0, 0, 0.0
    for step, seconds, mean in points:
        now = (step - 1) // steps_per_epoch  # the epoch that this step belongs to, from 0
        if now > epoch:
            finished, epoch = total, now
        total = finished + mean * (step - epoch * steps_per_epoch)
        due = step >= stretch * (len(kept) + 1) or step == points[-1][0]
        if due and step > last_step:
            kept.append((step, seconds, (total - last_total) / (step - last_step)))
            last_step, last_total = step, total
    return tuple(kept)
