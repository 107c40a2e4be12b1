"""Data on their way to the devices: every row once, in the order of the plan, whichever way they take."""

import contextlib
import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dure
from dure.data.batches import as_batches
from dure.errors import DataError
from dure.models import adapt
from dure.train.engine import Engine
from dure.train.epochs import Plan, Position, order
from dure.train.feeds import Loader, Resident, Streamed
from dure.train.inputs import rows_of


@pytest.fixture(scope="module")
def engine():

    with dure.SingleDevice() as strategy:
        model = adapt.pure(_echo())
        yield Engine(model, strategy.open(model), seed=0)


def _echo():
    import jax
    import jax.numpy as jnp
    import optax

    return dure.Model(
        init=lambda key: {"w": jnp.ones(())},
        apply=lambda params, x, *, key, training: jax.tree.map(lambda leaf: leaf * params["w"], x),
        loss=lambda outputs, targets: targets,
        optimizer=optax.sgd(0.1),
    )


START = Position()


def seen(engine, source, position=START):
    """The numbers of the rows of each step, as the device has them."""
    steps = []
    placed = engine.runner.place(engine.state.gather())
    with contextlib.closing(source.chunks(position)) as chunks:
        for feed, start, count, _ in chunks:
            outputs = [engine.runner.predict(placed, feed, index) for index in range(start, start + count)]
            steps += [rows[:, 0].astype(int).tolist() for rows in outputs]
    return steps


def numbered(count):
    return rows_of(np.stack([np.arange(count), np.zeros(count)], 1).astype(np.float32), np.arange(count))


def wanted(plan, seed, turn):
    places = order(plan, seed, turn).tolist()
    return [places[start : start + plan.batch_size] for start in range(0, plan.rows, plan.batch_size)]


@pytest.mark.parametrize("batch_size", [1, 5, 23, 24])
def test_held_and_streamed_rows_make_the_same_steps(engine, batch_size):
    rows, plan = numbered(23), Plan(23, batch_size, shuffle=True)
    for position in (Position(seed=4), Position(epoch=3, seed=4, origin=1)):
        expected = wanted(plan, 4, position.turn)
        assert seen(engine, Resident(engine.runner, rows, plan), position) == expected
        assert seen(engine, Streamed(engine.runner, rows, plan, chunk_bytes=100), position) == expected
        assert seen(engine, Streamed(engine.runner, rows, plan), position) == expected


def test_an_epoch_goes_on_where_it_was_left(engine):
    rows, plan = numbered(23), Plan(23, 5, shuffle=True)
    expected = wanted(plan, 4, 0)
    for step in range(6):
        position = Position(step=step, seed=4)
        assert seen(engine, Resident(engine.runner, rows, plan), position) == expected[step:]
        for chunk_bytes in (1, 100, 10**9):
            source = Streamed(engine.runner, rows, plan, chunk_bytes=chunk_bytes)
            assert seen(engine, source, position) == expected[step:]


@settings(max_examples=20)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.integers(0, 12), st.sampled_from([1, 60, 10**9]))
def test_batches_of_a_loader_come_in_order_whatever_their_lengths(engine, lengths, skip, chunk_bytes):
    edges = np.cumsum([0, *lengths])
    batches = [np.stack([np.arange(a, b), np.zeros(b - a)], 1).astype(np.float32) for a, b in itertools.pairwise(edges)]
    skip = min(skip, len(batches) - 1)
    source = Loader(engine.runner, as_batches([(batch,) for batch in batches]), chunk_bytes=chunk_bytes)
    expected = [batch[:, 0].astype(int).tolist() for batch in batches]
    source.first(Position(step=skip))
    assert seen(engine, source, Position(step=skip)) == expected[skip:]
    assert seen(engine, source) == expected


def test_the_first_batch_is_looked_at_without_being_lost(engine):
    source = Loader(engine.runner, as_batches(iter([(np.full((2, 2), n),) for n in range(3)])))
    assert source.first(Position()).x.tolist() == [[0, 0], [0, 0]]
    assert source.first(Position()).x.dtype == np.float32 or source.first(Position()).x.dtype == np.int32
    assert seen(engine, source) == [[0, 0], [1, 1], [2, 2]]


def test_a_pass_that_was_begun_and_not_used_is_closed(engine):
    ended = threading.Event()

    def batches():
        try:
            while True:
                yield (np.zeros((2, 2)),)
        finally:
            ended.set()

    source = Loader(engine.runner, as_batches(batches, steps=3))
    source.first(Position())
    source.close()
    source.close()
    assert seen(engine, Loader(engine.runner, as_batches([(np.ones((1, 2)),)]))) == [[1]]


def test_a_batch_that_fails_its_check_stops_the_steps(engine):
    def check(batch, number):
        if number == 2:
            raise DataError("the third is bad; mend it")

    source = Loader(engine.runner, as_batches([(np.full((1, 2), n),) for n in range(5)]), check=check)
    with pytest.raises(DataError, match="the third is bad"):
        seen(engine, source)


def test_an_epoch_that_is_to_go_on_after_the_end_of_the_data_is_refused(engine):
    source = Loader(engine.runner, as_batches([(np.ones((1, 2)),)]))
    with pytest.raises(DataError, match="the data end before batch 3 of the epoch, where training is to go on"):
        source.first(Position(step=3))


def test_lengths_are_known_where_the_data_tell(engine):
    plan = Plan(23, 5, shuffle=True)
    assert Resident(engine.runner, numbered(23), plan).steps == 5
    assert Streamed(engine.runner, numbered(23), plan).steps == 5
    assert Streamed(engine.runner, numbered(23), plan).plan == "23 rows in batches of 5, shuffled"
    assert Loader(engine.runner, as_batches([(np.ones((1, 2)),)] * 4)).steps == 4
    assert Loader(engine.runner, as_batches(iter([(np.ones((1, 2)),)]))).steps is None


def test_chunks_of_one_kind_run_the_same_program(engine):
    plan = Plan(46, 5, shuffle=True)
    source = Streamed(engine.runner, numbered(46), plan, chunk_bytes=2 * 60)
    chunks = list(source.chunks(Position()))
    assert [chunk.steps for chunk in chunks] == [2, 2, 2, 2, 1, 1]
    assert len({chunk.kind for chunk in chunks}) == 2
    assert len({chunk.feed.data.x.shape for chunk in chunks[:5]}) == 1


def test_memory_that_is_used_again_never_mixes_chunks(engine):
    count, plan = 3000, Plan(3000, 100, shuffle=True)
    x = np.repeat(np.arange(count, dtype=np.float32)[:, None], 700, axis=1)
    source = Streamed(engine.runner, rows_of(x), plan, chunk_bytes=2 * 2**20)
    for turn in range(3):
        assert seen(engine, source, Position(epoch=turn, seed=1)) == wanted(plan, 1, turn)
    wide = Streamed(engine.runner, rows_of(x.astype(np.float64)), plan, chunk_bytes=2 * 2**20)
    assert seen(engine, wide, Position(seed=1)) == wanted(plan, 1, 0)
    batches = [(x[start : start + 100],) for start in range(0, count, 100)]
    loader = Loader(engine.runner, as_batches(batches), chunk_bytes=2 * 2**20)
    assert seen(engine, loader) == [list(range(start, start + 100)) for start in range(0, count, 100)]
