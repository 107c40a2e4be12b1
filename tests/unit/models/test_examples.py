"""The examples of networks: they train, and a mirrored one as the single device does."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import keras  # noqa: F401  its first import sets environment variables, which no test may
import pytest

import project


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, project.ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["flax_nnx", "equinox_mlp"])
def test_a_network_of_another_library_trains_alike_on_one_device_and_mirrored(name: str) -> None:
    accuracies = load(name).main(epochs=6)
    assert accuracies["SingleDevice"] > 0.9
    assert accuracies["Mirrored"] == pytest.approx(accuracies["SingleDevice"], abs=0.01)


# Keras 3.15 gives NumPy its variables without the `copy` that NumPy 2 asks for.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning")
def test_a_convolutional_network_goes_on_mirrored_from_its_file() -> None:
    assert load("keras_convolution").main(epochs=4) > 0.9


def test_a_network_with_two_outputs_trains_mirrored() -> None:
    results = load("keras_outputs").main(epochs=6)
    assert results["digit_accuracy"] > 0.9
    assert results["ink_mae"] < 0.1
