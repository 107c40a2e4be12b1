from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.data.tree import as_array, flat, leaves, map_leaves, numbers_as_arrays, structure
from dure.errors import DataError


class Pair(NamedTuple):
    x: object
    y: object


trees = st.recursive(
    st.integers(-9, 9) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.tuples(inner, inner).map(lambda pair: Pair(*pair))
    ),
    max_leaves=8,
)


@given(trees)
def test_mapping_keeps_the_structure_and_the_order(tree):
    seen: list[int] = []
    mapped = map_leaves(lambda leaf: seen.append(leaf) or -leaf, tree)
    assert structure(mapped) == structure(tree)
    assert seen == list(leaves(tree))
    assert list(leaves(mapped)) == [-leaf for leaf in seen]


@given(trees)
def test_flat_is_the_leaves_and_the_structure(tree):
    arrays, form = flat(tree)
    assert [array.item() for array in arrays] == list(leaves(tree))
    assert form == structure(tree)


@given(st.lists(st.sampled_from([np.float32(1), np.zeros(2), np.arange(3)]), max_size=4).map(tuple))
def test_the_short_way_for_plain_rows_gives_the_same(row):
    arrays, form = flat(row)
    assert form == structure(row)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, row, strict=True))


def test_a_named_tuple_stays_one():
    assert map_leaves(lambda leaf: leaf + 1, Pair(1, {"a": 2})) == Pair(2, {"a": 3})


def test_dicts_are_alike_whatever_their_order():
    assert structure({"a": 1, "b": [2]}) == structure({"b": [3], "a": 4}) != structure({"a": 1, "b": 2})


class Tensor:
    """As torch's: on some device, with a gradient, `numpy` only after `detach` and `cpu`."""

    def __init__(self, value, ready=False):
        self._value, self._ready = value, ready

    def detach(self):
        return Tensor(self._value)

    def cpu(self):
        return Tensor(self._value, ready=True)

    def numpy(self):
        if not self._ready:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return self._value


class Eager:
    """As TensorFlow's: `numpy` alone."""

    def numpy(self):
        return np.float32([1, 2])


class Speaks:
    """DLPack and nothing else."""

    def __init__(self, value):
        self._value = value

    def __dlpack__(self, **options):
        return self._value.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._value.__dlpack_device__()


@pytest.mark.parametrize(
    "value",
    [
        np.float32([1, 2]),
        [1.0, 2.0],
        jnp.array([1.0, 2.0]),
        Tensor(np.float32([1, 2])),
        Eager(),
        Speaks(np.float32([1, 2])),
        jnp.array([1.0, 2.0], jnp.bfloat16),
        np.array([1, 2], ml_dtypes.float8_e4m3fn),
    ],
    ids=lambda value: type(value).__name__,
)
def test_arrays_of_any_library_are_read(value):
    array = as_array(value)
    assert isinstance(array, np.ndarray)
    np.testing.assert_array_equal(array.astype(np.float32), [1, 2])


def test_big_endian_and_strided_arrays_keep_their_values():
    array = np.arange(12, dtype=">i4").reshape(3, 4)[::2, ::-1]
    np.testing.assert_array_equal(as_array(array), [[3, 2, 1, 0], [11, 10, 9, 8]])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array(["a", "b"]), "its dtype is `<U1`"),
        (np.array([{}, 1], dtype=object), "its dtype is `object`"),
        (np.array(["2020-01-01"], "datetime64[D]"), "its dtype is `datetime64"),
        (np.zeros(2, [("a", "i4")]), "its dtype is"),
        (object(), "its dtype is `object`"),
        ([[1, 2], [3]], "builtins.list as an array: .*inhomogeneous"),
        (type("Gone", (), {"numpy": lambda self: 1 / 0 if False else self.missing})(), "Gone as an array"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(value, words):
    with pytest.raises(DataError, match=words):
        as_array(value)


def test_lists_of_numbers_are_arrays_and_lists_of_arrays_are_not():
    x, both = numbers_as_arrays(([1, 2], [np.zeros(2), np.ones(2)]))
    assert isinstance(x, np.ndarray)
    assert isinstance(both, list)
    assert numbers_as_arrays([]) == []
