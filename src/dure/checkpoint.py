"""Checkpoints on disk: arrays by name, checked byte for byte when they are read again.

A checkpoint is a directory:

```
<path>/manifest.json          names, dtypes, shapes, what was saved with them, a SHA-256 of every file
<path>/arrays-<random>/...    the arrays, written by Orbax; no file is named after an array
```

`manifest.json` is renamed into place last, and it names the one directory of arrays that counts. So a
checkpoint is either wholly there or not at all, also when the process is killed while it overwrites an older
one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dure.errors import CheckpointError

__all__ = ["Leaf", "Saved", "each", "load", "load_latest", "prune", "save", "step_path", "steps", "sweep"]

FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_LIMIT_BYTES = 16 * 2**20
_ARRAYS = re.compile(r"arrays-[0-9a-f]{16}")
_OURS = re.compile(r"arrays-[0-9a-f]{16}(\.orbax-checkpoint-tmp.*)?|\.manifest-[0-9a-f]{16}")
_STEP = re.compile(r"step-([0-9]{8,18})")
_TEMPORARY = re.compile(r"\..+\.(saving|deleting)-[0-9a-f]{16}")


class Leaf(NamedTuple):
    """What an array of a checkpoint is.

    Attributes:
        dtype: name of its dtype, as `float32`.
        shape: its dimensions.
    """

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


Expected = Callable[[dict[str, Any]], Mapping[str, Leaf]]
"""Which arrays a checkpoint must have, of what was saved with them."""


class Saved(NamedTuple):
    """What a checkpoint held.

    Attributes:
        arrays: name to array.
        about: what was saved with them: integers, texts, lists and dicts.
        path: the directory that they were read from.
    """

    arrays: dict[str, np.ndarray]
    about: dict[str, Any]
    path: Path


class _Manifest(NamedTuple):
    folder: str
    leaves: dict[str, tuple[Leaf, str | None]]
    files: dict[str, tuple[int, str]]
    about: dict[str, Any]


def save(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Writes a checkpoint; when it returns, the checkpoint survives a kill and a loss of power.

    A checkpoint that is already there is replaced in one step: until then it stays whole. Files have mode
    0600 and directories 0700. Missing parents are made.

    Args:
        path: the directory to write; it must not exist, be empty, or hold a checkpoint.
        arrays: name to array, of any shape and dtype that JAX has.
        about: what else to keep: integers, texts, booleans, None, and lists and dicts of these.

    Raises:
        CheckpointError: the path holds something else, another process saves to it, or the disk refuses.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(f"{folder}/first", {"w": np.arange(3)}, {"step": 7})
        ...     saved = load(f"{folder}/first")
        >>> saved.arrays["w"].tolist(), saved.about
        ([0, 1, 2], {'step': 7})
    """
    target = Path(path).resolve()
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_target(target)
        sweep(target.parent, target.name)
        if (target / MANIFEST).exists():
            with _locked(target):
                _replace(target, arrays, about)
        else:
            _create(target, arrays, about)
    except OSError as error:
        raise CheckpointError(
            f"saving to {target} failed: {error.strerror or error}. No older checkpoint is lost: make room, "
            f"or give a path on a disk that can be written."
        ) from error


def load(path: str | os.PathLike[str], expected: Expected | None = None) -> Saved:
    """Reads a checkpoint, having compared every file with its digest.

    Args:
        path: the directory that `save` wrote.
        expected: says which arrays must be there, no more and no fewer, of what was saved with them; None takes what
            there is.

    Raises:
        CheckpointError: there is no complete checkpoint, a file is missing, cut or altered, or its arrays are
            not the expected ones.
    """
    root = Path(path).resolve()
    manifest = _read_manifest(root)
    _match(root, manifest, expected and expected(manifest.about))
    _verify(root, manifest)
    return Saved(_read_arrays(root, manifest), manifest.about, root)


