"""Host memory that is aligned, and given out again when nothing looks at it any more."""

import gc

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.strategy.memory import ALIGNMENT, aligned
from dure.train.buffers import Buffers

MEBIBYTE = 2**20


def address(array):
    return array.ctypes.data


@given(
    st.lists(st.integers(0, 5), max_size=4),
    st.sampled_from([np.float32, np.float64, np.uint8, bool, np.complex64, ml_dtypes.bfloat16]),
)
def test_memory_begins_where_a_device_can_use_it(shape, kind):
    array = aligned(tuple(shape), np.dtype(kind))
    assert array.shape == tuple(shape)
    assert array.dtype == kind
    assert array.size == 0 or address(array) % ALIGNMENT == 0
    array[...] = 1
    assert (np.asarray(array, np.complex64) == 1).all()


def test_memory_that_is_looked_at_is_not_given_out():
    buffers = Buffers()
    first = buffers.empty((MEBIBYTE,), np.dtype(np.float32))
    first[:] = 1
    second = buffers.empty((MEBIBYTE,), np.dtype(np.float32))
    second[:] = 2
    assert (first == 1).all()
    view = first[3:].reshape(-1)[:5]
    where = address(first)
    del first
    third = buffers.empty((MEBIBYTE,), np.dtype(np.float32))
    third[:] = 3
    assert address(third) != where
    assert view.tolist() == [1] * 5
    del view
    assert address(buffers.empty((MEBIBYTE,), np.dtype(np.float32))) == where


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_memory_that_a_device_uses_is_not_given_out(dtype):
    buffers = Buffers()
    host = buffers.empty((4 * MEBIBYTE,), np.dtype(dtype))
    host[:] = 7
    device = jax.device_put(host)
    del host
    for _ in range(12):
        buffers.empty((4 * MEBIBYTE,), np.dtype(dtype))[:] = 9
    assert int(device.min()) == int(device.max()) == 7
    where = device.unsafe_buffer_pointer()
    del device
    gc.collect()
    assert where in {address(buffers.empty((4 * MEBIBYTE,), np.dtype(dtype))) for _ in range(3)}


def test_a_block_is_used_for_what_is_a_little_smaller_and_not_for_what_is_much_smaller():
    buffers = Buffers()
    where = address(buffers.empty((4, MEBIBYTE), np.dtype(np.uint8)))
    assert address(buffers.empty((3, MEBIBYTE), np.dtype(np.uint8))) == where
    held = buffers.empty((1, MEBIBYTE), np.dtype(np.uint8))
    assert address(held) != where


def test_it_keeps_no_more_blocks_than_it_may():
    buffers = Buffers(most=2)
    held = [buffers.empty((MEBIBYTE,), np.dtype(np.uint8)) for _ in range(5)]
    assert len({address(array) for array in held}) == 5
    assert len(buffers._blocks) == 2


def test_small_arrays_are_always_fresh():
    buffers = Buffers()
    buffers.empty((10,), np.dtype(np.uint8))
    assert buffers._blocks == []
