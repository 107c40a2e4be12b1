"""What the checks of `strategies` look at: each row's network trained on its devices, here or in other processes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from dure.models.pure import Batch, PureModel, TrainState
from dure.strategy.base import Feed, Held, Strategy
from dure.strategy.local import LocalState
from dure.strategy.mirrored import SingleDevice
from dure.strategy.spmd import step_of
from laws import across
from laws.across import Layout
from laws.networks import EXAMPLES, data, normalised, of_keras, plain

STEPS = 5

# 36 rows are shared evenly by 2, 3 and 4 replicas, 37 by none; of 9 rows three of 8 replicas get none.
BATCHES = (36, 37, 9, 1)


class Row(NamedTuple):
    """A strategy under the laws.

    Attributes:
        make: makes it.
        model: the network that it must train as one device does.
        batches: on batches of so many rows.
        layout: the processes that it runs in; None trains in this one.
        name: tells it from the other rows of its layout.
        asks: what its processes measure besides: names of functions of this module.
    """

    make: Callable[[], Strategy]
    model: Callable[[], PureModel] = normalised
    batches: tuple[int, ...] = (36, 37, 1)
    layout: Layout | None = None
    name: str = ""
    asks: tuple[str, ...] = ("twice", "program_text")

    @property
    def batch(self) -> int:
        """The batch of the checks that need one only: where it can be, one that no replicas share evenly."""
        return 37 if 37 in self.batches else self.batches[0]

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return bench_of(self).replicas if self.layout is None else self.layout.replicas


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


class KerasRecord(NamedTuple):
    """What training a Keras network left behind."""

    state: TrainState
    results: dict[str, float]
    outputs: np.ndarray


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

    def result(self, metrics: Any) -> dict[str, Any]:
        """The values of metrics on the devices."""
        return self.runner.result(self.runner.fetch(metrics))


@functools.cache
def bench_of(row: Row) -> Bench:
    """The bench of a row of this process."""
    model, strategy = row.model(), row.make()
    runner = strategy.open(model)
    return Bench(model, runner, runner.hold(rows_of(row)), strategy.num_replicas)


# --- what is measured -------------------------------------------------------------------------------------------------


@functools.cache
def train(row: Row, batch: int) -> Record:
    """Trains a row's network on five batches, and remembers it."""
    if row.layout is not None:
        shape = train(SINGLE[row.model], batch)
        each = row.layout.devices
        copies = [[0] * each for _ in shape.copies]
        told = _told(row, "train", shape._replace(initial=copies, copies=copies), batch)
        return told[0]._replace(
            initial=_side_by_side([record.initial for record in told]),
            copies=_side_by_side([record.copies for record in told]),
        )
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
        bench.result(metrics),
        bench.result(evaluated),
        runner.predict(state, feed, 2),
    )


@functools.cache
def short_batch(row: Row) -> dict[str, Any]:
    """Evaluates two batches of 36 and one of a single row together."""
    if row.layout is not None:
        return _told(row, "short_batch", short_batch(SINGLE[row.model]))[0]
    bench = bench_of(row)
    runner, (state, metrics) = bench.runner, bench.start()
    full, short = np.arange(72, dtype=np.int32).reshape(2, 36), np.array([[72]], np.int32)
    metrics = runner.measure(state, metrics, runner.feed(bench.held, full), 0, 2)
    return bench.result(runner.measure(state, metrics, runner.feed(bench.held, short), 0, 1))


