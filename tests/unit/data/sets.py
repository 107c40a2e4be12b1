"""A small data set in the form of the MNISTs."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np

from dure.data.idx import write_idx
from dure.data.pins import FASHION_MNIST, NamedSet, split_files


def arrays(train: int = 30, test: int = 10, seed: int = 0) -> dict[str, np.ndarray]:
    """The four arrays of a small data set, by the names that their files have."""
    random = np.random.default_rng(seed)
    return {
        "train-images-idx3-ubyte": random.integers(0, 256, (train, 28, 28), np.uint8),
        "train-labels-idx1-ubyte": random.integers(0, 10, train, np.uint8),
        "t10k-images-idx3-ubyte": random.integers(0, 256, (test, 28, 28), np.uint8),
        "t10k-labels-idx1-ubyte": random.integers(0, 10, test, np.uint8),
    }


def named_set(content: dict[str, np.ndarray], name: str = "fashion_mnist") -> NamedSet:
    """The record of a small data set, pinned to its content; it has the real sample of Fashion-MNIST."""
    digests = tuple(hashlib.sha256(write_idx(array)).hexdigest() for array in content.values())
    train, _, test, _ = content.values()
    return NamedSet(
        name=name,
        folder="fashion-mnist",
        files=split_files(len(train), len(test), digests),
        package="dataset-fashion-mnist",
        sample=FASHION_MNIST.sample,
    )


def put(folder: Path, content: dict[str, np.ndarray]) -> Path:
    """Writes the four files, gzipped, as the originals are named."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in content.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(write_idx(array), mtime=0))
    return folder
