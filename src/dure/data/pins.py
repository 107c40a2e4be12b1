"""The named data sets: their files, shapes, and the SHA-256 that each file's content must have.

A digest is of the *decompressed* content, so that one pin serves every source: the original files, a package
that compressed them again, a mirror. `mnist.npz` is the exception: it exists in one form only, and its own
digest is pinned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

__all__ = [
    "FASHION_MNIST",
    "MNIST",
    "IdxFile",
    "NamedSet",
    "NpzFile",
    "SplitFiles",
    "describe",
    "split_files",
]


@final
@dataclass(frozen=True)
class IdxFile:
    """One array of unsigned bytes in the idx format of the MNIST family.

    Args:
        name: file name without `.gz`, as `train-images-idx3-ubyte`.
        shape: lengths of the axes.
        sha256: digest of the decompressed file, header included, in hexadecimal.
    """

    name: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def size_bytes(self) -> int:
        """Length of the decompressed file: four bytes of magic, four an axis, one an item."""
        return 4 + 4 * len(self.shape) + math.prod(self.shape)


@final
@dataclass(frozen=True)
class NpzFile:
    """An archive with the arrays `x_train`, `y_train`, `x_test` and `y_test`, as Keras distributes MNIST.

    Args:
        name: file name.
        size_bytes: length of the file.
        sha256: digest of the file itself, in hexadecimal.
    """

    name: str
    size_bytes: int
    sha256: str


@final
@dataclass(frozen=True)
class SplitFiles:
    """The four idx files of a data set: images and labels to train with, images and labels to test with."""

    train_images: IdxFile
    train_labels: IdxFile
    test_images: IdxFile
    test_labels: IdxFile

    def __iter__(self) -> Iterator[IdxFile]:
        return iter((self.train_images, self.train_labels, self.test_images, self.test_labels))


@final
@dataclass(frozen=True)
class NamedSet:
    """What `dure.data.load` knows of one data set of the MNIST family.

    Args:
        name: the name to load it by.
        folder: name of its folder in the Keras cache and in the system's folder of data sets.
        files: the originals.
        archive: the one file that holds everything, where it is distributed so.
        package: the system package that installs the files, where there is one.
        sample: the part that ships with Dure, where there is one.
    """

    name: str
    folder: str
    files: SplitFiles
    archive: NpzFile | None = None
    package: str | None = None
    sample: SplitFiles | None = None


def split_files(train: int, test: int, digests: tuple[str, str, str, str]) -> SplitFiles:
    """Returns the records of four files that are named and shaped as MNIST's.

    Args:
        train: number of images to train with, each [28, 28].
        test: number of images to test with.
        digests: SHA-256 of the decompressed files: training images and labels, test images and labels.
    """
    return SplitFiles(
        IdxFile("train-images-idx3-ubyte", (train, 28, 28), digests[0]),
        IdxFile("train-labels-idx1-ubyte", (train,), digests[1]),
        IdxFile("t10k-images-idx3-ubyte", (test, 28, 28), digests[2]),
        IdxFile("t10k-labels-idx1-ubyte", (test,), digests[3]),
    )


# Derived from files whose compressed form has the digests that Zalando publishes (MD5, beside the data set)
# and that TensorFlow Datasets pins (SHA-256); docs/design/data.md says how that was shown.
FASHION_MNIST = NamedSet(
    name="fashion_mnist",
    folder="fashion-mnist",
    files=split_files(
        60_000,
        10_000,
        (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    package="dataset-fashion-mnist",
    sample=split_files(  # made and printed by scripts/make_sample.py
        10_000,
        2_000,
        (
            "d33512cfdc636a0d8972818e6659995be209a88891df7fa2109d7895922c8985",
            "620cb8e3b9348037c5ff9a07b02d773ab165330e072dfd19e0d21c59f8042dcf",
            "15a92dd1e9b16ea361928086e77df4dfa890c255c00b5a8c8162c1040ce8eef1",
            "234596aeb6eb48133ec99a62541f90bc0728c9559a681f1e0638037462458f2c",
        ),
    ),
)

# The idx digests are those of the files that have the compressed digests of TensorFlow Datasets; the
# archive's is the one in Keras's own source.
MNIST = NamedSet(
    name="mnist",
    folder="mnist",
    files=split_files(
        60_000,
        10_000,
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    archive=NpzFile("mnist.npz", 11_490_434, "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"),
)


def describe(sha256: str) -> str | None:
    """Returns what a file with this digest is, in words; None for a file that no data set has.

    The two MNISTs name their files alike, so a file in the wrong folder is common, and is not a damaged one.

    Example:
        >>> describe(MNIST.files.test_labels.sha256)
        '`t10k-labels-idx1-ubyte` of `mnist`'
        >>> describe("00") is None
        True
    """
    for known in (FASHION_MNIST, MNIST):
        for record in known.files:
            if record.sha256 == sha256:
                return f"`{record.name}` of `{known.name}`"
        for record in known.sample or ():
            if record.sha256 == sha256:
                return f"`{record.name}` of the sample of `{known.name}`"
    return None
