from __future__ import annotations

import gzip
import hashlib
import os
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dure.data.catalog import SAMPLE_FOLDER
from dure.data.idx import parse_idx, read_idx, write_idx
from dure.data.pins import FASHION_MNIST, MNIST, IdxFile
from dure.errors import DataError

ARRAY = np.arange(60, dtype=np.uint8).reshape(3, 4, 5)
CONTENT = write_idx(ARRAY)
RECORD = IdxFile("train-images-idx3-ubyte", (3, 4, 5), hashlib.sha256(CONTENT).hexdigest())


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5)))
def test_what_is_written_is_read_again(array):
    again = parse_idx(write_idx(array))
    assert again.dtype == np.uint8
    np.testing.assert_array_equal(again, array)


@given(st.binary(max_size=200))
def test_any_bytes_give_an_array_or_a_data_error(content):
    try:
        array = parse_idx(content)
    except DataError:
        return
    assert write_idx(array) == content


@given(st.integers(0, len(CONTENT) - 1), st.integers(1, 255))
def test_a_changed_header_never_asks_for_memory(position, change):
    content = bytearray(CONTENT)
    content[position] ^= change
    try:
        parse_idx(content)
    except DataError:
        assert position < 16


def test_lengths_that_overflow_64_bits_are_refused():
    header = bytes([0, 0, 8, 4]) + b"\xff\xff\xff\xff" * 4
    with pytest.raises(DataError, match=r"its header says \[4294967295, .* which takes 340,282"):
        parse_idx(header)


def test_an_empty_array_of_uncountable_lengths_is_refused():
    header = bytes([0, 0, 8, 4]) + bytes(4) + b"\xff\xff\xff\xff" * 3
    with pytest.raises(DataError, match=r"NumPy has no array of its shape \[0, 4294967295"):
        parse_idx(header)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it has 0 bytes and starts with nothing"),
        (b"\x1f\x8b\x08\x00", "starts with 1f8b0800"),
        (bytes([0, 0, 13, 1, 0, 0, 0, 0]), "it has type 0x0d and 1 axes"),
        (bytes([0, 0, 8, 0]), "0 axes"),
        (bytes([0, 0, 8, 33]), "33 axes"),
        (bytes([0, 0, 8, 2, 0, 0]), "which takes 12 bytes, and it has 6"),
        (CONTENT[:-1], "which takes 76 bytes, and it has 75"),
        (CONTENT + b"x", "which takes 76 bytes, and it has 77"),
    ],
)
def test_what_is_no_idx_file_is_named(content, words):
    with pytest.raises(DataError, match="asked to read the file as an idx file") as caught:
        parse_idx(content)
    assert words in caught.value.message


@pytest.mark.parametrize("pack", [gzip.compress, bytes], ids=["gzipped", "plain"])
def test_a_whole_file_is_read_and_can_be_written_to(tmp_path: Path, pack):
    path = tmp_path / "f"
    path.write_bytes(pack(CONTENT))
    array = read_idx(path, RECORD)
    np.testing.assert_array_equal(array, ARRAY)
    array[0, 0, 0] = 9


@pytest.mark.parametrize("share", range(16))
@pytest.mark.parametrize("pack", [gzip.compress, bytes], ids=["gzipped", "plain"])
def test_a_truncated_file_names_both_digests(tmp_path: Path, share: int, pack):
    whole = pack(CONTENT)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(whole[: len(whole) * share // 16])
    with pytest.raises(DataError, match="truncated or altered") as caught:
        read_idx(path, RECORD)
    for word in (str(path), RECORD.sha256, "expected 76 bytes", "found ", "Fetch it again"):
        assert word in caught.value.message


def test_an_altered_file_shows_the_digest_that_it_has(tmp_path: Path):
    altered = bytearray(CONTENT)
    altered[-1] ^= 1
    path = tmp_path / "f.gz"
    path.write_bytes(gzip.compress(bytes(altered)))
    with pytest.raises(DataError, match=hashlib.sha256(altered).hexdigest()):
        read_idx(path, RECORD)


def test_a_flipped_bit_anywhere_in_a_gzip_file_is_found_or_harmless(tmp_path: Path):
    packed = gzip.compress(CONTENT, mtime=0)
    path = tmp_path / "f.gz"
    for position in range(len(packed)):
        flipped = bytearray(packed)
        flipped[position] ^= 1
        path.write_bytes(flipped)
        try:
            array = read_idx(path, RECORD)
        except DataError:
            continue
        np.testing.assert_array_equal(array, ARRAY)  # the time and the system in the header say nothing


@pytest.mark.parametrize("pack", [gzip.compress, bytes], ids=["gzipped", "plain"])
def test_a_file_that_is_too_long_is_read_no_further(tmp_path: Path, pack):
    path = tmp_path / "f"
    path.write_bytes(pack(CONTENT + b"x"))
    with pytest.raises(DataError, match="more than 76 bytes, the first 76 of them"):
        read_idx(path, RECORD)


def test_a_bomb_is_not_unpacked(tmp_path: Path):
    """1 GiB of zeros: one compressed mebibyte, over and over, behind a gzip header."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    path = tmp_path / "f.gz"
    path.write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + block * 1024)
    record = IdxFile("f", (1 << 20,), "00")
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="a gzip file of more than 1,048,584 bytes"):
            read_idx(path, record)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"nothing\.gz: it is missing, or not a regular file"):
        read_idx(tmp_path / "nothing.gz", RECORD)


def test_a_pipe_is_refused_at_once(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="not a regular file"):
        read_idx(tmp_path / "pipe", RECORD)


def test_an_intact_file_of_another_data_set_is_recognised():
    sample = FASHION_MNIST.sample
    assert sample is not None
    path = SAMPLE_FOLDER / FASHION_MNIST.folder / f"{sample.test_labels.name}.gz"
    with pytest.raises(DataError, match="It is `t10k-labels-idx1-ubyte` of the sample of `fashion_mnist`"):
        read_idx(path, MNIST.files.test_labels)


def test_a_pin_of_another_shape_is_found(tmp_path: Path):
    path = tmp_path / "f"
    path.write_bytes(CONTENT)
    with pytest.raises(DataError, match=r"with shape \[4, 3, 5\]: it holds \[3, 4, 5\]"):
        read_idx(path, IdxFile("f", (4, 3, 5), RECORD.sha256))
