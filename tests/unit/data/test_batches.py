from __future__ import annotations

import sys
import threading

import jax.numpy as jnp
import keras
import numpy as np
import pytest

from dure.data import Dataset
from dure.data.batches import as_batches
from dure.errors import DataError, SpecError

X, Y = np.arange(20, dtype=np.float32).reshape(10, 2), np.arange(10)


def pieces(rows: int = 4):
    for start in range(0, 10, rows):
        yield X[start : start + rows], Y[start : start + rows]


def seen(batches) -> list[int]:
    return [int(label) for batch in batches for label in batch.y]


class Tensor:
    """As torch's CPU tensor."""

    def __init__(self, array):
        self._array = array

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self._array


class TorchLoader:
    """As torch's `DataLoader`: re-iterable, with a length, lists of tensors."""

    def __iter__(self):
        return iter([[Tensor(x), Tensor(y)] for x, y in pieces()])

    def __len__(self):
        return 3


class TfDataset:
    """As `tf.data.Dataset`: `as_numpy_iterator`, `cardinality`, and tensors when iterated plainly."""

    def __init__(self, cardinality=-2):
        self._cardinality = cardinality

    def as_numpy_iterator(self):
        return iter(list(pieces()))

    def __iter__(self):
        raise AssertionError("iterated plainly")

    def __len__(self):
        raise TypeError("The dataset length is unknown.")

    def cardinality(self):
        return np.int64(self._cardinality)


class Items:
    """Numbered batches without `__iter__`."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return list(pieces())[index]


class Told(keras.utils.PyDataset):
    """Keras's own, which is told of its epochs."""

    def __init__(self):
        super().__init__()
        self.told = []

    @property
    def num_batches(self):
        return 3

    def __getitem__(self, index):
        return list(pieces())[index]

    def on_epoch_begin(self):
        self.told.append("begin")

    def on_epoch_end(self):
        self.told.append("end")


AGAIN = {
    "dataset": Dataset.from_arrays(X, Y).batch(4),
    "list": list(pieces()),
    "function": pieces,
    "function of a list": lambda: list(pieces()),
    "torch": TorchLoader(),
    "tf.data": TfDataset(),
    "items": Items(),
    "keras": Told(),
    "jax": [(jnp.asarray(x), jnp.asarray(y)) for x, y in pieces()],
}


@pytest.mark.parametrize("data", AGAIN.values(), ids=AGAIN)
def test_what_users_have_gives_the_same_batches_each_epoch(data):
    batches = as_batches(data)
    for _ in range(2):
        got = list(batches)
        assert [batch.rows for batch in got] == [4, 4, 2]
        np.testing.assert_array_equal(np.concatenate([batch.x for batch in got]), X)
        assert seen(got) == list(range(10))
        assert all(isinstance(batch.x, np.ndarray) and batch.weight is None for batch in got)


def test_a_keras_data_set_is_told_of_its_epochs():
    data = Told()
    assert len(list(as_batches(data))) == 3
    assert data.told == ["begin", "end"]


@pytest.mark.parametrize(
    ("name", "size"),
    [("dataset", 3), ("list", 3), ("torch", 3), ("items", 3), ("function", None), ("tf.data", None)],
)
def test_a_length_is_told_when_it_is_known(name, size):
    assert as_batches(AGAIN[name]).size == size


# --- forms of a batch ---------------------------------------------------------


def test_x_alone_and_x_in_a_dict():
    (batch,) = as_batches([X])
    assert batch.y is None
    (batch,) = as_batches([{"a": X, "b": [[1, 2]] * 10}])
    assert batch.x["b"].shape == (10, 2)
    assert batch.y is None
    (batch,) = as_batches([(X, None)])
    assert batch.y is None
    (batch,) = as_batches([[1.0, 2.0, 3.0]])
    assert batch.x.tolist() == [1, 2, 3]


def test_trees_in_all_places():
    (batch,) = as_batches([((X, {"a": X}), [Y, Y])])
    assert batch.x[1]["a"].shape == (10, 2)
    assert len(batch.y) == 2


def test_weights_become_float32():
    (batch,) = as_batches([(X, Y, np.arange(10))])
    assert batch.weight.dtype == np.float32
    (batch,) = as_batches([(X, Y, None)])
    assert batch.weight is None


