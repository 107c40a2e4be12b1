"""A trainer's state as a checkpoint: every array under its name, and where training was."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dure import checkpoint
from dure.checkpoint import Leaf, Saved
from dure.errors import CheckpointError, SpecError
from dure.models.pure import Batch, PyTree, TrainState
from dure.strategy.spmd import joined
from dure.train.engine import Engine
from dure.train.epochs import Position
from dure.train.record import Fits

__all__ = ["Run", "restore", "resume", "save"]


@dataclass(frozen=True)
class Run:
    """What a trainer is a part of.

    Attributes:
        mark: tells this trainer of this run from all others, the same after a restart; None where nothing restarts it.
        fits: the trainer's fits.
    """

    mark: str | None
    fits: Fits


def save(engine: Engine, path: str | os.PathLike[str], *, strategy: str, run: Run) -> None:
    """Writes the engine's state and position; the same under every strategy. Of several processes the chief writes.

    Args:
        engine: whose state.
        path: as `checkpoint.save` takes it.
        strategy: what trained it, for people.
        run: of which it is a part.
    """
    seen = engine.seen if engine.position.step else None
    about = {
        "position": engine.position._asdict(),
        "sample": None if engine.sample is None else _encode(tuple(engine.sample)),
        "strategy": strategy,
        "versions": {name: metadata.version(name) for name in ("dure", "jax", "numpy")},
        "has_metrics": seen is not None,
        "run": run.mark,
        "fits": run.fits.to_list(),
    }
    group = engine.runner.group
    arrays = dict(_named(engine.state.gather()))
    if seen is not None:
        arrays |= _named_metrics(joined(seen))
    failure: CheckpointError | None = None
    if group.rank == 0:
        try:
            checkpoint.save(path, arrays, about)
        except CheckpointError as error:
            failure = error
    # Nobody goes on before it is on the disk, and all of them hear of it if it is not.
    told = group.lead("save", failure and failure.message)
    if told:
        raise failure or CheckpointError(told)


def restore(engine: Engine, path: str | os.PathLike[str]) -> Path:
    """Reads a checkpoint, or the newest of a directory of them, into the engine. Of several processes the chief reads.

    Returns:
        The checkpoint that was read.

    Raises:
        CheckpointError: there is none that fits.
    """
    return _from_chief(engine, lambda: _read(engine, Path(path))).path


def resume(engine: Engine, folder: Path, run: Run) -> Path | None:
    """Takes up a run where its last checkpoint left it.

    Args:
        engine: takes the state and position.
        folder: of the callback `Checkpoint`.
        run: takes the fits up to there.

    Returns:
        The checkpoint that was read; None where the run has written none.

    Raises:
        CheckpointError: it has, and none of them fits.
    """

    def mine(about: dict[str, Any]) -> bool:
        return run.mark is not None and about.get("run") == run.mark

    group = engine.runner.group
    is_there = group.rank == 0 and any(mine(about) for about in checkpoint.each(folder))
    if not group.lead("resume", is_there):
        return None
    saved = _from_chief(engine, lambda: _read(engine, folder, mine))
    try:
        run.fits.resume(saved.about["fits"])
    except (CheckpointError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{saved.path} says nothing that can be read about the fits so far ({error}). Remove it: the run then "
            "starts anew."
        ) from error
    return saved.path


def _read(engine: Engine, root: Path, counts: Callable[[dict[str, Any]], bool] = lambda _: True) -> Saved:
    """A checkpoint that fits the engine's model, which is built for it."""

    def expected(about: dict[str, Any]) -> dict[str, Leaf]:
        _prepare(engine, about, root)
        return {name: Leaf(leaf.dtype.name, leaf.shape) for name, leaf in _form(engine, about).items()}

    if checkpoint.steps(root):
        return checkpoint.load_latest(root, expected, counts=counts)
    return checkpoint.load(root, expected)


