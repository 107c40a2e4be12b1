"""Host memory for data on their way to a device: aligned, so that the CPU back end need not copy it, and used again."""

from __future__ import annotations

import gc
import sys
from typing import Any, final

import numpy as np

from dure.strategy.memory import ALIGNMENT, aligned, size_bytes, view

__all__ = ["Buffers"]

# Smaller arrays are not worth looking for.
_SMALL_BYTES = 2**20


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
        wanted_bytes = size_bytes(shape, dtype)
        if wanted_bytes < _SMALL_BYTES:
            return aligned(shape, dtype)
        block = self._free(wanted_bytes)
        if block is None:
            # JAX lets go of memory in a hook of the collector, which a quiet loop may not run for long.
            gc.collect(0)
            block = self._free(wanted_bytes)
        if block is None:
            block = np.empty(wanted_bytes + ALIGNMENT, np.uint8)
            if len(self._blocks) < self._most:
                self._blocks.append(block)
        return view(block, shape, dtype)

    def _free(self, wanted_bytes: int) -> np.ndarray | None:
        for index in range(len(self._blocks)):
            fits = wanted_bytes <= self._blocks[index].size - ALIGNMENT <= 2 * wanted_bytes
            # Two: the list's, and the question's own.
            if fits and sys.getrefcount(self._blocks[index]) == 2:
                return self._blocks[index]
        return None
