"""The model and the data of a trial, made anew in its own process from what the request says."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from dure.advise import seed
from dure.advise.record import Facts
from dure.advise.reference import arrays_from, function_from
from dure.data import load
from dure.data.catalog import SETS
from dure.errors import DataError, DureError, SpecError

__all__ = ["Rows", "make_model", "read_data", "shaped"]


class Rows(NamedTuple):
    """The data of a trial.

    Attributes:
        x: Training inputs, arrays `[rows, ...]`.
        y: Training targets.
        x_test: Test inputs, or None.
        y_test: Test targets, or None.
        name: Of the data set, where it has one.
    """

    x: Any
    y: Any
    x_test: Any = None
    y_test: Any = None
    name: str = ""

    def facts(self) -> Facts:
        """What a reader of the result has to know about them."""
        leaves = jax.tree.leaves(self.x)
        known = SETS.get(self.name)
        test_rows = 0 if self.x_test is None else len(jax.tree.leaves(self.x_test)[0])
        shape = ", ".join(f"{'x'.join(map(str, leaf.shape[1:])) or '1'} {leaf.dtype}" for leaf in leaves)
        sample = known is not None and known.sample is not None and len(leaves[0]) < FULL_ROWS
        note = f"The data are the sample that ships with Dure, not the whole of {self.name}." if sample else ""
        return Facts(len(leaves[0]), test_rows, shape, note)


FULL_ROWS = 60_000
"""Training rows of the named sets that have a sample; fewer means that it is the sample."""


def read_data(request: Mapping[str, Any]) -> Rows:
    """The data that a request asks for.

    Raises:
        SpecError: They are not in one of the forms that `dure.compare` takes.
        DataError: They are missing or damaged.
    """
    reference = request["data"]
    if reference["kind"] == "name":
        name = str(reference["name"])
        (x, y), (x_test, y_test) = load(name)
        return Rows(_scaled(x), y.astype(np.int32), _scaled(x_test), y_test.astype(np.int32), name)
    if reference["kind"] == "arrays":
        folder = Path(request["folder"])
        halves = [reference["train"], reference["test"]]
        arrays: list[Any] = [arrays_from(half[name], folder) if half else None for half in halves for name in "xy"]
        return Rows(arrays[0], arrays[1], arrays[2], arrays[3])
    where = f"{reference.get('module') or Path(reference['path']).name}:{reference['name']}"
    return _rows_of(_called(function_from(reference), where), where)


def make_model(request: Mapping[str, Any], rows: Rows) -> object:
    """The model that a request asks for, with weights from the request's seed.

    Args:
        request: What the child was told.
        rows: The data; the seed network takes its size from them.

    Raises:
        SpecError: It cannot be made here.
    """
    reference = request["model"]
    if reference["kind"] == "seed":
        features = int(np.prod(jax.tree.leaves(rows.x)[0].shape[1:]))
        classes = int(np.max(rows.y)) + 1 if np.issubdtype(np.asarray(rows.y).dtype, np.integer) else 10
        _set_seeds(request["seed"], with_keras=True)
        return seed.make_model(features, classes)
    if reference["kind"] == "keras":
        return _loaded(str(reference["path"]))
    function = function_from(reference)
    # Importing the function's module has imported Keras if the model needs it: its own seed is set only then.
    _set_seeds(request["seed"], with_keras="keras" in sys.modules)
    where = f"{reference.get('module') or Path(reference['path']).name}:{reference['name']}"
    return _called(function, where)


def shaped(rows: Rows, model: object, *, seeded: bool) -> Rows:
    """Images of a named data set in the shape that the model takes.

    Args:
        rows: The data; other than named ones stay as they are.
        model: A Keras model says what it takes; any other is given flat rows.
        seeded: Whether it is the seed network, which takes flat rows of anything.
    """
    if not rows.name and not seeded:
        return rows
    wanted = getattr(model, "input_shape", None)
    size = rows.x[0].size
    shape: tuple[int, ...] = (size,)
    if isinstance(wanted, tuple) and all(isinstance(length, int) for length in wanted[1:]):
        shape = wanted[1:] if np.prod(wanted[1:]) == size else rows.x.shape[1:]
    x_test = None if rows.x_test is None else rows.x_test.reshape(-1, *shape)
    return rows._replace(x=rows.x.reshape(-1, *shape), x_test=x_test)


def _scaled(images: Any) -> Any:
    """Grey values as float32 from 0 to 1; the digits count to 16, the others to 255."""
    largest = 255 if int(images.max(initial=0)) > 16 else 16
    return images.astype(np.float32) / np.float32(largest)


def _rows_of(value: Any, where: str) -> Rows:
    """What a function of the caller's returned, in one of the forms that arrays may have."""
    if isinstance(value, (tuple, list)) and len(value) == 2:
        first, second = value
        if isinstance(first, (tuple, list)) and isinstance(second, (tuple, list)):
            if len(first) == 2 and len(second) == 2:
                return Rows(*map(_arrays, (first[0], first[1], second[0], second[1])))
        else:
            return Rows(_arrays(first), _arrays(second))
    found = f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else type(value).__name__
    raise SpecError(
        f"`{where}` was asked for the data and returned a {found}; let it return arrays as (x, y) or "
        "((x, y), (x_test, y_test))"
    )


def _arrays(value: Any) -> Any:
    arrays = jax.tree.map(np.asarray, value)
    wrong = next((leaf.dtype for leaf in jax.tree.leaves(arrays) if leaf.dtype == object), None)
    if wrong is not None:
        raise DataError(f"an array of the data has dtype {wrong}; let the function return arrays of numbers")
    return arrays


def _called(function: Callable[[], Any], where: str) -> Any:
    """Calls the caller's function; what it raises becomes an answer that names the line."""
    try:
        return function()
    except DureError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise SpecError(
            f"`{where}` was called without arguments and raised {type(error).__name__}: {error} "
            f"({frame.filename}:{frame.lineno}); mend it, and try it by itself first"
        ) from error


def _loaded(path: str) -> object:
    import keras

    try:
        model: object = keras.saving.load_model(path)
    except Exception as error:
        raise SpecError(
            f"the Keras model was saved for a fresh process, which cannot load it ({error}); pass the "
            "function that "
            "makes it, as `module:make_model`"
        ) from error
    return model


def _set_seeds(number: int, *, with_keras: bool) -> None:
    """So that each strategy starts with the same weights."""
    if with_keras:
        try:
            import keras
        except ImportError:  # the seed network itself says what to install
            return
        keras.utils.set_random_seed(number % 2**32)
