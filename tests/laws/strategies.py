"""The laws of synchronous training, over a table of strategies: whatever the strategy, the numbers are one device's.

A new strategy is a new row of the table. Each row trains the networks of `networks` once on each batch size; the checks
then look at what was recorded.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from dure.models.pure import Batch, PureModel, TrainState
from dure.strategy.base import Feed, Held, Strategy
from dure.strategy.local import LocalState
from dure.strategy.mirrored import Mirrored, SingleDevice
from dure.strategy.spmd import step_of
from laws.networks import EXAMPLES, data, normalised, of_keras, plain

STEPS = 5
TOLERANCE = 1e-5

# 36 rows are shared evenly by 2, 3 and 4 replicas, 37 by none; of 9 rows three of 8 replicas get none.
BATCHES = (36, 37, 9, 1)


class Row(NamedTuple):
    """A strategy under the laws.

    Attributes:
        make: makes it.
        model: the network that it must train as one device does.
        batches: on batches of so many rows.
    """

    make: Callable[[], Strategy]
    model: Callable[[], PureModel] = normalised
    batches: tuple[int, ...] = (36, 37, 1)


def _local(count: int, **options: Any) -> Row:
    batches = (37, 9) if count == 8 else (37,)
    return Row(lambda: Mirrored(num_devices=count, **options), plain, batches)


STRATEGIES: dict[str, Row] = {
    **{f"mirrored:{count}": Row(functools.partial(Mirrored, num_devices=count)) for count in (1, 2, 3, 4)},
    "mirrored:8": Row(functools.partial(Mirrored, num_devices=8), batches=BATCHES),
    # Local SGD is synchronous where there is one replica, or plain gradient descent is averaged at every step.
    "local:1": _local(1, sync_every="epoch"),
    "local:2": _local(2, sync_every=1),
    "local:3": _local(3, sync_every=1, optimizer_state="keep"),
    "local:8": _local(8, sync_every=1),
}

# Averaged seldom, local SGD has other numbers, and keeps the laws that are not about them.
SELDOM: dict[str, Row] = {
    "local:4 every 2": _local(4, sync_every=2),
    "local:4 every epoch": _local(4, sync_every="epoch", optimizer_state="keep"),
}

SINGLE = {model: Row(SingleDevice, model, BATCHES) for model in (normalised, plain)}


class Record(NamedTuple):
    """What training left behind.

    Attributes:
        initial: the state as placed, each leaf as every device had it.
        first: the state after one step.
        last: the state after five.
        copies: the same, each leaf as every device had it.
        trained: results of training, "seen" included.
        evaluated: results of evaluation on the same rows.
        outputs: of the third step's rows.
    """

    initial: list[list[np.ndarray]]
    first: TrainState
    last: TrainState
    copies: list[list[np.ndarray]]
    trained: dict[str, Any]
    evaluated: dict[str, Any]
    outputs: np.ndarray


def check_initial_weights(row: Row) -> None:
    """Every replica starts from the weights that the model gives."""
    record = train(row, row.batches[0])
    expected = jax.tree.leaves(row.model().init(0))
    for copies, leaf in zip(record.initial, expected, strict=True):
        for copy in copies:
            np.testing.assert_array_equal(copy, leaf)


def check_gradients(row: Row, batch: int) -> None:
    """After one step, parameters and what the optimizer keeps, the gradients among it, are the single device's."""
    close(train(row, batch).first, train(SINGLE[row.model], batch).first)


def check_steps(row: Row, batch: int) -> None:
    """So is the whole state after five: moving averages, masks, optimizer, random stream and number of steps."""
    close(train(row, batch).last, train(SINGLE[row.model], batch).last)


def check_replicas_stay_equal(row: Row, batch: int) -> None:
    """The state lies on every device, bit for bit the same."""
    record = train(row, batch)
    count = bench_of(row).replicas
    for copies in record.copies:
        assert len(copies) == count
        for copy in copies[1:]:
            np.testing.assert_array_equal(copy, copies[0])


def check_counts(row: Row, batch: int) -> None:
    """Each example is counted exactly once, in training and in evaluation."""
    record = train(row, batch)
    expected = np.zeros(EXAMPLES, np.int32)
    expected[order(batch).ravel()] = 1
    np.testing.assert_array_equal(record.trained["seen"], expected)
    np.testing.assert_array_equal(record.evaluated["seen"], expected)


