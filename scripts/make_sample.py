"""Makes the sample of Fashion-MNIST that ships with Dure, from the whole data set.

The sample is the first 1,000 training images and the first 200 test images of each of the ten classes, in the
order of the original files. The same whole gives the same sample, byte for byte when decompressed; its
digests, printed at the end, belong into `src/dure/data/pins.py`.

Run: python scripts/make_sample.py [FOLDER]
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dure.data.idx import read_idx, write_idx
from dure.data.pins import FASHION_MNIST

TRAIN_PER_CLASS, TEST_PER_CLASS = 1_000, 200
SYSTEM_FOLDER = Path("/usr/share/datasets/fashion-mnist")
SAMPLE_FOLDER = Path(__file__).parents[1] / "src" / "dure" / "data" / "sample" / "fashion-mnist"


def pick(labels: NDArray[np.uint8], per_class: int) -> NDArray[np.intp]:
    """Returns the rows of the first `per_class` images of each class, ascending.

    Args:
        labels: class of each image, uint8 [rows].
        per_class: how many rows of each of the ten classes.
    """
    rows = [np.flatnonzero(labels == label)[:per_class] for label in range(10)]
    return np.sort(np.concatenate(rows))


def main() -> None:
    """Reads the whole (checked), writes the sample, prints its digests and sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=SYSTEM_FOLDER, help="where the four idx.gz files are")
    parser.add_argument("--out", type=Path, default=SAMPLE_FOLDER)
    arguments = parser.parse_args()
    files = FASHION_MNIST.files
    arguments.out.mkdir(parents=True, exist_ok=True)
    total = 0
    for images, labels, per_class in (
        (files.train_images, files.train_labels, TRAIN_PER_CLASS),
        (files.test_images, files.test_labels, TEST_PER_CLASS),
    ):
        y = read_idx(arguments.folder / f"{labels.name}.gz", labels)
        rows = pick(y, per_class)
        x = read_idx(arguments.folder / f"{images.name}.gz", images)
        for record, array in ((images, x[rows]), (labels, y[rows])):
            content = write_idx(array)
            # No name and no time in the header: the same content gives the same file.
            packed = gzip.compress(content, 9, mtime=0)
            (arguments.out / f"{record.name}.gz").write_bytes(packed)
            total += len(packed)
            print(
                f"{record.name} {list(array.shape)} {len(packed):,} bytes, content "
                f"{hashlib.sha256(content).hexdigest()}"
            )
    print(f"{total:,} bytes in {arguments.out}")


if __name__ == "__main__":
    main()