def _from_chief(engine: Engine, read: Callable[[], Saved]) -> Saved:
    """Puts what the chief reads into the engine of every process: the others need not reach its disk."""
    group = engine.runner.group
    failure: CheckpointError | None = None
    saved: Saved | None = None
    if group.rank == 0:
        try:
            saved = read()
        except CheckpointError as error:
            failure = error
    told = group.lead("restore", [failure and failure.message, saved and saved.about, saved and str(saved.path)])
    if told[0] is not None:
        raise failure or CheckpointError(told[0])
    if saved is None:
        about, path = told[1], Path(told[2])
        _prepare(engine, about, path)
        saved = Saved(_form(engine, about), about, path)
    _load(engine, saved)
    return saved


def _load(engine: Engine, saved: Saved) -> None:
    """Puts a checkpoint into the engine."""
    try:
        position = _position(saved.about["position"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{saved.path} says nothing that can be read about where training was ({error}). Restore a "
            f"checkpoint that `trainer.save` wrote."
        ) from error
    current = engine.state.form()
    state = jax.tree.unflatten(jax.tree.structure(current), [saved.arrays[name] for name, _ in _named(current)])
    empty = engine.empty_metrics()
    seen = None
    if saved.about.get("has_metrics"):
        # As one replica had seen it all: the chief's first, so that what the others have here does not count.
        parts = [saved.arrays[name][None] for name in _named_metrics(empty)]
        seen = jax.tree.unflatten(jax.tree.structure(empty), parts)
    engine.state.load(state, from_chief=True)
    engine.go_to(position, seen)


def _form(engine: Engine, about: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays of the names, shapes and dtypes that a checkpoint of this model has."""
    metrics = _named_metrics(engine.empty_metrics()) if about.get("has_metrics") else {}
    return {**dict(_named(engine.state.form())), **metrics}


def _named_metrics(metrics: PyTree) -> dict[str, np.ndarray]:
    """Each accumulator with its name, as `metrics['accuracy'][0]`."""
    return {
        f"metrics{jax.tree_util.keystr(path)}": np.asarray(leaf) for path, leaf in jax.tree.leaves_with_path(metrics)
    }


def _position(saved: dict[str, Any]) -> Position:
    fresh = Position()._asdict()
    if saved.keys() != fresh.keys():
        raise KeyError(f"a position has {', '.join(fresh)}")
    for name, value in saved.items():
        if type(value) is not type(fresh[name]) or (isinstance(value, int) and value < 0):
            raise ValueError(f"{name} is {value!r}")
    return Position(**saved)


def _prepare(engine: Engine, about: dict[str, Any], path: Path) -> None:
    """Builds a model that is built from data for the kind of data that the checkpoint was made with."""
    sample = about.get("sample")
    if sample is None:
        return
    try:
        engine.prepare(Batch(*_decode(sample)))
    except (SpecError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} was made by training on data that this model does not take: {error} Restore it with the "
            f"model that was saved."
        ) from error


def _named(state: TrainState) -> list[tuple[str, np.ndarray]]:
    """Each array of a state with its name, as `params['dense']['kernel']` or `opt_state[3]`."""
    return [
        (jax.tree_util.keystr(path).removeprefix("."), np.asarray(leaf))
        for path, leaf in jax.tree.leaves_with_path(state)
    ]


def _encode(tree: PyTree) -> Any:
    """A tree of shapes as JSON; None for one with classes of its own, which no file can name."""
    if tree is None:
        return {"none": None}
    if isinstance(tree, dict):
        parts = {str(key): _encode(part) for key, part in tree.items()}
        return None if None in parts.values() or len(parts) != len(tree) else {"dict": parts}
    if type(tree) in (tuple, list):
        listed = [_encode(part) for part in tree]
        return None if None in listed else {type(tree).__name__: listed}
    return {"leaf": [str(tree.dtype), list(tree.shape)]} if hasattr(tree, "dtype") else None


def _decode(code: dict[str, Any]) -> PyTree:
    ((kind, content),) = code.items()
    if kind == "none":
        return None
    if kind == "dict":
        return {key: _decode(part) for key, part in content.items()}
    if kind in ("tuple", "list"):
        parts = [_decode(part) for part in content]
        return tuple(parts) if kind == "tuple" else parts
    if kind != "leaf":
        raise ValueError(f"a part of kind {kind!r}")
    dtype, shape = content
    return jax.ShapeDtypeStruct(tuple(int(n) for n in shape), np.dtype(dtype))