def each(root: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """What was saved with each checkpoint below `root` whose manifest can be read, the newest first."""
    for step in reversed(steps(root)):
        with contextlib.suppress(CheckpointError):
            yield _read_manifest(step_path(Path(root).resolve(), step)).about


def load_latest(
    root: str | os.PathLike[str],
    expected: Expected | None = None,
    *,
    counts: Callable[[dict[str, Any]], bool] = lambda _: True,
) -> Saved:
    """Reads the newest checkpoint below `root` that is undamaged, with a warning for each that is not.

    Args:
        root: a directory of `step-...` checkpoints.
        expected: as for `load`.
        counts: says of what was saved with a checkpoint whether it is looked at.

    Raises:
        CheckpointError: there is none, none is undamaged, or its arrays are not the expected ones.
    """
    home = Path(root).resolve()
    damaged: list[str] = []
    for step in reversed(steps(home)):
        place = step_path(home, step)
        try:
            manifest = _read_manifest(place)
            if not counts(manifest.about):
                continue
            _verify(place, manifest)
        except CheckpointError as error:
            damaged.append(str(error))
            warnings.warn(f"checkpoint of step {step} is damaged, the one before it is used: {error}", stacklevel=2)
            continue
        _match(place, manifest, expected and expected(manifest.about))
        return Saved(_read_arrays(place, manifest), manifest.about, place)
    if damaged:
        raise CheckpointError(f"all {len(damaged)} checkpoints in {home} are damaged; the oldest: {damaged[-1]}")
    raise CheckpointError(f"{_nothing_at(home)} Give the path of a checkpoint, or of a directory of them.")


def step_path(root: str | os.PathLike[str], step: int) -> Path:
    """The directory of one step's checkpoint below `root`.

    Example:
        >>> step_path("runs", 1200).as_posix()
        'runs/step-00001200'
    """
    return Path(root) / f"step-{step:08d}"


def steps(root: str | os.PathLike[str]) -> list[int]:
    """The steps that have a checkpoint below `root`, in order; what else lies there is left out."""
    home = Path(root)
    if not home.is_dir():
        return []
    found = [
        int(match.group(1))
        for entry in home.iterdir()
        if (match := _STEP.fullmatch(entry.name)) and (entry / MANIFEST).is_file()
    ]
    return sorted(found)


def prune(root: str | os.PathLike[str], keep: int) -> None:
    """Deletes the oldest checkpoints below `root` so that `keep` remain; never the newest."""
    home = Path(root).resolve()
    for step in steps(home)[: -max(1, keep)]:
        place = step_path(home, step)
        # Renamed first: a checkpoint that is half deleted must not be found.
        hidden = home / f".{place.name}.deleting-{secrets.token_hex(8)}"
        place.rename(hidden)
        shutil.rmtree(hidden)


def sweep(folder: Path, name: str | None = None) -> None:
    """Removes what a process that was killed while it saved has left in `folder`.

    Args:
        folder: where checkpoints lie.
        name: of the checkpoint whose remains go; None for all.
    """
    for entry in folder.iterdir():
        mine = name is None or entry.name.startswith(f".{name}.")
        if not mine or not _TEMPORARY.fullmatch(entry.name) or entry.is_symlink():
            continue
        # The one who saves holds a lock; what can be locked has no owner any more.
        with contextlib.suppress(CheckpointError, FileNotFoundError), _locked(entry):
            shutil.rmtree(entry, ignore_errors=True)


# --- writing ----------------------------------------------------------------------------------------------


def _check_target(target: Path) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise CheckpointError(f"{target} is a file, and a checkpoint is a directory. Give another path.")
    names = sorted(entry.name for entry in target.iterdir())
    if names and MANIFEST not in names:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise CheckpointError(
            f"{target} is a directory that holds no checkpoint but {shown}. Give another path, such as "
            f"{target / 'checkpoint'}."
        )


def _create(target: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Makes a new checkpoint beside its place and renames it there."""
    temporary = target.parent / f".{target.name}.saving-{secrets.token_hex(8)}"
    temporary.mkdir(mode=0o700)
    try:
        with _locked(temporary):
            _write(temporary, arrays, about)
            os.rename(temporary, target)  # noqa: PTH104 - also onto an empty directory
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync(target.parent)


def _replace(target: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Writes the new arrays beside the old; renaming the manifest switches from one to the other."""
    before = {entry.name for entry in target.iterdir() if _OURS.fullmatch(entry.name)}
    kept = _folder_of(target)
    _remove(target, before - {kept})
    try:
        folder = _write(target, arrays, about)
    except BaseException:
        # When only the last fsync failed, the disk may come back with either manifest: both need their
        # arrays.
        now = {entry.name for entry in target.iterdir() if _OURS.fullmatch(entry.name)}
        _remove(target, now - {kept, _folder_of(target)})
        raise
    _remove(target, before - {folder})


def _folder_of(target: Path) -> str | None:
    try:
        return _read_manifest(target).folder
    except CheckpointError:
        return None


def _write(place: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> str:
    """Writes arrays and manifest into `place`, down to the disk; returns the name of the folder."""
    folder = f"arrays-{secrets.token_hex(8)}"
    blobs, leaves = _blobs(arrays)
    _write_arrays(place / folder, blobs)
    files = {}
    for entry, is_folder in _walk(place / folder):
        entry.chmod(0o700 if is_folder else 0o600)
        _sync(entry)
        if not is_folder:
            files[entry.relative_to(place).as_posix()] = [entry.stat().st_size, _digest(entry)]
    body = {"folder": folder, "leaves": leaves, "files": files, "about": dict(about)}
    text = json.dumps({"format": FORMAT, "sha256": _checksum(body), "body": body}, indent=1, sort_keys=True)
    hidden = place / f".manifest-{secrets.token_hex(8)}"
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(hidden, place / MANIFEST)  # noqa: PTH104 - beside the fsync that it needs, and as plain
    _sync(place)
    return folder


def _blobs(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, list[Any]]]:
    """Gives each array a neutral name in the file; the manifest keeps its own name, dtype and shape."""
    blobs: dict[str, np.ndarray] = {}
    leaves: dict[str, list[Any]] = {}
    for name, given in arrays.items():
        array = np.asarray(given)
        if array.dtype.kind in "OSUMm" or array.dtype.names is not None:
            raise CheckpointError(f"array `{name}` is {array.dtype}, which no checkpoint holds. Keep numbers only.")
        blob = None
        if array.size:  # Orbax refuses arrays without elements; their dtype and shape say all there is
            blob = f"b{len(blobs):05d}"
            # Orbax gives back an array without dimensions as a Python number, which loses its dtype.
            blobs[blob] = np.ascontiguousarray(array).reshape(array.shape or (1,))
        leaves[name] = [blob, array.dtype.name, list(array.shape)]
    return blobs, leaves


def _write_arrays(folder: Path, blobs: dict[str, np.ndarray]) -> None:
    if not blobs:
        folder.mkdir(mode=0o700)
        return
    ocp, handler = _orbax()
    try:
        with handler() as writer:
            writer.save(folder, args=ocp.args.PyTreeSave(blobs))
    except OSError:
        raise
    except Exception as error:
        # The library under Orbax reports a full disk or a refused write as ValueError or its own kinds.
        raise OSError(0, _first_line(error)) from error


def _orbax() -> tuple[Any, Any]:
    # Orbax takes half a second to import; whoever trains without a checkpoint does not wait for it.
    import jax  # noqa: PLC0415
    import orbax.checkpoint as ocp  # noqa: PLC0415

    # This process alone reads and writes: Orbax must not wait for the others of a group at a barrier.
    me = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=me, active_processes={me} if jax.process_count() > 1 else None
    )

    def handler() -> Any:
        made = ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=True, multiprocessing_options=alone)
        return ocp.Checkpointer(made, multiprocessing_options=alone)

    return ocp, handler


