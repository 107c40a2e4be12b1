from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.data import Dataset
from dure.data.dataset import Position
from dure.errors import DataError, SpecError


def numbers(count: int) -> Dataset:
    return Dataset.from_arrays(np.arange(count))


def seen(data) -> list[int]:
    return [int(element) for element in data]


# --- sources ------------------------------------------------------------------


def test_rows_of_arrays_are_the_elements():
    x, y, weight = np.arange(6).reshape(3, 2), np.array([0, 1, 2]), np.array([1.0, 0.5, 0.0])
    assert [element.tolist() for element in Dataset.from_arrays(x)] == x.tolist()
    assert [(a.tolist(), int(b)) for a, b in Dataset.from_arrays(x, y)] == [
        ([0, 1], 0),
        ([2, 3], 1),
        ([4, 5], 2),
    ]
    assert [float(w) for _, _, w in Dataset.from_arrays(x, y, weight)] == [1.0, 0.5, 0.0]


def test_arrays_may_be_trees():
    data = Dataset.from_arrays({"a": np.arange(4), "b": (np.ones((4, 2)), [5, 6, 7, 8])}, [0, 1, 0, 1]).batch(3)
    (first, y), (second, _) = data
    assert first["b"][0].shape == (3, 2)
    assert first["b"][1].tolist() == [5, 6, 7]
    assert second["a"].tolist() == [3]
    assert y.tolist() == [0, 1, 0]


