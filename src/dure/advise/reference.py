"""A model and data of the caller's as a few plain values, from which a fresh process makes them again.

Nothing is pickled: a function travels as the name by which it is imported, a compiled Keras model as a
`.keras` file, arrays as `.npy` files, a named data set as its name.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from dure.data.catalog import DIGITS, SETS
from dure.errors import DataError, SpecError, hint, near

__all__ = ["arrays_from", "data_reference", "function_from", "model_reference"]

SEED = "the seed network"
"""What the model of a comparison without one is called."""

SCRIPT = "__dure_script__"
"""The name that a script has when a fresh process runs it for one of its functions: not `__main__`."""

Reference = dict[str, Any]


def model_reference(model: object, folder: Path) -> tuple[Reference, str]:
    """How a fresh process makes the model.

    Args:
        model: None for the seed network, `"module:function"`, a function of no arguments that returns a
            model, or a compiled Keras model.
        folder: Where a Keras model's file may be written.

    Returns:
        Plain values for `dure.advise.trial`, and the model in words.

    Raises:
        SpecError: It cannot reach a fresh process.
    """
    if model is None:
        return {"kind": "seed"}, SEED
    if isinstance(model, str):
        return _named_function(model, "model")
    keras = sys.modules.get("keras")
    if keras is not None and isinstance(model, keras.Model):
        return _keras_file(model, folder)
    if callable(model):
        return function_reference(model, "model")
    raise SpecError(
        f"the model is a {type(model).__name__}, which cannot reach the fresh process that each strategy "
        "trains in; "
        "give the function that makes it, as `module:make_model` or as the function itself"
    )


def data_reference(data: object, folder: Path) -> tuple[Reference, str]:
    """How a fresh process finds the data.

    Args:
        data: The name of a data set, `"module:function"`, a function of no arguments, or arrays: `(x, y)` or
            `((x, y), (x_test, y_test))`, where x and y are arrays `[rows, ...]` or dicts of them.
        folder: Where arrays may be written.

    Returns:
        Plain values for `dure.advise.trial`, and the data in words.

    Raises:
        SpecError: They cannot reach a fresh process.
        DataError: An array cannot be written as plain numbers, or lengths differ.
    """
    if isinstance(data, str):
        if ":" in data:
            return _named_function(data, "data")
        known = [*SETS, DIGITS]
        if data not in known:
            raise SpecError(
                f"the data set `{data}` was asked for, and there is none of that name. {hint(data, known)} "
                "Or give "
                "`module:function` for a function that returns arrays."
            )
        return {"kind": "name", "name": data}, data
    if callable(data):
        return function_reference(data, "data")
    train, test = _halves(data)
    tree = {"train": _pair(train, folder, "train"), "test": _pair(test, folder, "test") if test else None}
    shapes = ", ".join(str(list(leaf.shape)) for leaf in _leaves(train[0]))
    return {"kind": "arrays", **tree}, f"arrays {shapes}"


def function_reference(function: Callable[..., object], role: str) -> tuple[Reference, str]:
    """How a fresh process imports a function.

    Args:
        function: A function at the top of a module or of the script that runs.
        role: `model` or `data`, for the message.

    Raises:
        SpecError: It is a lambda, a method's inner function, a partial, or lives in a notebook.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name or "<" in name:
        raise SpecError(
            f"the {role} is {name or type(function).__name__!r}, which a fresh process cannot import; give a "
            "function that is defined at the top of a module, as `module:function`"
        )
    if module != "__main__":
        return {"kind": "function", "module": module, "name": name}, f"{module}:{name}"
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:  # python -m package.module
        return {"kind": "function", "module": spec.name, "name": name}, f"{spec.name}:{name}"
    file = getattr(main, "__file__", None)
    code = getattr(function, "__code__", None)
    if file and code is not None and Path(code.co_filename).resolve() == Path(file).resolve():
        path = Path(file).resolve()
        return {"kind": "script", "path": str(path), "name": name}, f"{path.name}:{name}"
    raise SpecError(
        f"`{name}` is defined in a notebook or an interactive session, which a fresh process cannot "
        "import; write it "
        f"to a file by making `%%writefile {role}.py` the first line of its cell, and pass `{role}:{name}`"
    )


