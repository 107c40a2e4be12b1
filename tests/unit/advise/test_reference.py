"""Models and data on their way to a fresh process, and what cannot go there."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest

from dure.advise.reference import arrays_from, data_reference, function_from, model_reference
from dure.errors import DataError, SpecError

SCRIPT = """
import sys
count = 0
def make_model():
    return "made by " + __name__
class Group:
    @staticmethod
    def make():
        return "inner"
value = 3
if __name__ == "__main__":
    sys.exit("the script itself ran")
"""


def make_model() -> str:
    """A function at the top of a module."""
    return "a model"


@pytest.fixture
def as_main(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Puts a module in the place of `__main__`, as a script, a notebook or `python -m` makes it."""

    def put(source: str, filename: str, **attributes: object) -> ModuleType:
        main = ModuleType("__main__")
        vars(main).update(attributes)
        exec(compile(source, filename, "exec"), vars(main) | {"__name__": "__main__"})
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source.partition("if __name__")[0], filename, "exec"), namespace)
        vars(main).update({name: value for name, value in namespace.items() if not name.startswith("__")})
        monkeypatch.setitem(sys.modules, "__main__", main)
        return main

    return put


def test_no_model_is_the_seed_network(tmp_path: Path) -> None:
    assert model_reference(None, tmp_path) == ({"kind": "seed"}, "the seed network")


def test_a_function_travels_by_its_name(tmp_path: Path) -> None:
    reference, words = model_reference(make_model, tmp_path)
    assert reference == {"kind": "function", "module": __name__, "name": "make_model"}
    assert words == f"{__name__}:make_model"
    assert model_reference("networks.small:make", tmp_path)[0]["module"] == "networks.small"
    assert data_reference("networks:read", tmp_path)[1] == "networks:read"


def test_a_function_is_imported_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reference_probe.py").write_text(SCRIPT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "reference_probe", raising=False)
    plain = {"kind": "function", "module": "reference_probe", "name": "make_model"}
    assert function_from(plain)() == "made by reference_probe"
    assert function_from({**plain, "name": "Group.make"})() == "inner"
    with pytest.raises(SpecError, match=r"has no `make_modle`; did you mean `make_model`\? Its functions"):
        function_from({**plain, "name": "make_modle"})
    with pytest.raises(SpecError, match=r"`reference_probe:value` is a int; give a function"):
        function_from({**plain, "name": "value"})
    with pytest.raises(
        SpecError, match=r"the module `no_such_place` was asked for, and Python finds no `no_such_place`"
    ):
        function_from({**plain, "module": "no_such_place"})
    sys.modules.pop("reference_probe", None)


def test_a_module_whose_own_imports_fail_shows_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reference_broken.py").write_text("import no_such_thing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_thing"):
        function_from({"kind": "function", "module": "reference_broken", "name": "f"})


def test_a_script_is_run_again_under_another_name(tmp_path: Path, as_main: Callable[..., ModuleType]) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    main = as_main(SCRIPT.replace("sys.exit", "str"), str(path), __file__=str(path), __spec__=None)
    reference, words = model_reference(main.make_model, tmp_path)
    assert reference == {"kind": "script", "path": str(path), "name": "make_model"}
    assert words == "train.py:make_model"
    assert function_from(reference)() == "made by __dure_script__"
    sys.modules.pop("__dure_script__")
    with pytest.raises(SpecError, match=r"gone.py was asked for, and it is not a Python file that is there"):
        function_from({**reference, "path": str(tmp_path / "gone.py")})


def test_a_module_run_by_its_name_is_imported_by_it(tmp_path: Path, as_main: Callable[..., ModuleType]) -> None:
    spec = ModuleType("spec")
    spec.name = "package.train"  # type: ignore[attr-defined]
    main = as_main("def make_model(): pass", "train.py", __file__="train.py", __spec__=spec)
    assert model_reference(main.make_model, tmp_path)[0]["module"] == "package.train"