def test_an_array_changed_in_place_is_read_as_it_is_then():
    x = np.zeros(4)
    data = Dataset.from_arrays(x).batch(2)
    assert [batch.sum() for batch in data] == [0, 0]
    x[:] = 1
    assert [batch.sum() for batch in data] == [2, 2]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((np.zeros(3), np.zeros(4)), DataError, r"numbers of rows: x \[3\], y \[4\]"),
        (({"a": np.zeros(3), "b": np.zeros(2)},), DataError, r"x \[3, 2\]"),
        ((np.float32(3),), DataError, "which has no rows"),
        ((3.0, [1]), DataError, "which has no rows"),
        ((["a", "b"],), DataError, "no rows|dtype"),
        (({},), DataError, "numbers of rows: x"),
        ((np.zeros(3), None, np.ones(3)), SpecError, r"with weight=array\(\[1., 1., 1.\]\) and no y"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        Dataset.from_arrays(*arguments)


def test_a_function_is_called_anew_for_each_pass():
    calls = []

    def source():
        calls.append(1)
        yield from (1, 2, 3)

    data = Dataset.from_iterable(source)
    assert calls == []
    assert list(data) == list(data) == [1, 2, 3]
    assert len(calls) == 2
    assert data.size is None


def test_an_iterable_is_measured_each_time():
    source = [1, 2]
    data = Dataset.from_iterable(source)
    assert len(data) == 2
    source.append(3)
    assert len(data) == 3


@pytest.mark.parametrize("source", [iter([1]), (n for n in [1]), map(str, [1])])
def test_an_iterator_is_refused(source):
    with pytest.raises(SpecError, match="which one pass uses up"):
        Dataset.from_iterable(source)


def test_what_cannot_be_passed_over_is_refused():
    with pytest.raises(SpecError, match="of a int, which is no iterable and no function"):
        Dataset.from_iterable(3)


# --- stages -------------------------------------------------------------------


def test_a_stage_changes_nothing_before_it():
    data = numbers(10)
    data.shuffle(seed=1)
    data.take(2)
    assert seen(data) == list(range(10))


def test_map_gets_a_tuple_as_one_argument():
    data = Dataset.from_arrays([1, 2], [3, 4]).map(lambda row: row[0] * row[1])
    assert seen(data) == [3, 8]


@given(st.integers(0, 40), st.integers(1, 12), st.booleans())
def test_batches_hold_each_element_once(count, rows, drop):
    by_index = list(numbers(count).batch(rows, drop_remainder=drop))
    by_element = list(numbers(count).map(lambda n: n).batch(rows, drop_remainder=drop))
    kept = count // rows * rows if drop else count
    for batches in (by_index, by_element):
        assert [n for batch in batches for n in batch.tolist()] == list(range(kept))
        assert all(len(batch) == rows for batch in batches[:-1])
    assert len(by_index) == len(numbers(count).batch(rows, drop_remainder=drop))


@given(st.integers(0, 60), st.none() | st.integers(1, 80), st.integers(0, 2**70), st.integers(0, 3))
def test_a_shuffle_is_a_permutation_by_seed_and_epoch(count, buffer_size, seed, epoch):
    data = numbers(count).shuffle(buffer_size, seed=seed)
    first = seen(data.iterate(Position(epoch, 0)))
    assert sorted(first) == list(range(count))
    again = numbers(count).shuffle(buffer_size, seed=seed)
    assert seen(again.iterate(Position(epoch, 0))) == first


def test_each_epoch_has_an_order_of_its_own():
    data = numbers(50).shuffle(seed=3)
    orders = [seen(data) for _ in range(3)]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert seen(numbers(50).shuffle(seed=4)) != orders[0]
    again = numbers(50).shuffle(seed=3)
    assert [seen(again) for _ in range(3)] == orders


def test_a_window_moves_nothing_forward_by_more_than_itself():
    order = seen(numbers(2_000).shuffle(10, seed=0))
    assert all(number < place + 10 for place, number in enumerate(order))
    assert order != sorted(order)


def test_a_shuffle_is_even():
    counts = np.zeros((4, 4))
    data = numbers(4).shuffle(seed=0)
    for _ in range(2_000):
        for place, number in enumerate(seen(data)):
            counts[place, number] += 1
    np.testing.assert_allclose(counts / 2_000, 0.25, atol=0.05)


@given(st.integers(0, 50), st.integers(1, 7))
def test_shards_are_disjoint_and_complete(count, shards):
    parts = [numbers(count).shuffle(seed=1).shard(index, shards) for index in range(shards)]
    elements = [seen(part) for part in parts]
    assert sorted(n for part in elements for n in part) == list(range(count))
    assert [len(part) for part in parts] == [len(part) for part in elements]
    assert max(map(len, elements)) - min(map(len, elements)) <= 1


def test_two_passes_of_a_repeated_one_are_four_of_it():
    once, twice = numbers(8).shuffle(seed=5), numbers(8).shuffle(seed=5).repeat(2)
    singles = [seen(once) for _ in range(4)]
    assert [seen(twice), seen(twice)] == [singles[0] + singles[1], singles[2] + singles[3]]


def test_repeat_without_a_number_goes_on():
    data = numbers(3).repeat()
    assert data.size == math.inf
    assert seen(data.take(7)) == [0, 1, 2, 0, 1, 2, 0]
    assert len(data.take(7)) == 7
    assert numbers(0).repeat().size == 0
    assert seen(numbers(0).repeat()) == []
    assert list(Dataset.from_iterable(lambda: iter(())).repeat()) == []
    assert seen(numbers(3).repeat(0)) == []


def test_take_asks_for_no_element_too_many():
    def source():
        yield 1
        yield 2
        raise AssertionError("asked for a third")

    assert list(Dataset.from_iterable(source).take(2)) == [1, 2]
    assert list(Dataset.from_iterable(source).take(0)) == []


def test_sizes_are_told_before_a_pass():
    unknown = Dataset.from_iterable(lambda: iter([1, 2, 3]))
    assert numbers(10).shuffle().map(abs).batch(3).prefetch(2).repeat(2).size == 8
    assert unknown.batch(2).size is None
    assert unknown.take(2).size is None
    assert unknown.take(0).size == 0
    assert unknown.repeat(2).size is None
    assert unknown.shard(0, 2).size is None
    assert numbers(3).repeat().batch(2).size == math.inf
    for data, words in ((unknown, "only a pass can measure"), (numbers(3).repeat(), "never ends")):
        with pytest.raises(TypeError, match=words):
            len(data)
    assert list(unknown) == [1, 2, 3]


def test_a_data_set_is_true_and_shows_its_length():
    assert numbers(0)
    assert Dataset.from_iterable(lambda: iter(()))
    assert repr(numbers(1234)) == "Dataset(1,234 elements)"
    assert repr(numbers(1).repeat()) == "Dataset(endless)"
    assert repr(Dataset.from_iterable(lambda: iter(()))) == "Dataset(length unknown)"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda data: data.batch(0), "Dataset.batch with rows=0: it must be a whole number of at least 1"),
        (lambda data: data.batch(2.0), "rows=2.0"),
        (lambda data: data.batch(True), "rows=True"),
        (lambda data: data.shuffle(0), "buffer_size=0"),
        (lambda data: data.shuffle(seed=-1), "seed=-1"),
        (lambda data: data.shard(0, 0), "count=0"),
        (lambda data: data.shard(3, 3), "asked for shard index 3 of 3: there are 0 to 2"),
        (lambda data: data.shard(-1, 3), "index=-1"),
        (lambda data: data.take(-1), "count=-1"),
        (lambda data: data.repeat(-1), "count=-1"),
        (lambda data: data.prefetch(0), "count=0"),
        (lambda data: data.iterate((0, -1)), "elements=-1"),
        (lambda data: data.repeat().shuffle(), r"shuffle the whole of Dataset\(endless\), which has no whole"),
    ],
)
def test_wrong_numbers_are_refused_when_composed(call, words):
    with pytest.raises(SpecError, match=words):
        call(numbers(3))