@pytest.mark.parametrize(
    ("element", "words"),
    [
        ((), "a tuple of 0 parts"),
        ((X, Y, Y, Y), "a tuple of 4 parts: a batch is x, "),
        ((X, Y[:3]), r"has the shapes x \[10, 2\]; y \[3\]: every part needs the same first axis"),
        ((X, Y, np.ones(3)), r"weight \[3\]"),
        ((X, Y, np.ones((10, 2))), r"whose weight has the shape \[10, 2\]"),
        ((np.float32(1), 3), r"shapes x \[\]; y \[\]: .* Give batches, not single examples"),
        ((X[:0], Y[:0]), r"x \[0, 2\]; y \[0\]: .* of at least one row"),
        ({}, "shapes x "),
        (None, "the shapes of nothing"),
        ((X, np.array(["a"] * 10)), "its dtype is `<U1`"),
        (object(), "its dtype is `object`"),
    ],
)
def test_what_is_no_batch_is_named(element, words):
    with pytest.raises(DataError, match=r"asked to read batch 0 \(counted from 0\)") as caught:
        list(as_batches([element]))
    with pytest.raises(DataError, match=words):
        raise caught.value


@pytest.mark.parametrize(
    "second",
    [X, (X, Y, np.ones(10)), ({"x": X}, Y), (X, Y.astype(np.float32)), (X[:, :, None], Y), ((X, X), Y)],
    ids=["no y", "weight", "dict", "dtype", "rank", "two inputs"],
)
def test_a_form_that_changes_midway_names_the_batch(second):
    passed = iter(as_batches([(X, Y), second]))
    next(passed)
    with pytest.raises(DataError, match=r"batch 1 .* has the form \(x, y, weight\) = .*: the first batch had"):
        next(passed)


def test_lengths_may_change():
    padded = [(np.zeros((2, length)), np.zeros(2)) for length in (5, 7)]
    assert [batch.x.shape for batch in as_batches(padded)] == [(2, 5), (2, 7)]


# --- what goes wrong ----------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (X, "of a ndarray: that is data"),
        ((X, Y), "of a tuple: that is data"),
        ({"a": X}, "of a dict: that is data"),
        ("train.csv", "of a str: that is data"),
        (jnp.zeros(3), "that is data, not something that yields batches"),
        (3, "of a int: it is no iterable and no function"),
        (None, "of a NoneType: it is no iterable"),
    ],
)
def test_what_yields_no_batches_is_refused_at_once(data, words):
    with pytest.raises(SpecError, match=words):
        as_batches(data)


@pytest.mark.parametrize("data", [[], iter(()), lambda: iter(()), Dataset.from_arrays(X[:0]).batch(2)])
def test_no_batch_at_all_is_an_error(data):
    with pytest.raises(DataError, match=r"asked to read batches from a .*: it gives none"):
        list(as_batches(data))


def test_a_generator_serves_one_epoch_and_says_so():
    batches = as_batches(pieces())
    assert seen(batches) == list(range(10))
    with pytest.raises(DataError, match="asked for another pass over a generator: its first pass used it up"):
        list(batches)


@pytest.mark.parametrize("steps", [None, 5])
def test_a_generator_that_fails_tells_the_batch(steps):
    def source():
        yield X, Y
        yield X, Y
        raise OSError("disk gone")

    for data in (source, source()):
        passed = iter(as_batches(data, steps=steps))
        next(passed), next(passed)
        with pytest.raises(DataError, match=r"batch 2 \(counted from 0\) .*OSError: disk gone") as caught:
            next(passed)
        assert isinstance(caught.value.__cause__, OSError)


def test_a_function_that_fails_before_its_first_batch_is_told():
    def start():
        raise OSError("disk gone")

    with pytest.raises(DataError, match=r"batch 0 .* of a function: OSError: disk gone"):
        list(as_batches(start))


