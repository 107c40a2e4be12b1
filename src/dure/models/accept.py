"""Which Keras models can be trained as they are; imported only for a model of Keras."""

from __future__ import annotations

from typing import Any

import keras

from dure.errors import SpecError

__all__ = ["check_built", "check_compiled"]

# Steps of a user's own join what a strategy must part; what to override in their place.
_STEPS = {"train_step": "compute_loss", "test_step": "compute_metrics", "predict_step": "call"}


def check_compiled(model: Any) -> None:
    """Refuses what cannot be trained as it is, with the line that mends it.

    Args:
        model: An object whose class comes from Keras.

    Raises:
        SpecError: It is no model, not compiled, or on another backend; it runs eagerly or has training steps
            of its own; Keras distributes it already.
    """
    if not isinstance(model, keras.Model):
        raise SpecError(
            f"model is a {type(model).__name__}, which is of Keras but no `keras.Model`. Put it into one, "
            "for example `keras.Sequential([...])`, and compile that."
        )
    name = f"Keras model `{model.name}`"
    backend = keras.config.backend()
    if backend != "jax":
        raise SpecError(
            f"{name} runs on the Keras backend `{backend}`, and Dure trains on JAX. Write `import os; "
            'os.environ["KERAS_BACKEND"] = "jax"` above the first `import keras`.'
        )
    if not model.compiled:
        raise SpecError(
            f'{name} is not compiled. Write for example `model.compile(optimizer="adam", '
            'loss="sparse_categorical_crossentropy", metrics=["accuracy"])`.'
        )
    if not isinstance(model.optimizer, keras.optimizers.Optimizer):
        raise SpecError(
            f"{name} is compiled with optimizer={model.optimizer!r}. Compile it with one that trains: "
            '`optimizer="adam"`.'
        )
    _check_steps(model, name)
    distribution = keras.distribution.distribution()
    if distribution is not None:
        raise SpecError(
            f"{name} is under Keras's {type(distribution).__name__}, and Dure distributes by itself. Write "
            "`keras.distribution.set_distribution(None)` before the model is built."
        )


def check_built(model: Any) -> None:
    """Refuses a model with nothing to train, or whose optimizer was built for other weights.

    Args:
        model: A compiled and built Keras model.

    Raises:
        SpecError: As said.
    """
    name = f"Keras model `{model.name}`"
    if not model.trainable_variables:
        raise SpecError(
            f"{name} has {len(model.variables)} variables and none that can be trained. Set "
            "`layer.trainable = True` for a layer and compile the model again."
        )
    built_for = getattr(model.optimizer, "_trainable_variables", ())
    frozen = [variable.path for variable in built_for if not variable.trainable]
    if {id(variable) for variable in built_for} != {id(variable) for variable in model.trainable_variables}:
        raise SpecError(
            f"{name} has {len(model.trainable_variables)} trainable variables, and its optimizer was built "
            f"for {len(built_for)} ({len(frozen)} of them frozen since). Compile the model again, with a new "
            "optimizer, after a change of `layer.trainable`."
        )


def _check_steps(model: Any, name: str) -> None:
    if model.run_eagerly:
        raise SpecError(
            f"{name} is compiled with run_eagerly={model.run_eagerly}, and Dure compiles many steps at once. "
            "Compile it with `run_eagerly=False`."
        )
    for step, instead in _STEPS.items():
        if getattr(type(model), step) is not getattr(keras.Model, step):
            raise SpecError(
                f"{name} has a `{step}` of its own, which joins gradients and update, and a strategy works "
                f"between the two. Override `{instead}` in {type(model).__name__}, or write a `dure.Model`."
            )
    stubborn = [layer.name for layer in model._flatten_layers() if not layer.supports_jit]  # noqa: SLF001
    if stubborn:
        raise SpecError(f"{name} has layers that cannot be compiled: {', '.join(stubborn)}. Replace them.")