# --- reading ----------------------------------------------------------------------------------------------


def _read_manifest(root: Path) -> _Manifest:
    file = root / MANIFEST
    if not root.is_dir() or not file.exists():
        raise CheckpointError(f"{_nothing_at(root)} Give the path that was saved to.")
    if file.is_symlink() or not file.is_file():
        raise CheckpointError(f"{file} is no regular file, as every manifest is. Restore another checkpoint.")
    size_bytes = file.stat().st_size
    if size_bytes > MANIFEST_LIMIT_BYTES:
        raise CheckpointError(
            f"{file} has {size_bytes} bytes, and no manifest has more than {MANIFEST_LIMIT_BYTES}. Restore "
            "another checkpoint."
        )
    try:
        whole = json.loads(file.read_bytes(), object_pairs_hook=_no_twins, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{file} ({size_bytes} bytes) is damaged: {_first_line(error)}. Restore another checkpoint."
        ) from error
    try:
        if whole["format"] != FORMAT:
            raise CheckpointError(
                f"{file} has format {whole['format']!r}, and this version of Dure reads format {FORMAT}. "
                "Read it with the version that wrote it."
            )
        found, expected = _checksum(whole["body"]), whole["sha256"]
        if found != expected:
            raise CheckpointError(
                f"{file} is altered: its content has the digest {found}, expected {expected}. "
                "Restore another checkpoint."
            )
        return _parse(whole["body"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{file} is no manifest of a checkpoint ({type(error).__name__}: {_first_line(error)}). "
            "Restore another checkpoint."
        ) from error


def _parse(body: dict[str, Any]) -> _Manifest:
    folder = body["folder"]
    if not _ARRAYS.fullmatch(folder):
        raise ValueError(f"the directory of arrays is called {folder!r}")
    files = {name: (int(size), str(digest)) for name, (size, digest) in body["files"].items()}
    for name in files:
        parts = name.split("/")
        if parts[0] != folder or any(part in ("", ".", "..") for part in parts) or "\0" in name:
            raise ValueError(f"the file {name!r} lies outside of {folder}")
    leaves = {
        name: (Leaf(str(dtype), tuple(int(n) for n in shape)), None if blob is None else str(blob))
        for name, (blob, dtype, shape) in body["leaves"].items()
    }
    return _Manifest(folder, leaves, files, dict(body["about"]))


def _match(root: Path, manifest: _Manifest, expected: Mapping[str, Leaf] | None) -> None:
    if expected is None:
        return
    missing = sorted(expected.keys() - manifest.leaves.keys())
    extra = sorted(manifest.leaves.keys() - expected.keys())
    other = [
        f"`{name}` is {manifest.leaves[name][0]} there and {leaf} here"
        for name, leaf in expected.items()
        if name in manifest.leaves and manifest.leaves[name][0] != leaf
    ]
    if missing or extra or other:
        parts = [
            *([f"it lacks {_some(missing)}"] if missing else []),
            *([f"it has {_some(extra)}, which the model lacks"] if extra else []),
            *other[:8],
        ]
        raise CheckpointError(
            f"the checkpoint {root} is of another model or optimizer: {'; '.join(parts)}. It has "
            f"{len(manifest.leaves)} arrays, the model {len(expected)}. Restore it with the model that was "
            "saved."
        )


def _verify(root: Path, manifest: _Manifest) -> None:
    """Compares what lies on the disk with the manifest, file for file."""
    folder = root / manifest.folder
    found = set()
    if folder.is_dir() and not folder.is_symlink():
        for entry, is_folder in _walk(folder):
            if entry.is_symlink():
                raise CheckpointError(f"{entry} is a link, and a checkpoint has none. Restore another checkpoint.")
            if not is_folder:
                found.add(entry.relative_to(root).as_posix())
    extra = sorted(found - manifest.files.keys())
    if extra:
        raise CheckpointError(f"{root} has {_some(extra)}, not listed in its manifest. Remove what was added.")
    for name, (size_bytes, expected) in manifest.files.items():
        file = root / name
        if name not in found:
            raise CheckpointError(
                f"{file} is missing ({size_bytes} bytes, SHA-256 {expected}). Restore another checkpoint."
            )
        if file.stat().st_size != size_bytes:
            raise CheckpointError(
                f"{file} has {file.stat().st_size} bytes with the SHA-256 {_digest(file)}, expected "
                f"{size_bytes} bytes with {expected}. Restore another checkpoint."
            )
        digest = _digest(file)
        if digest != expected:
            raise CheckpointError(
                f"{file} is altered: it has the SHA-256 {digest}, expected {expected}. Restore another checkpoint."
            )


def _read_arrays(root: Path, manifest: _Manifest) -> dict[str, np.ndarray]:
    blobs: dict[str, Any] = {}
    names = [blob for _, blob in manifest.leaves.values() if blob is not None]
    if names:
        ocp, handler = _orbax()
        how = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
        try:
            with handler() as reader:
                blobs = reader.restore(root / manifest.folder, args=ocp.args.PyTreeRestore(restore_args=how))
        except Exception as error:
            raise CheckpointError(
                f"{root / manifest.folder} cannot be read, though its files are as they were saved: "
                f"{_first_line(error)}. Read it with the version that wrote it."
            ) from error
    arrays = {}
    for name, (leaf, blob) in manifest.leaves.items():
        array = np.zeros(leaf.shape, np.dtype(leaf.dtype)) if blob is None else np.asarray(blobs.get(blob))
        array = array.reshape(leaf.shape) if array.shape == (leaf.shape or (1,)) else array
        if Leaf(array.dtype.name, array.shape) != leaf:
            raise CheckpointError(
                f"array `{name}` in {root} is {Leaf(array.dtype.name, array.shape)}, and its manifest says "
                f"{leaf}. Restore another checkpoint."
            )
        arrays[name] = array
    return arrays


def _nothing_at(root: Path) -> str:
    if not root.exists():
        return f"there is no checkpoint at {root}: no such directory."
    if not root.is_dir():
        return f"there is no checkpoint at {root}: it is a file."
    names = sorted(entry.name for entry in root.iterdir())
    return f"there is no complete checkpoint at {root}: it holds {_some(names) if names else 'nothing'}."


# --- small parts ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds a lock on a directory that ends with the process, however that ends."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(
                f"another process saves to {folder} at this moment. Give each its own path, or wait."
            ) from error
        yield
    finally:
        os.close(descriptor)


def _walk(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Every entry below a directory, children first, then itself; whether it is one. Follows no link."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))
        else:
            yield Path(entry.path), False
    yield folder, True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(root: Path, names: Iterable[str | None]) -> None:
    for name in filter(None, names):
        entry = root / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _checksum(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError(f"a key is there twice among {[name for name, _ in pairs]}"[:200])
    return made


def _no_constant(text: str) -> object:
    raise ValueError(f"it has the value {text}")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(f"`{name}`" for name in names[:8]) + more


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0][:300] if text else type(error).__name__