def test_an_error_of_ours_comes_as_it_is():
    data = Dataset.from_iterable([1, 0]).map(lambda n: (np.ones(2) / n, 1 // n)).batch(1)
    with pytest.raises(DataError, match="asked to map element 1"):
        list(as_batches(data))

    def start():
        raise SpecError("asked for x, there is y; use y")

    with pytest.raises(SpecError, match="use y"):
        list(as_batches(start))


def test_a_buffer_that_is_used_again_does_not_change_what_was_given():
    def source():
        x, y = np.zeros((2, 3)), np.zeros(2)
        for number in range(3):
            x[:], y[:] = number, number
            yield x, y

    assert [batch.x[0, 0] for batch in list(as_batches(source))] == [0, 1, 2]


# --- endless data, and going on -------------------------------------------------


class EndlessGrain:
    def __len__(self):
        return sys.maxsize

    def __iter__(self):
        while True:
            yield from pieces()


class EndlessKeras(Told):
    @property
    def num_batches(self):
        return None


class TooLong:
    def __len__(self):
        return sys.maxsize + 1

    def __getitem__(self, index):
        return X, Y


@pytest.mark.parametrize(
    "data",
    [Dataset.from_arrays(X, Y).batch(4).repeat(), TfDataset(-1), EndlessGrain(), EndlessKeras(), TooLong()],
    ids=lambda data: type(data).__name__,
)
def test_endless_data_need_a_number_of_steps(data):
    with pytest.raises(DataError, match=r"that never ends. Give .* \(`steps_per_epoch=` of `fit`\)"):
        as_batches(data)
    assert as_batches(data, steps=2).size == 2


@pytest.mark.parametrize(
    "data",
    [
        Dataset.from_arrays(X, Y).batch(4).repeat(),
        Dataset.from_arrays(X, Y).batch(4),
        EndlessGrain(),
        list(pieces()),
        pieces,
    ],
    ids=["endless Dataset", "Dataset", "endless loader", "list", "function"],
)
def test_with_steps_the_next_pass_goes_on(data):
    batches = as_batches(data, steps=2)
    assert [[batch.rows for batch in batches] for _ in range(3)] == [[4, 4], [2, 4], [4, 2]]


def test_with_steps_an_iterator_must_hold_enough():
    batches = as_batches(pieces(), steps=2)
    assert len(list(batches)) == 2
    with pytest.raises(DataError, match="asked for 2 batches a pass from a generator: it ended after 1"):
        list(batches)


@pytest.mark.parametrize("data", [[], lambda: iter(()), Dataset.from_arrays(X[:0]).batch(2)])
def test_with_steps_nothing_is_not_asked_for_ever(data):
    with pytest.raises(DataError, match="it gives none"):
        list(as_batches(data, steps=2))


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "2"])
def test_wrong_steps_are_refused(steps):
    with pytest.raises(SpecError, match="steps="):
        as_batches([X], steps=steps)


def shuffled() -> Dataset:
    return Dataset.from_arrays(X, Y).shuffle(seed=4).batch(3)


@pytest.mark.parametrize(
    ("compose", "steps"),
    [
        (shuffled, None),
        (shuffled, 3),
        (shuffled, 5),
        (lambda: shuffled().repeat(), 3),
        (lambda: shuffled().repeat(), 5),
    ],
)
def test_a_pass_can_be_resumed_in_its_middle(compose, steps):
    whole = as_batches(compose(), steps=steps)
    epochs = [[batch.y.tolist() for batch in whole] for _ in range(3)]
    resumed = as_batches(compose(), steps=steps)
    assert [batch.y.tolist() for batch in resumed.iterate(epoch=1, skip=2)] == epochs[1][2:]
    assert [batch.y.tolist() for batch in resumed] == epochs[2]


def test_batches_of_other_data_are_skipped_by_reading():
    assert seen(as_batches(pieces).iterate(epoch=5, skip=1)) == list(range(4, 10))


def test_a_pass_that_is_left_ends_its_threads_and_its_generators():
    closed = []

    def source():
        try:
            yield from pieces()
        finally:
            closed.append(1)

    passed = as_batches(source).iterate()
    next(passed)
    passed.close()
    assert closed == [1]
    passed = as_batches(Dataset.from_iterable(source).prefetch(1)).iterate()
    next(passed)
    passed.close()
    assert closed == [1, 1]
    assert not [thread for thread in threading.enumerate() if thread.name == "dure-prefetch"]


def test_an_iterator_of_the_users_is_not_closed():
    mine = pieces()
    passed = as_batches(mine).iterate()
    next(passed)
    passed.close()
    x, _ = next(mine)
    assert x.shape == (4, 2)