def check_masks(row: Row, batch: int) -> None:
    """Dropout masks are the single device's, and differ between rows and steps."""
    masks = train(row, batch).last.model_state["masks"]
    np.testing.assert_array_equal(masks, train(SINGLE[row.model], batch).last.model_state["masks"])
    seen = masks[order(batch).ravel()]
    assert len(np.unique(seen, axis=0)) > 0.9 * len(seen)
    assert 0.65 < seen.mean() < 0.85


def check_metrics(row: Row, batch: int) -> None:
    """Loss and accuracy, in training and in evaluation, are the single device's; accuracy to the last example."""
    record, single = train(row, batch), train(SINGLE[row.model], batch)
    for found, expected in ((record.trained, single.trained), (record.evaluated, single.evaluated)):
        assert found["accuracy"] == expected["accuracy"]
        np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-6)
    close(record.outputs, single.outputs)
    assert record.outputs.shape == (batch, 10)


def check_short_last_batch(row: Row) -> None:
    """Two batches and a shorter one count as so many examples, not as three batches."""
    bench = bench_of(row)
    runner, (state, metrics) = bench.runner, bench.start()
    full, short = np.arange(72, dtype=np.int32).reshape(2, 36), np.array([[72]], np.int32)
    metrics = runner.measure(state, metrics, runner.feed(bench.held, full), 0, 2)
    found = runner.result(runner.measure(state, metrics, runner.feed(bench.held, short), 0, 1))
    rows = jax.tree.map(lambda leaf: leaf[:73], rows_of(row))
    logits = np.asarray(bench.model.predict(bench.model.init(0), rows.x), np.float64)
    own = logits[np.arange(73), rows.y]
    losses = (np.log(np.exp(logits).sum(-1)) - own) * (1 if rows.weight is None else rows.weight)
    assert found["accuracy"] == (logits.argmax(-1) == rows.y).sum() / 73
    np.testing.assert_allclose(found["loss"], losses.sum() / 73, rtol=1e-6)


def check_same_run_twice(row: Row) -> None:
    """The same run gives the same bits."""
    bench, runs = bench_of(row), []
    for _ in range(2):
        state, metrics = bench.start()
        state, metrics = bench.runner.train(state, metrics, bench.feed(37), 0, STEPS)
        runs.append((bench.runner.gather(bench.runner.sync(state)), bench.runner.result(metrics)))
    for one, other in zip(*map(jax.tree.leaves, runs), strict=True):
        np.testing.assert_array_equal(one, other)


