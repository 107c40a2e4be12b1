"""A measuring run: how long a step takes under one control, and nothing else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from dure.launch.board import Phase
from dure.models.adapt import pure
from dure.models.pure import Batch, PureModel
from dure.strategy.base import Feed, Held, Runner, Strategy

__all__ = ["Steps", "lower_quartile", "step_seconds", "steps_by_rows"]

WINDOW_S = 0.2
"""How long one window should take: long beside a dispatch, short beside the run."""

STEPS = 4096
"""The most steps of one window."""


TURN_S = 0.1
"""The same where sizes take turns: the shorter, the more of them see a quiet machine."""


class Steps(NamedTuple):
    """One device's steps at some numbers of rows.

    Attributes:
        points: rows, and seconds a step.
        first_s: the longest that a first step took, from the start: placing, tracing, compiling, a step.
    """

    points: list[tuple[int, float]]
    first_s: float


@dataclass
class _Lane:
    """One runner with its rows and state; several lanes are independent of one another."""

    runner: Runner
    held: Held
    feed: Feed
    placed: Any
    metrics: Any

    def window(self, count: int) -> float:
        """Seconds that so many steps take."""
        begin = time.perf_counter()
        self.start(count)
        jax.block_until_ready((self.placed, self.metrics))
        return time.perf_counter() - begin

    def start(self, count: int) -> None:
        """Dispatches steps; returns before they are done."""
        self.placed, self.metrics = self.runner.train(self.placed, self.metrics, self.feed, 0, count)

    def agree(self, seconds: float) -> float:
        """The most that any of the runner's processes says: all of them must run the same number of steps."""
        watch = self.runner.watch
        watch.enter(Phase.COLLECTIVE, 0)
        most = max(self.runner.group.each("seconds", seconds))
        watch.enter(Phase.USER, 0)
        return float(most)


def step_seconds(
    model: object,
    strategies: Sequence[Strategy],
    x: Any,
    y: Any,
    *,
    batch_size: int,
    sync_steps: int | None,
    measure_s: float,
) -> float:
    """Measures a training step once it is compiled.

    Args:
        model: A compiled Keras model or a `dure.Model`.
        strategies: What trains, closed by the caller. Several train at the same time, each its own copy on its own
            rows: devices that exchange nothing.
        x: Inputs, arrays `[rows, ...]`.
        y: Targets, arrays `[rows, ...]`.
        batch_size: Rows of a step of each strategy.
        sync_steps: Steps between two meetings that the strategy does not hold by itself (the ends of epochs),
            whose time is spread over them; None where there is nothing to add.
        measure_s: How long to measure, seconds.

    Returns:
        Seconds a step: the lower quartile of windows of about 0.2 s, because whatever else the machine does only
        ever adds time.
    """
    network = pure(model)
    network.prepare(Batch(x, y))
    lanes = [_lane(network, strategy, Batch(x, y), batch_size) for strategy in strategies]

    def window(count: int) -> float:
        begin = time.perf_counter()
        for lane in lanes:
            lane.start(count)
        jax.block_until_ready([(lane.placed, lane.metrics) for lane in lanes])
        return time.perf_counter() - begin

    agreed = lanes[0].agree
    window(1)  # compiles
    count, seconds = _fitting(lambda count: agreed(window(count)), WINDOW_S)
    windows, begin = [seconds / count], time.perf_counter()
    while agreed(time.perf_counter() - begin) < measure_s:
        windows.append(window(count) / count)
    step_s = lower_quartile(windows)
    return step_s if sync_steps is None else step_s + _meeting_seconds(lanes[0]) / sync_steps


def steps_by_rows(
    network: PureModel,
    strategy: Strategy,
    rows: Batch,
    *,
    batch_sizes: Sequence[int],
    measure_s: float,
    long_step_s: float,
) -> Steps:
    """Measures training steps of one device at some batch sizes, which take turns.

    A neighbour's work of a second so falls on a few windows of each size, and not on all of one.

    Args:
        network: the model, prepared for these rows.
        strategy: one device.
        rows: the data.
        batch_sizes: ascending.
        measure_s: how long each is measured, seconds.
        long_step_s: after a step that takes longer no larger batch is measured.
    """
    began = time.perf_counter()
    lane = _lane(network, strategy, rows, batch_sizes[0])
    opened_s, first_s = time.perf_counter() - began, 0.0
    feeds: list[tuple[Feed, int]] = []
    windows: list[list[float]] = []
    for batch_size in batch_sizes:
        if windows and windows[-1][0] > long_step_s:
            break
        lane.feed = _steps(lane.runner, lane.held, batch_size)
        first_s = max(first_s, opened_s + lane.window(1))
        count, seconds = _fitting(lane.window, TURN_S)
        feeds.append((lane.feed, count))
        windows.append([seconds / count])
    begin = time.perf_counter()
    while time.perf_counter() - begin < measure_s * len(feeds):
        for (lane.feed, count), times in zip(feeds, windows, strict=True):
            times.append(lane.window(count) / count)
    found = zip(batch_sizes, map(lower_quartile, windows), strict=False)
    return Steps(list(found), first_s)


def _fitting(window: Callable[[int], float], window_s: float) -> tuple[int, float]:
    """So many steps that a window takes about as long as it should, and what it took."""
    count = 1
    while (seconds := window(count)) < window_s / 2 and count < STEPS:
        count = min(STEPS, max(count * 2, int(count * window_s / max(seconds, 1e-6))))
    return count, seconds


def _lane(network: PureModel, strategy: Strategy, rows: Batch, batch_size: int) -> _Lane:
    """Places a copy of the model and as many rows as may stay on the devices."""
    runner = strategy.open(network)
    leaves = jax.tree.leaves(rows)
    row_bytes = sum(leaf.nbytes // len(leaf) for leaf in leaves)
    kept = int(max(1, min(len(leaves[0]), runner.resident_bytes // max(1, row_bytes))))
    held = runner.hold(jax.tree.map(lambda leaf: leaf[:kept], rows))
    feed = _steps(runner, held, batch_size)
    return _Lane(runner, held, feed, runner.place(network.init(0)), runner.new_metrics())


def _steps(runner: Runner, held: Held, batch_size: int) -> Feed:
    """The most steps that a window may have, of so many rows each."""
    order = np.random.default_rng(0).integers(held.num_rows, size=(STEPS, batch_size), dtype=np.int32)
    return runner.feed(held, order)


def lower_quartile(times: Sequence[float]) -> float:
    """The value that a quarter of the times, rounded up, do not exceed.

    Example:
        >>> lower_quartile([4.0, 1.0, 3.0, 2.0, 9.0])
        2.0
    """
    return sorted(times)[math.ceil(len(times) / 4) - 1]


def _meeting_seconds(lane: _Lane) -> float:
    """How long the replicas take to become equal: the lower quartile of a few, after one that compiles."""
    times = []
    for _ in range(8):
        begin = time.perf_counter()
        lane.placed = jax.block_until_ready(lane.runner.sync(lane.placed))
        times.append(time.perf_counter() - begin)
    return lower_quartile(times[1:])
