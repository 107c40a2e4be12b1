"""Host memory that the CPU back end takes as it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["ALIGNMENT", "aligned", "is_taken", "size_bytes", "view"]

# XLA's CPU back end uses a NumPy array's memory as it is when it begins at a multiple of this. NumPy's own
# begins 16 bytes into a page, and is copied, once for each device: for 32 MiB that is 20 ms against nothing.
ALIGNMENT = 64


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Memory of its own for an array, its content undefined.

    Example:
        >>> array = aligned((3, 5), np.dtype(np.float32))
        >>> array.shape, array.ctypes.data % ALIGNMENT
        ((3, 5), 0)
    """
    return view(np.empty(size_bytes(shape, dtype) + ALIGNMENT, np.uint8), shape, dtype)


def is_taken(array: np.ndarray) -> bool:
    """Whether the CPU back end takes an array's memory as it is."""
    return array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0


def size_bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """How much memory an array takes, in bytes."""
    return math.prod(shape) * dtype.itemsize


def view(block: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """An array in a block of bytes that is `ALIGNMENT` bytes longer."""
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + size_bytes(shape, dtype)].view(dtype).reshape(shape)
