"""A measuring run: how long a step takes under one control, and nothing else."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from dure.launch.board import Phase
from dure.models.adapt import pure
from dure.models.pure import Batch, PureModel
from dure.strategy.base import Feed, Runner, Strategy

__all__ = ["lower_quartile", "step_seconds"]

WINDOW_S = 0.2
"""How long one window should take: long beside a dispatch, short beside the run."""

STEPS = 4096
"""The most steps of one window."""


@dataclass
class _Lane:
    """One runner with its rows and state; several lanes are independent of one another."""

    runner: Runner
    feed: Feed
    placed: Any
    metrics: Any

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
    count = 1
    while (seconds := agreed(window(count))) < WINDOW_S / 2 and count < STEPS:
        count = min(STEPS, max(count * 2, int(count * WINDOW_S / max(seconds, 1e-6))))
    windows, begin = [seconds / count], time.perf_counter()
    while agreed(time.perf_counter() - begin) < measure_s:
        windows.append(window(count) / count)
    step_s = lower_quartile(windows)
    return step_s if sync_steps is None else step_s + _meeting_seconds(lanes[0]) / sync_steps


def _lane(network: PureModel, strategy: Strategy, rows: Batch, batch_size: int) -> _Lane:
    """Places a copy of the model and as many rows as may stay on the devices."""
    runner = strategy.open(network)
    leaves = jax.tree.leaves(rows)
    row_bytes = sum(leaf.nbytes // len(leaf) for leaf in leaves)
    kept = int(max(1, min(len(leaves[0]), runner.resident_bytes // max(1, row_bytes))))
    held = runner.hold(jax.tree.map(lambda leaf: leaf[:kept], rows))
    order = np.random.default_rng(0).integers(kept, size=(STEPS, batch_size), dtype=np.int32)
    return _Lane(runner, runner.feed(held, order), runner.place(network.init(0)), runner.new_metrics())


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
