from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dure.models.labels import count_classes

cross_entropy = optax.softmax_cross_entropy_with_integer_labels


def spec(*shape: int, dtype: Any = np.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def of_one_row(outputs: Any, targets: Any) -> Any:
    return cross_entropy(outputs, targets).reshape(8, 1)[:, 0]


@pytest.mark.parametrize(
    ("loss", "outputs", "targets", "classes"),
    [
        (cross_entropy, spec(8, 10), spec(8, dtype=np.int32), (10,)),
        (lambda o, t: 2 * cross_entropy(o, t), spec(8, 10), spec(8, dtype=np.uint8), (10,)),
        (lambda o, t: cross_entropy(o, t).mean(-1), spec(8, 5, 10), spec(8, 5, dtype=np.int32), (10,)),
        (lambda o, t: -jnp.take_along_axis(o, t[:, None], 1)[:, 0], spec(8, 3), spec(8, dtype=np.int32), (3,)),
        (lambda o, t: (o[:, 0] - t) ** 2, spec(8, 2), spec(8, dtype=np.int32), (None,)),
        (lambda o, t: (o - t) ** 2, spec(8), spec(8, dtype=np.int32), (None,)),
        (cross_entropy, spec(8, 10), spec(8), (None,)),
        (cross_entropy, spec(8, 1), spec(8, dtype=np.int32), (None,)),
        (lambda o, t: o["a"], {"a": spec(8, 10)}, spec(8, dtype=np.int32), (None,)),
        (lambda o, t: o, spec(8, 10), None, ()),
        (lambda o, t: o, spec(8, 10), {"a": spec(8, dtype=np.int32), "b": spec(8, dtype=np.int32)}, (None, None)),
        (of_one_row, spec(8, 10), spec(8, dtype=np.int32), (None,)),
        (lambda o, t: 2 * cross_entropy(o, t), spec(8, 2_000_000), spec(8, dtype=np.int32), (None,)),
    ],
)
def test_labels_are_told_from_other_targets(
    loss: Any, outputs: Any, targets: Any, classes: tuple[int | None, ...]
) -> None:
    assert count_classes(loss, outputs, targets) == classes
