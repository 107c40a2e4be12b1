"""Data as they are given: read, checked, and cut."""

import jax
import ml_dtypes
import numpy as np
import pytest

from dure.errors import DataError, SpecError
from dure.models.pure import Batch
from dure.train.inputs import (
    Rows,
    check_finite,
    check_labels,
    divide,
    is_arrays,
    rows_of,
    struct_of,
    whole_number,
)

X = np.arange(12.0).reshape(6, 2)


class Speaks:
    """An array of some other library."""

    def __array__(self, dtype=None, copy=None):
        return np.arange(6)


def test_arrays_of_any_kind_are_read():
    rows = rows_of({"a": X, "b": (jax.numpy.ones((6, 3)), Speaks())}, [np.arange(6)], np.ones(6))
    assert rows.num_rows == 6
    assert rows.batch.x["b"][1].tolist() == [0, 1, 2, 3, 4, 5]
    assert isinstance(rows.batch.x["b"][0], np.ndarray)
    assert rows.batch.weight.dtype == np.float32


def test_64_bits_become_32_and_other_dtypes_stay():
    x = {
        "f8": np.ones(3),
        "i8": np.ones(3, np.int64),
        "u8": np.ones(3, np.uint64),
        "c16": np.ones(3, np.complex128),
        "u1": np.ones(3, np.uint8),
        "f2": np.ones(3, np.float16),
        "bf": np.ones(3, ml_dtypes.bfloat16),
        "b": np.ones(3, bool),
        "big": np.ones(3, ">f4"),
    }
    rows = rows_of(x)
    for found in (rows.whole().x, rows.take(np.array([0, 1])).x, rows.struct(5).x):
        assert {name: str(leaf.dtype) for name, leaf in found.items()} == {
            "f8": "float32", "i8": "int32", "u8": "uint32", "c16": "complex64", "u1": "uint8",
            "f2": "float16", "bf": "bfloat16", "b": "bool", "big": "float32",
        }  # fmt: skip
    assert rows.size_bytes == 3 * (4 + 4 + 4 + 8 + 1 + 2 + 2 + 1 + 4)


def test_x64_keeps_64_bits():
    jax.config.update("jax_enable_x64", True)
    try:
        assert rows_of(X, np.arange(6)).whole().x.dtype == np.float64
        assert rows_of(X).struct(2).x.dtype == np.float64
    finally:
        jax.config.update("jax_enable_x64", False)


def test_numbers_that_32_bits_cannot_hold_are_refused_and_not_wrapped():
    rows = rows_of(X, np.array([1, 2, 3, 4, 5, 2**40]))
    with pytest.raises(DataError, match=r"y is int64 with values from 1 to 1099511627776, which int32 cannot hold"):
        rows.whole()
    assert rows_of(np.array([2**31 - 1, -(2**31)])).whole().x.tolist() == [2**31 - 1, -(2**31)]


def test_rows_are_taken_in_memory_of_their_own():
    x = X.astype(np.float32)
    rows = rows_of(x, np.arange(6))
    taken = rows.take(np.array([[5, 0], [1, 1]]))
    assert taken.x.shape == (2, 2, 2)
    assert taken.y.tolist() == [[5, 0], [1, 1]]
    taken.x[:] = -1
    assert x.min() == 0


def test_a_part_is_a_view():
    rows = rows_of(X, np.arange(6)).part(2, 5)
    assert rows.num_rows == 3
    assert rows.batch.y.tolist() == [2, 3, 4]
    assert rows.batch.x.base is not None


@pytest.mark.parametrize(
    ("x", "y", "weight", "words"),
    [
        (X, np.arange(5), None, r"x has 6 rows and y has 5: each needs the same number"),
        ({"a": X, "b": X[:4]}, None, None, r"x\['a'\] has 6 rows and x\['b'\] has 4"),
        (X, (np.arange(6), np.arange(7)), None, r"x has 6 rows and y\[1\] has 7"),
        (X, np.arange(6), np.ones(5), r"x has 6 rows and weight has 5"),
        (X, np.arange(6), np.ones((6, 2)), r"sample_weight has the shape \[6, 2\], and it is one number a row: \[6\]"),
        (X[:0], np.arange(0), None, r"x has the shape \[0, 2\], so no rows. Give at least one"),
        ([], None, None, r"x is \[\], which holds no array"),
        ({}, None, None, r"x is {}, which holds no array"),
        (np.float32(3), None, None, r"x is the single value .*without rows. Give an array"),
        ([1, 2, 3], None, None, r"x\[0\] is 1, a int, where an array \[rows, ...\] belongs"),
        (X, ["a"], None, r"y\[0\] is 'a', a str, where an array"),
        (np.array(["a", "b"]), None, None, r"x is no array that can be used: .*<U1.*Give numbers or booleans"),
        (np.array([{}, []], object), None, None, r"x is no array that can be used: .*object"),
        (np.array(["2020-01-01"], "M8[D]"), None, None, r"x is no array that can be used: .*datetime64"),
        (np.zeros(3, [("a", "f4")]), None, None, r"x is no array that can be used: .*Give numbers"),
        (np.ones(3, np.longdouble), None, None, r"x is float128, which no device computes with. Use float32"),
    ],
)
def test_what_cannot_be_used_is_named(x, y, weight, words):
    with pytest.raises(DataError, match=words):
        rows_of(x, y, weight)


