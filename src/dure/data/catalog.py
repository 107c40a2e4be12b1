"""`load`: a named data set from the first place that has it, every byte checked."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dure.data.fetch import fetch
from dure.data.idx import MEND_FILE, read_idx
from dure.data.pins import FASHION_MNIST, MNIST, IdxFile, NamedSet, NpzFile, SplitFiles
from dure.errors import DataError, SpecError, hint

__all__ = ["Split", "load"]

# Images and labels to train with, images and labels to test with.
Split: TypeAlias = tuple[tuple[NDArray[np.uint8], NDArray[np.uint8]], tuple[NDArray[np.uint8], NDArray[np.uint8]]]

SYSTEM_FOLDER = Path("/usr/share/datasets")
SAMPLE_FOLDER = Path(__file__).parent / "sample"
# Where Keras takes the same files from.
DOWNLOAD_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"

DIGITS = "digits"
SETS = {known.name: known for known in (FASHION_MNIST, MNIST)}
# A gzip file is never longer than its content by more than this.
GZIP_MARGIN_BYTES = 1 << 16

MEND_DOWNLOAD = "Nothing of it was kept: try again, or set DURE_DATA_URL to another place that has the original."


def load(name: str) -> Split:
    """Loads a data set by name.

    `fashion_mnist` and `mnist` come from the first place that has them: the folder in `DURE_DATA_DIR`; the
    Keras cache (`KERAS_HOME` or `~/.keras`); the system's package; a download into the Keras cache
    (`DURE_DATA_URL` names another place to download from, or nothing: then none is tried); and,
    `fashion_mnist` only, a sample of 12,000 of its images that ships with Dure, told by a line on stderr.
    `digits` is scikit-learn's, every fifth image of each class held out for the test.

    Args:
        name: `fashion_mnist`, `mnist` or `digits`.

    Returns:
        `((x, y), (x_test, y_test))`, uint8. The MNISTs: x [60000, 28, 28] of 0 to 255, y [60000], x_test
        [10000, 28, 28], y_test [10000]; the sample has 10,000 and 2,000 of them. `digits`: x [1433, 8, 8] of
        0 to 16, y [1433], x_test [364, 8, 8], y_test [364].

    Raises:
        SpecError: no data set has that name, or `digits` is asked for without scikit-learn.
        DataError: no place has it, or a file of it is missing, truncated or altered.

    Example:
        >>> (x, y), (x_test, y_test) = load("digits")
        >>> x.shape, x.dtype, x_test.shape
        ((1433, 8, 8), dtype('uint8'), (364, 8, 8))
    """
    if name == DIGITS:
        return _digits()
    known = SETS.get(str(name))
    if known is None:
        raise SpecError(
            f"asked to load the data set {name!r}, and there is none of that name. " + hint(str(name), [*SETS, DIGITS])
        )
    reasons = []
    for source in (_from_setting, _from_cache, _from_system, _from_download):
        outcome = source(known)
        if not isinstance(outcome, str):
            return outcome
        reasons.append(outcome)
    if known.sample is None:
        raise DataError(f"asked to load `{name}`, and no place has it: {'; '.join(reasons)}. {_advice(known)}")
    return _from_sample(known, known.sample, reasons)


def _from_setting(known: NamedSet) -> Split | str:
    """The folder that the user names: what is there has to be whole, since it was put there on purpose."""
    given = os.environ.get("DURE_DATA_DIR", "")
    if not given:
        return "DURE_DATA_DIR is not set"
    root = _expanded(given)
    if not _is(Path.is_dir, root):
        raise DataError(
            f"asked to load `{known.name}` from DURE_DATA_DIR={given}: there is no such folder that can be "
            "read. Set it to a folder with the data set's files, or unset it."
        )
    for folder in (root / known.name, root / known.folder, root):
        if known.archive is not None and _is(Path.is_file, folder / known.archive.name):
            return _read_npz(folder / known.archive.name, known.archive, known.files)
        if any(_present(folder, record) for record in known.files):
            return _read_files(folder, known.files)
    return f"DURE_DATA_DIR={given} has none of its files"


def _from_cache(known: NamedSet) -> Split | str:
    """What Keras or an earlier download has left; an unfinished set is for the download to complete."""
    cache = _keras_cache()
    if known.archive is not None and _is(Path.is_file, cache / known.archive.name):
        return _read_npz(cache / known.archive.name, known.archive, known.files)
    return _read_whole(cache / known.folder, known.files)


def _from_system(known: NamedSet) -> Split | str:
    if known.package is None:
        return "no system package has it"
    return _read_whole(SYSTEM_FOLDER / known.folder, known.files)


def _from_download(known: NamedSet) -> Split | str:
    """Completes the Keras cache, and then reads it."""
    base = os.environ.get("DURE_DATA_URL", DOWNLOAD_URL)
    if not base:
        return "DURE_DATA_URL is set to nothing, so no download was tried"
    base = base.rstrip("/") + "/"
    cache = _keras_cache()
    if known.archive is not None:
        archive = known.archive
        reason = fetch(
            base + archive.name,
            cache / archive.name,
            limit_bytes=archive.size_bytes,
            check=lambda path, shown: _npz_bytes(path, archive, shown, MEND_DOWNLOAD),
        )
        return reason or _from_cache(known)
    for record in known.files:
        if _present(cache / known.folder, record):
            continue
        reason = fetch(
            f"{base}{record.name}.gz",
            cache / known.folder / f"{record.name}.gz",
            limit_bytes=record.size_bytes + GZIP_MARGIN_BYTES,
            check=_check_of(record),
        )
        if reason:
            return reason
    return _from_cache(known)


def _check_of(record: IdxFile) -> Callable[[Path, str], object]:
    return lambda path, shown: read_idx(path, record, shown=shown, mend=MEND_DOWNLOAD)


def _from_sample(known: NamedSet, sample: SplitFiles, reasons: list[str]) -> Split:
    split = _read_files(SAMPLE_FOLDER / known.folder, sample)
    (x, _), (x_test, _) = split
    print(
        f"dure: `{known.name}` is the sample of {len(x) + len(x_test):,} images that ships with Dure "
        f"({len(x):,} to "
        f"train, {len(x_test):,} to test), because {'; '.join(reasons)}. {_advice(known)}",
        file=sys.stderr,
        flush=True,
    )
    return split


def _advice(known: NamedSet) -> str:
    names = known.archive.name if known.archive is not None else "its four idx.gz files"
    package = f", or install the system package `{known.package}`" if known.package else ""
    return f"For the whole, put {names} into a folder and set DURE_DATA_DIR to it{package}, or run once online."


def _digits() -> Split:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise SpecError(
            f"asked to load `{DIGITS}`, which scikit-learn holds, and it cannot be imported ({error}). "
            'Install it: pip install "dure[data]"'
        ) from error
    bunch = load_digits()
    x, y = bunch.images.astype(np.uint8), bunch.target.astype(np.uint8)
    # Consecutive images are one writer's: held out by rows at the end, the test would be of other writers
    # only.
    test = np.zeros(len(y), bool)
    for label in range(10):
        test[np.flatnonzero(y == label)[::5]] = True
    return (x[~test], y[~test]), (x[test], y[test])


def _keras_cache() -> Path:
    return _expanded(os.environ.get("KERAS_HOME") or "~/.keras") / "datasets"


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:  # nobody knows the home directory; a folder that is really named ~ holds nothing
        return Path(path)


def _is(kind: Callable[[Path], bool], path: Path) -> bool:
    """Whether a path is what `kind` says; a folder above it that may not be entered says no."""
    try:
        return kind(path)
    except PermissionError:
        return False


def _present(folder: Path, record: IdxFile) -> Path | None:
    """Returns the file with this record's name, gzipped or not; None when there is neither."""
    for path in (folder / f"{record.name}.gz", folder / record.name):
        if os.path.lexists(path):
            return path
    return None


