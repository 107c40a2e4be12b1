"""Host memory for data on their way to a device: aligned, so that the CPU back end need not copy it, and used again."""

from __future__ import annotations

import gc
import math
import sys
from typing import Any, final

import numpy as np

__all__ = ["Buffers", "aligned"]

# XLA's CPU back end uses a NumPy array's memory as it is when it begins at a multiple of this. NumPy's own
# begins 16 bytes into a page, and is copied: for 32 MiB that is 20 ms against nothing.
ALIGNMENT = 64
# Smaller arrays are not worth looking for.
_SMALL_BYTES = 2**20


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Memory of its own for an array, its content undefined.

    Example:
        >>> array = aligned((3, 5), np.dtype(np.float32))
        >>> array.shape, array.ctypes.data % ALIGNMENT
        ((3, 5), 0)
    """
    return _view(np.empty(_size_bytes(shape, dtype) + ALIGNMENT, np.uint8), shape, dtype)


@final
class Buffers:
    """Memory that is given out again when nothing looks at it any more.

    Whoever uses an array's memory, a view or a device, holds a reference to it: a block that only this
    object refers to is free. Fresh memory costs as much as filling it, since the system has to give it page
    by page.

    Args:
        most: how many blocks to keep.
    """

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._blocks: list[np.ndarray] = []

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """An array whose content is undefined."""
        size_bytes = _size_bytes(shape, dtype)
        if size_bytes < _SMALL_BYTES:
            return aligned(shape, dtype)
        block = self._free(size_bytes)
        if block is None:
            # JAX lets go of memory in a hook of the collector, which a quiet loop may not run for long.
            gc.collect(0)
            block = self._free(size_bytes)
        if block is None:
            block = np.empty(size_bytes + ALIGNMENT, np.uint8)
            if len(self._blocks) < self._most:
                self._blocks.append(block)
        return _view(block, shape, dtype)

    def _free(self, size_bytes: int) -> np.ndarray | None:
        for index in range(len(self._blocks)):
            fits = size_bytes <= self._blocks[index].size - ALIGNMENT <= 2 * size_bytes
            # Two: the list's, and the question's own.
            if fits and sys.getrefcount(self._blocks[index]) == 2:
                return self._blocks[index]
        return None


def _size_bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return math.prod(shape) * dtype.itemsize


def _view(block: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + _size_bytes(shape, dtype)].view(dtype).reshape(shape)
