"""The laws of synchronous training, over a table of strategies: whatever the strategy, the numbers are one device's.

A new strategy is a new row of the table. Each row trains the networks of `networks` once on each batch size, in this
process or, where it has a layout, in processes of its own; the checks then look at what `bench` recorded.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import numpy as np
import pytest

from dure.strategy.mirrored import Mirrored
from dure.strategy.multi_worker import MultiWorkerMirrored
from laws.across import Layout
from laws.bench import (
    BATCHES,
    SINGLE,
    Row,
    bench_of,
    exchanges,
    order,
    program_text,
    rows_of,
    short_batch,
    train,
    train_keras,
    twice,
)
from laws.networks import EXAMPLES, normalised, of_keras, plain

TOLERANCE = 1e-5


def _local(count: int, **options: Any) -> Row:
    batches = (37, 9) if count == 8 else (37,)
    return Row(lambda: Mirrored(num_devices=count, **options), plain, batches)


def _workers(workers: int, devices: int, *batches: int, asks: tuple[str, ...] = ("twice", "program_text")) -> Row:
    layout = Layout(workers, devices)
    return Row(MultiWorkerMirrored, batches=batches, layout=layout, name="every step", asks=asks)


def _local_workers(*, asks: tuple[str, ...] = ("twice", "program_text"), **options: Any) -> Row:
    make = functools.partial(MultiWorkerMirrored, **options)
    return Row(make, plain, (37,), Layout(2, 1), name=str(options), asks=asks)


STRATEGIES: dict[str, Row] = {
    **{f"mirrored:{count}": Row(functools.partial(Mirrored, num_devices=count)) for count in (1, 2, 3, 4)},
    "mirrored:8": Row(functools.partial(Mirrored, num_devices=8), batches=BATCHES),
    # Local SGD is synchronous where there is one replica, or plain gradient descent is averaged at every step.
    "local:1": _local(1, sync_every="epoch"),
    "local:2": _local(2, sync_every=1),
    "local:3": _local(3, sync_every=1, optimizer_state="keep"),
    "local:8": _local(8, sync_every=1),
    # In processes: each with one device, as they mostly are; then the same replicas laid out otherwise.
    "workers:2x1": _workers(2, 1, 36, 37, 1, asks=("short_batch", "twice", "program_text", "exchanges")),
    "workers:3x1": _workers(3, 1, 37, asks=()),
    "workers:1x4": _workers(1, 4, 37, asks=()),
    "workers:2x2": _workers(2, 2, 37, asks=()),
    "workers:4x1": _workers(4, 1, 37, asks=()),
    "workers:2x4": _workers(2, 4, 9, asks=()),
    "local:2x1": _local_workers(sync_every=1),
    "local:2x1 keep": _local_workers(sync_every=1, optimizer_state="keep"),
}

# Averaged seldom, local SGD has other numbers, and keeps the laws that are not about them.
SELDOM: dict[str, Row] = {
    "local:4 every 2": _local(4, sync_every=2),
    "local:4 every epoch": _local(4, sync_every="epoch", optimizer_state="keep"),
    "local:2x1 every 2": _local_workers(sync_every=2, asks=()),
    "local:2x1 every epoch": _local_workers(sync_every="epoch", optimizer_state="keep", asks=()),
}

# The processes that train the Keras network do that alone.
KERAS: dict[str, Row] = {
    **{name: STRATEGIES[name] for name in ("mirrored:4", "mirrored:8")},
    "workers:2x1": Row(MultiWorkerMirrored, of_keras, (), Layout(2, 1), name="keras", asks=("train_keras",)),
}

# Four replicas, in one process, two and four.
LAYOUTS = ("workers:1x4", "workers:2x2", "workers:4x1")
EXCHANGING = ("mirrored:1", "mirrored:4", "local:1", "local:2", "workers:2x1")


def check_initial_weights(row: Row) -> None:
    """Every replica starts from the weights that the model gives."""
    record = train(row, row.batches[0])
    expected = jax.tree.leaves(row.model().init(0))
    for copies, leaf in zip(record.initial, expected, strict=True):
        for copy in copies:
            np.testing.assert_array_equal(copy, copies[0])
        # What other processes compile, with less care than this one, may differ in the last bit.
        close(copies[0], leaf, 0 if row.layout is None else 1e-6)


def check_gradients(row: Row, batch: int) -> None:
    """After one step, parameters and what the optimizer keeps, the gradients among it, are the single device's."""
    close(train(row, batch).first, train(SINGLE[row.model], batch).first)


def check_steps(row: Row, batch: int) -> None:
    """So is the whole state after five: moving averages, masks, optimizer, random stream and number of steps."""
    close(train(row, batch).last, train(SINGLE[row.model], batch).last)


def check_replicas_stay_equal(row: Row, batch: int) -> None:
    """The state lies on every device, bit for bit the same."""
    record = train(row, batch)
    for copies in record.copies:
        assert len(copies) == row.replicas
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
    found, model = short_batch(row), bench_of(SINGLE[row.model]).model
    rows = jax.tree.map(lambda leaf: leaf[:73], rows_of(row))
    logits = np.asarray(model.predict(model.init(0), rows.x), np.float64)
    own = logits[np.arange(73), rows.y]
    losses = (np.log(np.exp(logits).sum(-1)) - own) * (1 if rows.weight is None else rows.weight)
    assert found["accuracy"] == (logits.argmax(-1) == rows.y).sum() / 73
    np.testing.assert_allclose(found["loss"], losses.sum() / 73, rtol=1e-6)


def check_same_run_twice(row: Row) -> None:
    """The same run gives the same bits."""
    for one, other in zip(*twice(row), strict=True):
        np.testing.assert_array_equal(one, other)


def check_rows_computed(row: Row) -> None:
    """No replica computes more than its share: the program has no value with an axis of the full batch."""
    text = program_text(row)
    shapes = {tuple(map(int, shape.split("x")[:-1])) for shape in re.findall(r"tensor<((?:\d+x)+\w+)>", text)}
    share = -(-row.batch // row.replicas)
    assert any(share in shape for shape in shapes)
    if row.replicas > 1:
        assert [shape for shape in shapes if row.batch in shape] == []


def check_keras(row: Row) -> None:
    """So is a Keras network's: weights, moving averages, seeds, optimizer, metrics and outputs."""
    found, expected = train_keras(row), train_keras(SINGLE[normalised])
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
    assert exchanges(row) == (row.replicas > 1)


def check_layouts(rows: list[Row]) -> None:
    """How replicas lie in processes changes no draw, and of a sum only its order."""
    first, *others = [train(row, row.batch) for row in rows]
    for other in others:
        np.testing.assert_array_equal(other.last.model_state["masks"], first.last.model_state["masks"])
        np.testing.assert_array_equal(other.last.key, first.last.key)
        np.testing.assert_array_equal(other.trained["seen"], first.trained["seen"])
        close(other.last, first.last)
        close(other.outputs, first.outputs)


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
