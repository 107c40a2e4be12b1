"""The seed network: the small Keras network that a comparison trains when nothing else is asked for."""

from __future__ import annotations

from typing import Any

from dure.errors import SpecError

__all__ = ["make_model"]


def make_model(features: int = 784, classes: int = 10) -> Any:
    """A compiled Keras network of two dense layers with dropout between them.

    Args:
        features: Numbers in one row of x.
        classes: Classes to tell apart.

    Returns:
        A `keras.Sequential`: Dense(128, relu), Dropout(0.2), Dense(classes, softmax), trained by Adam on the
        cross-entropy of whole-number labels.

    Raises:
        SpecError: Keras is not installed.
    """
    try:
        import keras
    except ImportError as error:
        raise SpecError(
            f"the seed network is a Keras model, and Keras cannot be imported ({error}); install it with "
            "`pip install 'dure[keras]'`, or name a model of your own with `--model module:function`"
        ) from error
    model = keras.Sequential(
        [
            keras.layers.Input((features,)),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(classes, activation="softmax"),
        ]
    )
    model.compile(
        optimizer="adam",
        loss="sparse_categorical_crossentropy",
        metrics=["sparse_categorical_accuracy"],
    )
    return model