def check_rows_computed(row: Row) -> None:
    """No replica computes more than its share: the program has no value with an axis of the full batch."""
    text = lowered(row, 37).as_text()
    shapes = {tuple(map(int, shape.split("x")[:-1])) for shape in re.findall(r"tensor<((?:\d+x)+\w+)>", text)}
    count = bench_of(row).replicas
    share = -(-37 // count)
    assert any(share in shape for shape in shapes)
    if count > 1:
        assert [shape for shape in shapes if 37 in shape] == []


def check_keras(row: Row) -> None:
    """So is a Keras network's: weights, moving averages, seeds, optimizer, metrics and outputs."""
    found, expected = train_keras(row.make), train_keras(SingleDevice)
    close(found.state, expected.state)
    assert found.results == pytest.approx(expected.results, rel=1e-5)
    close(found.outputs, expected.outputs)


def check_whatever_the_average(row: Row) -> None:
    """Local SGD that averages seldom counts each example once all the same, and its replicas are equal in the end."""
    batch = row.batches[0]
    check_counts(row, batch)
    check_replicas_stay_equal(row, batch)
    last, single = train(row, batch).last, train(SINGLE[row.model], batch).last
    assert last.step == single.step
    np.testing.assert_array_equal(last.key, single.key)
    distance = np.abs(last.params["first"] - single.params["first"]).max()
    assert 1e-5 < distance < 0.1  # other numbers than at every step, and near them


def check_collectives(row: Row) -> None:
    """The compiled program exchanges between devices, and does not where there is one."""
    text = lowered(row, 37).compile().as_text()
    assert ("all-reduce" in text) == (bench_of(row).replicas > 1)


# --- what the checks look at ------------------------------------------------------------------------------------------


class Bench(NamedTuple):
    """A row's network on its devices, made once: a program that one check compiled serves the others."""

    model: PureModel
    runner: Any
    held: Held
    replicas: int

    def start(self) -> tuple[Any, Any]:
        """A fresh state and empty metrics."""
        return self.runner.place(self.model.init(0)), self.runner.new_metrics()

    def feed(self, batch: int) -> Feed:
        """Five steps."""
        return self.runner.feed(self.held, order(batch))


@functools.cache
def bench_of(row: Row) -> Bench:
    """The bench of a row."""
    model, strategy = row.model(), row.make()
    runner = strategy.open(model)
    return Bench(model, runner, runner.hold(rows_of(row)), strategy.num_replicas)


@functools.cache
def train(row: Row, batch: int) -> Record:
    """Trains a row's network on five batches, and remembers it."""
    bench = bench_of(row)
    runner, feed = bench.runner, bench.feed(batch)
    state, metrics = bench.start()
    initial = copies_of(state)
    state, metrics = runner.train(state, metrics, feed, 0, 1)
    state = runner.sync(state)
    first = runner.gather(state)
    state, metrics = runner.train(state, metrics, feed, 1, STEPS - 1)
    state = runner.sync(state)
    evaluated = runner.measure(state, runner.new_metrics(), feed, 0, STEPS)
    return Record(
        initial,
        first,
        runner.gather(state),
        copies_of(state),
        runner.result(metrics),
        runner.result(evaluated),
        runner.predict(state, feed, 2),
    )


class KerasRecord(NamedTuple):
    """What training a Keras network left behind."""

    state: TrainState
    results: dict[str, float]
    outputs: np.ndarray


@functools.cache
def train_keras(make: Callable[[], Strategy]) -> KerasRecord:
    """Trains the Keras network on five batches of 37."""
    model, rows = of_keras(), data()
    rows = rows._replace(x=rows.x["value"])
    model.prepare(jax.tree.map(lambda leaf: leaf[:37], rows))
    runner = make().open(model)
    feed = runner.feed(runner.hold(rows), order(37))
    state, metrics = runner.train(runner.place(model.init(0)), runner.new_metrics(), feed, 0, STEPS)
    state = runner.sync(state)
    return KerasRecord(runner.gather(state), runner.result(metrics), runner.predict(state, feed, 4))


def lowered(row: Row, batch: int) -> Any:
    """The program of five training steps, as it goes to the compiler."""
    train(row, batch)
    bench = bench_of(row)
    feed = bench.feed(batch)
    program = bench.runner._programs[step_of("train", feed)]
    return program.lower(*bench.start(), feed.data, feed.order, np.int32(0), np.int32(STEPS))


def rows_of(row: Row) -> Batch:
    """The examples that a row's network trains on: one with sample weights, the other without."""
    return data() if row.model is normalised else data()._replace(weight=None)


def order(batch: int) -> np.ndarray:
    """Which examples make each of five steps, int32 `[steps, batch]`; each at most once."""
    chosen = np.random.default_rng(batch).permutation(EXAMPLES)[: STEPS * batch]
    return chosen.reshape(STEPS, batch).astype(np.int32)


def copies_of(placed: Any) -> list[list[np.ndarray]]:
    """Each leaf of a placed state as every device has it."""
    if isinstance(placed, LocalState):
        return [[np.asarray(s.data)[0] for s in leaf.addressable_shards] for leaf in jax.tree.leaves(placed.state)]
    return [[np.asarray(s.data) for s in leaf.addressable_shards] for leaf in jax.tree.leaves(placed)]


def close(found: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    """Asserts that each leaf differs by at most a share of its largest magnitude."""
    pairs = zip(jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True)
    for (path, one), other in pairs:
        name = jax.tree_util.keystr(path)
        if np.issubdtype(np.asarray(other).dtype, np.floating):
            limit = tolerance * np.abs(other).max(initial=0)
            np.testing.assert_allclose(one, other, rtol=0, atol=limit, err_msg=name)
        else:
            np.testing.assert_array_equal(one, other, err_msg=name)