@pytest.mark.parametrize(
    ("x", "arrays"),
    [
        (X, True),
        ({"a": X}, True),
        ((X, X), True),
        ([X, X], True),
        ([1, 2], True),
        (Speaks(), True),
        ([(X, X)], False),
        ([{"a": X}], False),
        (iter([X]), False),
        (lambda: [X], False),
        ("text", False),
        (b"text", False),
        (np.ndarray, False),
        (None, False),
    ],
)
def test_arrays_are_told_from_batches(x, arrays):
    assert is_arrays(x) is arrays


def test_the_last_rows_are_for_validation():
    train, held_back = divide(rows_of(X, np.arange(6)), 0.4)
    assert train.batch.y.tolist() == [0, 1, 2]
    assert held_back.batch.y.tolist() == [3, 4, 5]


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5, "0.1", True, float("nan"), None])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(SpecError, match="validation_split is .* a share of the rows between 0 and 1"):
        divide(rows_of(X), share)


def test_a_share_that_leaves_nothing_is_refused():
    with pytest.raises(SpecError, match=r"validation_split=0.5 of 1 rows leaves 0 to train on and 1 to validate"):
        divide(rows_of(X[:1]), 0.5)


def test_what_is_not_finite_is_named_with_row_and_leaf():
    x = {"a": X.copy(), "b": np.arange(6)}
    check_finite(rows_of(x, X))
    x["a"][4, 1] = np.nan
    x["a"][5, 1] = np.inf
    with pytest.raises(DataError, match=r"x\['a'\] has a value that is not finite in row 4, and 2 such rows of 6"):
        check_finite(rows_of(x))
    with pytest.raises(DataError, match=r"batch 3: y has a value that is not finite in row 0"):
        check_finite(rows_of(X, np.full(6, np.nan)), "batch 3: ")
    with pytest.raises(DataError, match=r"x has a value"):
        check_finite(rows_of(np.full((3, 1), np.nan).astype(ml_dtypes.bfloat16)))


@pytest.mark.parametrize(
    ("y", "label", "row", "count"),
    [([0, 1, 3, 2], 3, 2, 1), ([0, -1, 3, 2], -1, 1, 2), ([[0], [1], [2], [7]], 7, 3, 1)],
)
def test_a_label_out_of_range_is_named_with_its_first_row(y, label, row, count):
    with pytest.raises(
        DataError, match=rf"y has the label {label} in row {row}, and {count} such rows: the model has 3 classes"
    ):
        check_labels(rows_of(np.zeros((4, 1)), np.array(y)), (3,))


def test_labels_of_each_leaf_are_checked_against_its_own_classes():
    rows = rows_of(np.zeros((4, 1)), {"a": np.arange(4), "b": np.arange(4), "c": np.arange(4)})
    check_labels(rows, (4, None, None))
    with pytest.raises(DataError, match=r"y\['b'\] has the label 2 in row 2"):
        check_labels(rows, (4, 2, None))


@pytest.mark.parametrize("value", [0, -3, 2.0, "4", True, None, np.float32(3), [1]])
def test_a_number_that_is_none_is_refused_with_what_to_write(value):
    with pytest.raises(SpecError, match=r"batch_size is .*; it is a whole number of at least 1. Write `batch_size=32`"):
        whole_number("batch_size", value)


@pytest.mark.parametrize("value", [1, np.int64(7), np.uint8(3)])
def test_whole_numbers_of_any_library_are_fine(value):
    found = whole_number("batch_size", value)
    assert found == value
    assert type(found) is int


def test_a_struct_has_the_dtypes_of_the_device():
    struct = struct_of(Batch(np.zeros((2, 3)), None, None))
    assert (struct.x.shape, struct.x.dtype, struct.y) == ((2, 3), np.float32, None)
    assert Rows(Batch(X), 6).struct(4).x.shape == (4, 2)