@pytest.mark.parametrize("attributes", [{}, {"__file__": "/somewhere/else.py", "__spec__": None}])
def test_a_function_of_a_notebook_is_refused_with_the_line_that_writes_a_file(
    tmp_path: Path, as_main: Callable[..., ModuleType], attributes: dict[str, object]
) -> None:
    main = as_main("def make_model(): pass", "<ipython-input-3>", **attributes)
    with pytest.raises(
        SpecError,
        match=r"`make_model` is defined in a notebook .*`%%writefile model.py` .*`model:make_model`",
    ):
        model_reference(main.make_model, tmp_path)


@pytest.mark.parametrize("function", [lambda: 1, functools.partial(make_model)])
def test_a_function_without_a_name_to_import_is_refused(tmp_path: Path, function: object) -> None:
    with pytest.raises(
        SpecError, match=r"which a fresh process cannot import; give a function that is defined at the top"
    ):
        model_reference(function, tmp_path)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (3, r"the model is a int, which cannot reach the fresh process"),
        ("networks", r"the model is `networks`; write `module:function`"),
        ("net-works:make", r"the model is `net-works:make`; write"),
        ("networks:", r"write `module:function`"),
    ],
)
def test_a_model_that_cannot_travel_is_refused(tmp_path: Path, model: object, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        model_reference(model, tmp_path)


def test_a_compiled_keras_model_travels_as_its_file(tmp_path: Path) -> None:
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)], name="little")
    with pytest.raises(SpecError, match=r"the Keras model `little` is not compiled"):
        model_reference(model, tmp_path)
    model.compile("adam", "mse")
    reference, words = model_reference(model, tmp_path)
    assert words == "the Keras model little"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # its optimizer has made no step yet
        again = keras.saving.load_model(reference["path"])
    kernels = [np.asarray(made.layers[0].kernel.value) for made in (model, again)]
    assert np.array_equal(*kernels)
    assert again.compiled
    with pytest.raises(SpecError, match=r"cannot be saved for a fresh process .*; pass the function that makes it"):
        model_reference(model, tmp_path / "no folder")


def test_arrays_travel_as_plain_files(tmp_path: Path) -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(6, 2), np.arange(6)
    reference, words = data_reference(((x, y), (x[:2], y[:2])), tmp_path)
    assert words == "arrays [6, 2]"
    assert np.array_equal(arrays_from(reference["train"]["x"], tmp_path), x)
    assert arrays_from(reference["test"]["y"], tmp_path).tolist() == [0, 1]
    nested = tmp_path / "nested"
    nested.mkdir()
    reference, _ = data_reference(({"a/../b": x, "c": y}, y), nested)
    assert reference["test"] is None
    assert set(arrays_from(reference["train"]["x"], nested)) == {"a/../b", "c"}
    assert all(path.parent == nested for path in nested.iterdir())  # a name of the caller's is no path


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ("fashion-mnist", SpecError, r"`fashion-mnist` was asked for, .* Did you mean `fashion_mnist`"),
        (iter([]), SpecError, r"the data are a list_iterator; give the name of a data set, arrays as"),
        ((np.ones(3),), SpecError, r"the data are a tuple of 1; give"),
        ((np.ones(3), None), SpecError, r"the data are a tuple of 2; give"),
        (
            ((np.ones(3), np.ones(3)), (np.ones(3), [1])),
            SpecError,
            r"y of the test data is a list; give an array",
        ),
        ((np.ones((3, 2)), np.ones(2)), DataError, r"the arrays of the train data have 3, 2 rows"),
        ((np.ones((0, 2)), np.ones(0)), DataError, r"have 0, 0 rows; .* at least one"),
        ((np.array(["a"]), np.ones(1)), DataError, r"has dtype <U1, which no plain file holds"),
        ((np.array([{}]), np.ones(1)), DataError, r"has dtype object"),
    ],
)
def test_data_that_cannot_travel_are_refused(tmp_path: Path, data: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        data_reference(data, tmp_path)