@functools.cache
def twice(row: Row) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The leaves that the same run leaves behind each time."""
    if row.layout is not None:
        return _told(row, "twice", twice(SINGLE[row.model]))[0]
    bench, runs = bench_of(row), []
    for _ in range(2):
        state, metrics = bench.start()
        state, metrics = bench.runner.train(state, metrics, bench.feed(row.batch), 0, STEPS)
        runs.append(jax.tree.leaves((bench.runner.gather(bench.runner.sync(state)), bench.result(metrics))))
    return runs[0], runs[1]


@functools.cache
def program_text(row: Row) -> str:
    """The program of five training steps, as it goes to the compiler."""
    if row.layout is not None:
        return _told(row, "program_text", np.zeros(0))[0].tobytes().decode()
    return _lowered(row).as_text()


@functools.cache
def exchanges(row: Row) -> bool:
    """Whether the compiled program exchanges between devices."""
    if row.layout is not None:
        return bool(_told(row, "exchanges", np.zeros(()))[0])
    return "all-reduce" in _lowered(row).compile().as_text()


@functools.cache
def train_keras(row: Row) -> KerasRecord:
    """Trains the Keras network on five batches of 37."""
    if row.layout is not None:
        return _told(row, "train_keras", train_keras(SINGLE[normalised]))[0]
    model, rows = of_keras(), data()
    rows = rows._replace(x=rows.x["value"])
    model.prepare(jax.tree.map(lambda leaf: leaf[:37], rows))
    runner = row.make().open(model)
    feed = runner.feed(runner.hold(rows), order(37))
    state, metrics = runner.train(runner.place(model.init(0)), runner.new_metrics(), feed, 0, STEPS)
    state = runner.sync(state)
    results = runner.result(runner.fetch(metrics))
    return KerasRecord(runner.gather(state), results, runner.predict(state, feed, 4))


def measured(row: Row) -> dict[str, Any]:
    """All that the row's processes are asked for, measured in this one."""
    here = row._replace(layout=None)
    found: dict[str, Any] = {f"train {batch}": train(here, batch) for batch in row.batches}
    for ask in row.asks:
        found[ask] = globals()[ask](here)
    # Text travels as its bytes.
    return {name: np.frombuffer(one.encode(), np.uint8) if isinstance(one, str) else one for name, one in found.items()}


# --- small parts ------------------------------------------------------------------------------------------------------


def _lowered(row: Row) -> Any:
    train(row, row.batch)
    bench = bench_of(row)
    feed = bench.feed(row.batch)
    program = bench.runner._programs[step_of("train", feed)]
    return program.lower(*bench.start(), feed.data, feed.order, np.int32(0), np.int32(STEPS))


def _told(row: Row, name: str, shape: Any, *rest: Any) -> list[Any]:
    """What each process of a row measured, as a tree like `shape`; what is not of its devices must be all the same."""
    assert row.layout is not None
    key = " ".join(map(str, (name, *rest)))
    answers = across.answers(row.layout, row.model.__name__, row.name, key)
    told = [jax.tree.unflatten(jax.tree.structure(shape), leaves) for leaves in answers]
    shared = [one._replace(initial=[], copies=[]) if isinstance(one, Record) else one for one in told]
    for other in shared[1:]:
        for mine, theirs in zip(*map(jax.tree.leaves, (shared[0], other)), strict=True):
            np.testing.assert_array_equal(theirs, mine)
    return told


def _side_by_side(parts: list[list[list[np.ndarray]]]) -> list[list[np.ndarray]]:
    """The copies that all processes have of each leaf."""
    return [[copy for copies in leaf for copy in copies] for leaf in zip(*parts, strict=True)]


def rows_of(row: Row) -> Batch:
    """The examples that a row's network trains on: one with sample weights, the other without."""
    return data() if row.model is normalised else data()._replace(weight=None)


def order(batch: int) -> np.ndarray:
    """Which examples make each of five steps, int32 `[steps, batch]`; each at most once."""
    chosen = np.random.default_rng(batch).permutation(EXAMPLES)[: STEPS * batch]
    return chosen.reshape(STEPS, batch).astype(np.int32)


def copies_of(placed: Any) -> list[list[np.ndarray]]:
    """Each leaf of a placed state as every device of this process has it."""
    if isinstance(placed, LocalState):
        return [[np.asarray(s.data)[0] for s in leaf.addressable_shards] for leaf in jax.tree.leaves(placed.state)]
    return [[np.asarray(s.data) for s in leaf.addressable_shards] for leaf in jax.tree.leaves(placed)]
