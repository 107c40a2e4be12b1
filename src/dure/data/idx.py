"""Reads idx files, plain or gzipped: bounded before anything is allocated, checked against pinned digests.

Source: the idx format as described with the MNIST database: two zero bytes, a type code, the number of axes,
    the length of each axis as a big-endian 32-bit integer, then the items.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from dure.data.pins import IdxFile, describe
from dure.errors import DataError

__all__ = ["MEND_FILE", "parse_idx", "read_idx", "write_idx"]

CHUNK_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
UNSIGNED_BYTES = 0x08
MAX_AXES = 32

MEND_FILE = "Fetch it again, or remove it so that another source is used."


def read_idx(path: Path, record: IdxFile, *, shown: str | None = None, mend: str = MEND_FILE) -> NDArray[np.uint8]:
    """Returns the array in an idx file whose content is exactly the pinned one.

    At most `record.size_bytes` bytes are ever decompressed, whatever the file claims or holds.

    Args:
        path: an idx file, gzipped or not (its first bytes decide).
        record: the shape and the digest that it must have.
        shown: what errors call the file; its path unless given.
        mend: what errors say is to be done.

    Returns:
        The items, uint8 in `record.shape`, writable.

    Raises:
        DataError: the file is missing, truncated, altered or longer than it should be.
    """
    shown = shown or str(path)
    content, flaw = _content(path, record.size_bytes, shown)
    found = hashlib.sha256(content).hexdigest()
    if flaw is not None or found != record.sha256:
        known = describe(found)
        told = f" It is {known}." if known else ""
        raise DataError(
            f"asked for `{record.name}` in {shown}: expected {record.size_bytes:,} bytes with SHA-256 "
            f"{record.sha256}, found {flaw or f'{len(content):,} bytes'} with SHA-256 {found}.{told} The "
            f"file is truncated or altered. {mend}"
        )
    array = parse_idx(content, shown=shown)
    if array.shape != record.shape:
        raise DataError(
            f"asked for `{record.name}` in {shown} with shape {list(record.shape)}: it holds "
            f"{list(array.shape)}. Fetch the file again."
        )
    return array


def parse_idx(content: bytes | bytearray, *, shown: str = "the file") -> NDArray[np.uint8]:
    """Returns the array of unsigned bytes that an idx file holds.

    The lengths in the header are multiplied as Python integers and compared with the bytes that are there
    before an array is made, so no header can ask for memory.

    Args:
        content: the whole file, decompressed.
        shown: what errors call it.

    Returns:
        The items, uint8; it shares the memory of `content`.

    Raises:
        DataError: not an idx file of unsigned bytes, or its lengths do not match its bytes.

    Example:
        >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
        array([7, 8, 9], dtype=uint8)
    """
    if len(content) < 4 or content[0] != 0 or content[1] != 0:
        raise DataError(
            f"asked to read {shown} as an idx file: it has {len(content):,} bytes and starts with "
            f"{bytes(content[:4]).hex() or 'nothing'}, where 0000, a type and the number of axes belong. "
            "Use an idx file, as train-images-idx3-ubyte."
        )
    kind, axes = content[2], content[3]
    if kind != UNSIGNED_BYTES or not 1 <= axes <= MAX_AXES:
        raise DataError(
            f"asked to read {shown} as an idx file of unsigned bytes (type 0x08) of 1 to {MAX_AXES} axes: it "
            f"has type 0x{kind:02x} and {axes} axes. Use a file of the MNIST family."
        )
    start = 4 + 4 * axes
    # Bytes that are missing from the header read as shorter lengths; the comparison below finds that too.
    shape = tuple(int.from_bytes(content[4 + 4 * axis : 8 + 4 * axis], "big") for axis in range(axes))
    need = start + math.prod(shape)
    if need != len(content):
        raise DataError(
            f"asked to read {shown} as an idx file: its header says {list(shape)}, which takes {need:,} "
            f"bytes, and it has {len(content):,}. Fetch the file again."
        )
    try:
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
    except ValueError as error:  # an empty array whose other lengths NumPy cannot count
        raise DataError(
            f"asked to read {shown} as an idx file: NumPy has no array of its shape {list(shape)} ({error}). "
            "Fetch the file again."
        ) from error


def write_idx(array: NDArray[np.uint8]) -> bytes:
    """Returns an array of unsigned bytes as an idx file, not compressed.

    Args:
        array: uint8, 1 to 32 axes.

    Example:
        >>> write_idx(np.array([7, 8, 9], np.uint8)).hex()
        '0000080100000003070809'
    """
    header = bytes([0, 0, UNSIGNED_BYTES, array.ndim])
    return header + b"".join(length.to_bytes(4, "big") for length in array.shape) + array.tobytes()


def _content(path: Path, limit_bytes: int, shown: str) -> tuple[bytearray, str | None]:
    """Returns at most `limit_bytes` of the content, and what is wrong with its form (None if nothing)."""
    try:
        if not path.is_file():  # a pipe or a device would block or never end
            raise FileNotFoundError(2, "it is missing, or not a regular file")
        with path.open("rb") as file:
            packed = file.read(2) == GZIP_MAGIC
            file.seek(0)
            return _inflate(file, limit_bytes) if packed else _plain(file, limit_bytes)
    except OSError as error:
        raise DataError(
            f"asked to read {shown}: {error.strerror}. Put the file there, or remove its folder's other "
            "files so that another source is used."
        ) from error


def _plain(file: BinaryIO, limit_bytes: int) -> tuple[bytearray, str | None]:
    content = bytearray(file.read(limit_bytes + 1))
    if len(content) > limit_bytes:
        del content[limit_bytes:]
        return content, f"more than {limit_bytes:,} bytes, the first {limit_bytes:,} of them"
    return content, None


def _inflate(file: BinaryIO, limit_bytes: int) -> tuple[bytearray, str | None]:
    content = bytearray()
    inflater = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        while not inflater.eof:
            chunk = inflater.unconsumed_tail or file.read(CHUNK_BYTES)
            if not chunk:
                return content, f"a gzip file that stops after {len(content):,} bytes of content,"
            # One byte past the limit is enough to know: a bomb is never unpacked.
            content += inflater.decompress(chunk, min(CHUNK_BYTES, limit_bytes + 1 - len(content)))
            if len(content) > limit_bytes:
                del content[limit_bytes:]
                return (
                    content,
                    f"a gzip file of more than {limit_bytes:,} bytes, the first {limit_bytes:,} of them",
                )
    except zlib.error as error:
        return content, f"a damaged gzip file ({error}), {len(content):,} bytes of it readable,"
    return content, None
