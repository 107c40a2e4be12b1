from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import keras
import pytest

from dure.errors import SpecError
from dure.models.adapt import pure


def make() -> Any:
    return keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)], name="net")


def test_a_layer_is_no_model() -> None:
    with pytest.raises(SpecError, match=r"model is a Dense.*no `keras\.Model`.*keras\.Sequential"):
        pure(keras.layers.Dense(3))


def test_a_model_must_be_compiled() -> None:
    with pytest.raises(SpecError, match=r"`net` is not compiled\. Write for example `model\.compile\("):
        pure(make())


def test_an_optimizer_is_needed() -> None:
    model = make()
    model.compile(optimizer=None, loss="mse")
    with pytest.raises(SpecError, match=r'`net` is compiled with optimizer=None.*`optimizer="adam"`'):
        pure(model)


def test_eager_models_are_refused() -> None:
    model = make()
    model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
    with pytest.raises(SpecError, match="`net` is compiled with run_eagerly=True"):
        pure(model)


@pytest.mark.parametrize(
    ("step", "instead"),
    [("train_step", "compute_loss"), ("test_step", "compute_metrics"), ("predict_step", "call")],
)
def test_steps_of_a_users_own_are_refused(step: str, instead: str) -> None:
    kind = type("Own", (keras.Sequential,), {step: lambda self, *args: None})
    model = kind([keras.layers.Input((4,)), keras.layers.Dense(3)])
    model.compile(optimizer="sgd", loss="mse")
    with pytest.raises(SpecError, match=f"has a `{step}` of its own.*Override `{instead}` in Own"):
        pure(model)


def test_layers_that_cannot_be_compiled_are_named() -> None:
    model = make()
    model.layers[0].supports_jit = False
    model.compile(optimizer="sgd", loss="mse", jit_compile=False)
    with pytest.raises(SpecError, match=f"layers that cannot be compiled: {model.layers[0].name}"):
        pure(model)


def test_a_distribution_of_keras_is_refused() -> None:
    model = make()
    model.compile(optimizer="sgd", loss="mse")
    mesh = keras.distribution.DeviceMesh((1,), ["batch"], ["cpu:0"])
    with keras.distribution.DataParallel(device_mesh=mesh, auto_shard_dataset=False).scope():  # noqa: SIM117
        with pytest.raises(SpecError, match=r"under Keras's DataParallel.*set_distribution\(None\)"):
            pure(model)


def test_another_backend_is_refused_with_the_line_to_write() -> None:
    program = """
import keras
from dure.errors import SpecError
from dure.models.adapt import pure
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)], name="net")
model.compile(optimizer="sgd", loss="mse")
try:
    pure(model)
except SpecError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "KERAS_BACKEND": "numpy"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "`net` runs on the Keras backend `numpy`" in done.stdout, done.stderr
    assert 'os.environ["KERAS_BACKEND"] = "jax"` above the first `import keras`' in done.stdout
