"""A trainer's state as a checkpoint: every array under its name, and where training was."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dure import checkpoint
from dure.checkpoint import Leaf
from dure.errors import CheckpointError, SpecError
from dure.models.pure import Batch, PyTree, TrainState
from dure.train.engine import Engine
from dure.train.epochs import Position

__all__ = ["restore", "save"]


def save(engine: Engine, path: str | os.PathLike[str], *, strategy: str) -> None:
    """Writes the engine's state and position; the same under every strategy. Of several processes the chief writes.

    Args:
        engine: whose state.
        path: as `checkpoint.save` takes it.
        strategy: what trained it, for people.
    """
    about = {
        "position": engine.position._asdict(),
        "sample": None if engine.sample is None else _encode(tuple(engine.sample)),
        "strategy": strategy,
        "versions": {name: metadata.version(name) for name in ("dure", "jax", "numpy")},
    }
    group = engine.runner.group
    state = engine.state.gather()
    failure: CheckpointError | None = None
    if group.rank == 0:
        try:
            checkpoint.save(path, dict(_named(state)), about)
        except CheckpointError as error:
            failure = error
    # Nobody goes on before it is on the disk, and all of them hear of it if it is not.
    told = group.lead("save", failure and failure.message)
    if told:
        raise failure or CheckpointError(told)


def restore(engine: Engine, path: str | os.PathLike[str]) -> Path:
    """Reads a checkpoint, or the newest of a directory of them, into the engine.

    Returns:
        The checkpoint that was read.

    Raises:
        CheckpointError: there is none that fits.
    """
    root = Path(path)
    found = checkpoint.steps(root)
    about = checkpoint.peek(root) if not found else checkpoint.peek_latest(root)
    _prepare(engine, about, root)
    current = engine.state.form()
    expected = {name: Leaf(leaf.dtype.name, leaf.shape) for name, leaf in _named(current)}
    saved = checkpoint.load_latest(root, expected) if found else checkpoint.load(root, expected)
    tree = jax.tree.structure(current)
    state = jax.tree.unflatten(tree, [saved.arrays[name] for name, _ in _named(current)])
    try:
        position = _position(saved.about["position"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{saved.path} says nothing that can be read about where training was ({error}). Restore a "
            f"checkpoint that `trainer.save` wrote."
        ) from error
    engine.state.load(state)
    engine.position = position
    return saved.path


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