def function_from(reference: Reference) -> Callable[[], Any]:
    """The function of a `function` or `script` reference, imported here.

    Raises:
        SpecError: The module, the script or the function is not there.
    """
    name = str(reference["name"])
    if reference["kind"] == "script":
        module, where = _run_script(Path(reference["path"])), Path(reference["path"]).name
    else:
        module, where = _import(str(reference["module"])), str(reference["module"])
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = [known for known, value in vars(module).items() if callable(value) and known[0] != "_"]
            close = near(part, names)
            meant = f"did you mean {' or '.join(f'`{known}`' for known in close)}? " if close else ""
            raise SpecError(
                f"`{where}:{name}` was asked for, and `{where}` has no `{part}`; {meant}Its functions and "
                "classes: "
                f"{', '.join(sorted(names)[:24]) or 'none'}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise SpecError(f"`{where}:{name}` is a {type(found).__name__}; give a function of no arguments that makes it")
    function: Callable[[], Any] = found
    return function


def arrays_from(reference: Reference, folder: Path) -> Any:
    """The arrays of one half of an `arrays` reference, read back from their files."""
    if "file" in reference:
        return np.load(folder / reference["file"], allow_pickle=False)
    return {key: arrays_from(value, folder) for key, value in reference["fields"].items()}


def _named_function(text: str, role: str) -> tuple[Reference, str]:
    module, colon, name = text.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module.split("."), *name.split(".")]):
        raise SpecError(
            f"the {role} is `{text}`; write `module:function`, as `my_project.networks:make_model`, for a "
            "function of "
            "no arguments that Python can import from here"
        )
    return {"kind": "function", "module": module, "name": name}, text


def _keras_file(model: Any, folder: Path) -> tuple[Reference, str]:
    if not model.compiled:
        raise SpecError(
            f"the Keras model `{model.name}` is not compiled, so there is nothing to train; call "
            '`model.compile(optimizer="adam", loss=...)` first'
        )
    path = folder / "model.keras"
    try:
        with warnings.catch_warnings():
            # Keras 3.15 writes its arrays in a way that NumPy 2 calls deprecated; the file is right.
            warnings.simplefilter("ignore", DeprecationWarning)
            model.save(path)
    except Exception as error:
        raise SpecError(
            f"the Keras model `{model.name}` cannot be saved for a fresh process ({error}); pass the "
            "function that "
            "makes it, as `module:make_model`"
        ) from error
    return {"kind": "keras", "path": str(path)}, f"the Keras model {model.name}"


def _halves(data: object) -> tuple[tuple[Any, Any], tuple[Any, Any] | None]:
    """Training and test rows of what the caller gave."""
    if isinstance(data, (tuple, list)) and len(data) == 2:
        first, second = data
        if isinstance(first, (tuple, list)) and isinstance(second, (tuple, list)):
            if len(first) == 2 and len(second) == 2:
                return (first[0], first[1]), (second[0], second[1])
        elif _arrays(first) and _arrays(second):
            return (first, second), None
    found = f"{type(data).__name__} of {len(data)}" if isinstance(data, (tuple, list)) else type(data).__name__
    raise SpecError(
        f"the data are a {found}; give the name of a data set, arrays as (x, y) or ((x, y), (x_test, "
        "y_test)), or, for "
        "anything else, a function `module:function` that returns such arrays: each strategy trains in a "
        "fresh process"
    )


def _arrays(value: object) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(isinstance(key, str) and _arrays(item) for key, item in value.items())
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _leaves(value: Any) -> list[Any]:
    return [leaf for item in value.values() for leaf in _leaves(item)] if isinstance(value, dict) else [value]


def _pair(pair: tuple[Any, Any], folder: Path, half: str) -> Reference:
    for value, name in zip(pair, "xy", strict=True):
        if not _arrays(value):
            raise SpecError(
                f"{name} of the {half} data is a {type(value).__name__}; give an array [rows, ...] or a dict of them"
            )
    lengths = [len(leaf) if leaf.shape else 0 for value in pair for leaf in _leaves(value)]
    if len(set(lengths)) > 1 or not lengths[0]:
        raise DataError(
            f"the arrays of the {half} data have {', '.join(map(str, lengths))} rows; x and y need the "
            "same number of "
            "rows, at least one"
        )
    return {name: _write(value, folder, f"{half}_{name}") for value, name in zip(pair, "xy", strict=True)}


def _write(value: Any, folder: Path, stem: str) -> Reference:
    """Writes arrays; file names are numbers, never a key of the caller's."""
    if isinstance(value, dict):
        fields = {key: _write(item, folder, f"{stem}_{n}") for n, (key, item) in enumerate(value.items())}
        return {"fields": fields}
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise DataError(
            f"an array of the data has dtype {array.dtype}, which no plain file holds; convert it first, as "
            "`x.astype('float32')`"
        )
    with (folder / f"{stem}.npy").open("xb") as file:
        np.save(file, array, allow_pickle=False)
    return {"file": f"{stem}.npy"}


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there; something that it imports is not
        raise SpecError(
            f"the module `{name}` was asked for, and Python finds no `{error.name}` from {Path.cwd()}; run "
            "the "
            "command in the folder that holds it, or install it"
        ) from error


def _run_script(path: Path) -> ModuleType:
    """Runs a script under another name than `__main__`, so that only its definitions run."""
    spec = importlib.util.spec_from_file_location(SCRIPT, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SpecError(f"the script {path} was asked for, and it is not a Python file that is there; name another")
    module = importlib.util.module_from_spec(spec)
    sys.modules[SCRIPT] = module
    spec.loader.exec_module(module)
    return module
