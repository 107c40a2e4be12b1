"""From what the user gives to a model of pure functions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dure.errors import SpecError
from dure.models.functions import Functions
from dure.models.model import Model

if TYPE_CHECKING:
    from dure.models.pure import PureModel

__all__ = ["pure"]


def pure(model: object) -> PureModel:
    """The pure functions of a model.

    Keras is imported only where the user's own model is one of Keras's.

    Args:
        model: A `dure.Model`, or a compiled Keras 3 model on the JAX backend.

    Raises:
        SpecError: It is neither, or a Keras model that cannot be trained as it is; with the line that mends
            it.

    Example:
        >>> pure("resnet")
        Traceback (most recent call last):
        ...
        dure.errors.SpecError: model is a str, and Dure trains a `dure.Model` or a compiled Keras 3 model...
    """
    if isinstance(model, Model):
        return Functions(model)
    roots = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if "keras" in roots and "keras" in sys.modules:
        from dure.models.keras import adapt_keras

        return adapt_keras(model)
    raise SpecError(
        f"model is a {_kind(model)}, and Dure trains a `dure.Model` or a compiled Keras 3 model "
        f"on the JAX backend. {_advice(roots, model)}"
    )


def _kind(model: object) -> str:
    if isinstance(model, type):
        return f"class, `{model.__qualname__}`"
    kind = type(model)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _advice(roots: set[str], model: object) -> str:
    if roots & {"tf_keras", "tensorflow"}:
        return (
            'It is of TensorFlow: build it with Keras 3, after `os.environ["KERAS_BACKEND"] = "jax"` and '
            "`import keras`."
        )
    if "torch" in roots:
        return "It is of PyTorch, which JAX cannot trace: write it with Keras 3, Flax, Equinox or plain JAX."
    if roots & {"flax", "equinox"}:
        return (
            "Wrap it: `dure.Model(init=..., apply=..., loss=..., optimizer=...)`; docs/howto/models.md shows "
            "it in a few lines."
        )
    if isinstance(model, type) or type(model).__name__ == "function":
        return f"Call it, and give what it returns: `{getattr(model, '__name__', 'make_model')}()`."
    return "Write `dure.Model(init=..., apply=..., loss=..., optimizer=...)`, or compile a Keras model."