# --- what goes wrong in a pass ------------------------------------------------


@pytest.mark.parametrize("ahead", [False, True])
def test_a_source_that_fails_tells_which_element(ahead):
    def source():
        yield from range(5)
        raise OSError("disk gone")

    data = Dataset.from_iterable(source)
    passed = iter(data.prefetch(2) if ahead else data)
    assert [next(passed) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(DataError, match=r"element 5 \(counted from 0\): OSError: disk gone") as caught:
        next(passed)
    assert isinstance(caught.value.__cause__, OSError)
    assert list(passed) == []


def test_a_function_that_fails_tells_which_element():
    data = numbers(5).map(lambda n: 1 // (int(n) - 3))
    passed = iter(data)
    assert [next(passed) for _ in range(3)] == [-1, -1, -1]
    with pytest.raises(DataError, match=r"asked to map element 3 .*ZeroDivisionError"):
        next(passed)


def test_errors_of_ours_pass_through_a_map_and_a_source():
    def refuse(_):
        raise SpecError("asked for x, there is y; use y")

    def source():
        raise SpecError("asked for x, there is y; use y")

    for data in (numbers(1).map(refuse), Dataset.from_iterable(source)):
        with pytest.raises(SpecError, match="there is y"):
            list(data)


def test_a_map_that_stops_iteration_is_an_error_not_an_end():
    with pytest.raises(DataError, match="StopIteration"):
        list(numbers(3).map(lambda _: next(iter(()))))


@pytest.mark.parametrize(
    ("elements", "words"),
    [
        ([(1, 2), (3,)], r"element 1 .* structure \(\*,\): element 0 .* \(\*, \*\)"),
        ([{"a": 1}, {"b": 1}], r"structure \{'b': \*\}"),
        (
            [np.zeros(2), np.zeros(2), np.zeros(3)],
            r"element 2 .* holds float64 \[3\]: element 0 .* float64 \[2\]",
        ),
        ([np.float32(1), np.float64(1)], r"holds float64 \[\]: element 0 of the same batch holds float32"),
        (["a", "b"], "its dtype is `<U1`"),
    ],
)
def test_elements_that_are_not_alike_cannot_be_a_batch(elements, words):
    with pytest.raises(DataError, match=words):
        list(Dataset.from_iterable(elements).batch(4))


def test_a_batch_copies_from_a_buffer_that_is_used_again():
    def source():
        buffer = np.zeros(2)
        for number in range(4):
            buffer[:] = number
            yield buffer

    first, second = Dataset.from_iterable(source).batch(2)
    assert first.tolist() == [[0, 0], [1, 1]]
    assert second.tolist() == [[2, 2], [3, 3]]


# --- passes -------------------------------------------------------------------


@given(st.integers(0, 24), st.integers(0, 2), st.integers(1, 5))
def test_a_pass_goes_on_from_its_position(given_before, epoch, rows):
    def compose() -> Dataset:
        return numbers(23).shuffle(seed=7).map(lambda n: n + 100).batch(rows).repeat(2)

    whole = [batch.tolist() for batch in compose().iterate((epoch, 0))]
    passed = compose().iterate((epoch, 0))
    before = [batch.tolist() for _, batch in zip(range(given_before), passed, strict=False)]
    state = passed.state()
    assert state == Position(epoch, len(before))
    passed.close()
    rest = [batch.tolist() for batch in compose().iterate(state)]
    assert before + rest == whole


def test_a_position_is_two_numbers_and_sets_the_next_epoch():
    data, other = numbers(9).shuffle(seed=2), numbers(9).shuffle(seed=2)
    orders = [seen(data) for _ in range(3)]
    passed = other.iterate((1, 4))
    assert passed.state() == (1, 4)
    assert seen(passed) == orders[1][4:]
    assert seen(other) == orders[2]


def test_a_position_past_the_end_gives_nothing():
    assert seen(numbers(3).iterate((0, 5))) == []


def test_a_pass_that_is_left_leaves_no_thread():
    data = numbers(1_000).map(lambda n: n).prefetch(2).batch(3).prefetch(2)
    with data.iterate() as passed:
        next(passed)
        assert sum(thread.name == "dure-prefetch" for thread in threading.enumerate()) == 2
    passed.close()
    for batch in data:
        assert batch.tolist() == [0, 1, 2]
        break
    assert not [thread for thread in threading.enumerate() if thread.name == "dure-prefetch"]


def test_two_passes_at_once_do_not_disturb_each_other():
    data = numbers(4)
    assert [(int(a), int(b)) for a, b in zip(data, data, strict=True)] == [(n, n) for n in range(4)]
