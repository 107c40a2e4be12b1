from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import equinox
import flax.linen
import jax
import optax
import pytest

from dure.errors import SpecError
from dure.models.adapt import pure
from dure.models.functions import Functions
from dure.models.model import Model


def make_network() -> Any:
    return None


def test_a_model_of_functions_is_adapted() -> None:
    model = Model(
        init=lambda key: {},
        apply=lambda params, x, *, key, training: x,
        loss=lambda outputs, targets: outputs,
        optimizer=optax.sgd(0.1),
    )
    assert isinstance(pure(model), Functions)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("resnet", r"model is a str, .*Write `dure\.Model\("),
        (None, r"model is a NoneType, .*Write `dure\.Model\("),
        (make_network, r"model is a function, .*Call it, and give what it returns: `make_network\(\)`"),
        (Model, r"model is a class, `Model`, .*Call it"),
        (flax.linen.Dense(3), r"model is a flax\.linen.*Dense, .*Wrap it: `dure\.Model\("),
        (equinox.nn.Linear(2, 3, key=jax.random.key(0)), r"model is a equinox.*Linear, .*Wrap it"),
    ],
)
def test_anything_else_is_refused_with_what_to_write(model: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        pure(model)


@pytest.mark.parametrize(("package", "message"), [("torch", "JAX cannot trace"), ("tf_keras", "build it with Keras 3")])
def test_models_of_other_frameworks_are_told_apart_by_their_package(package: str, message: str) -> None:
    kind = type("Network", (), {"__module__": f"{package}.nn"})
    with pytest.raises(SpecError, match=message):
        pure(kind())


def test_keras_is_not_imported_for_a_model_of_functions() -> None:
    program = """
import sys, optax
from dure.models.adapt import pure
from dure.models.model import Model
pure(Model(init=lambda key: {}, apply=lambda params, x, *, key, training: x,
           loss=lambda outputs, targets: outputs, optimizer=optax.sgd(0.1)))
print("keras" in sys.modules, "tensorflow" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["False", "False"], done.stderr