def _read_whole(folder: Path, files: SplitFiles) -> Split | str:
    have = sum(_present(folder, record) is not None for record in files)
    if have < 4:
        return f"{folder} has {have or 'none'} of its 4 files"
    return _read_files(folder, files)


def _read_files(folder: Path, files: SplitFiles) -> Split:
    def read(record: IdxFile) -> NDArray[np.uint8]:
        return read_idx(_present(folder, record) or folder / f"{record.name}.gz", record)

    return (
        (read(files.train_images), read(files.train_labels)),
        (read(files.test_images), read(files.test_labels)),
    )


def _npz_bytes(path: Path, record: NpzFile, shown: str, mend: str) -> bytes:
    """Returns the archive's bytes, having checked them: what is parsed is what was checked."""
    try:
        with path.open("rb") as file:
            content = file.read(record.size_bytes + 1)
    except OSError as error:
        raise DataError(f"asked to read {shown}: {error.strerror}. Make it readable, or remove it.") from error
    found = hashlib.sha256(content).hexdigest()
    if found != record.sha256:
        length = f"{len(content):,}" if len(content) <= record.size_bytes else f"more than {record.size_bytes:,}"
        raise DataError(
            f"asked for `{record.name}` in {shown}: expected {record.size_bytes:,} bytes with SHA-256 "
            f"{record.sha256}, found {length} bytes with SHA-256 {found}. The file is truncated or "
            f"altered. {mend}"
        )
    return content


def _read_npz(path: Path, record: NpzFile, files: SplitFiles) -> Split:
    content = _npz_bytes(path, record, str(path), MEND_FILE)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {key: np.asarray(archive[key]) for key in ("x_train", "y_train", "x_test", "y_test")}
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"asked to read {path}: {error}. Fetch the file again.") from error
    for (key, array), wanted in zip(arrays.items(), files, strict=True):
        if array.shape != wanted.shape or array.dtype != np.uint8:
            raise DataError(
                f"asked for `{key}` in {path} with uint8 {list(wanted.shape)}: it is {array.dtype} "
                f"{list(array.shape)}. Fetch the file again."
            )
    return (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])
