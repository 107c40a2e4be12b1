from __future__ import annotations

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.errors import SpecError
from dure.models.metrics import Total, add, empty, named, value

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(30, 7)).astype(np.float32)
LABELS = RNG.integers(0, 7, 30).astype(np.int32)
ONE_HOT = np.eye(7, dtype=np.float32)[LABELS]
CHANCES = RNG.uniform(size=(30, 1)).astype(np.float32)
TRUTHS = RNG.integers(0, 2, (30, 1)).astype(np.int32)
STEPS = RNG.normal(size=(30, 4, 7)).astype(np.float32)
STEP_LABELS = RNG.integers(0, 7, (30, 4)).astype(np.int32)


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "metric"),
    [
        ("accuracy", SCORES, LABELS, keras.metrics.SparseCategoricalAccuracy()),
        ("accuracy", SCORES, LABELS[:, None], keras.metrics.SparseCategoricalAccuracy()),
        ("accuracy", SCORES, ONE_HOT, keras.metrics.CategoricalAccuracy()),
        ("accuracy", CHANCES, TRUTHS, keras.metrics.BinaryAccuracy()),
        ("accuracy", CHANCES, TRUTHS[:, 0], keras.metrics.BinaryAccuracy()),
        ("accuracy", CHANCES[:, 0], TRUTHS[:, 0], keras.metrics.BinaryAccuracy()),
        ("acc", STEPS, STEP_LABELS, keras.metrics.SparseCategoricalAccuracy()),
        ("sparse_categorical_accuracy", SCORES, LABELS, keras.metrics.SparseCategoricalAccuracy()),
        ("categorical_accuracy", SCORES, ONE_HOT, keras.metrics.CategoricalAccuracy()),
        ("binary_accuracy", CHANCES, TRUTHS, keras.metrics.BinaryAccuracy()),
        ("binary_logit_accuracy", SCORES[:, :1], TRUTHS, keras.metrics.BinaryAccuracy(threshold=0.0)),
        ("top_3_accuracy", SCORES, LABELS, keras.metrics.SparseTopKCategoricalAccuracy(3)),
        ("top_3_accuracy", SCORES, ONE_HOT, keras.metrics.TopKCategoricalAccuracy(3)),
        ("top_1_accuracy", SCORES, LABELS, keras.metrics.SparseCategoricalAccuracy()),
        ("mean_squared_error", SCORES, ONE_HOT, keras.metrics.MeanSquaredError()),
        ("mse", CHANCES, TRUTHS[:, 0], keras.metrics.MeanSquaredError()),
        ("mean_absolute_error", SCORES, ONE_HOT, keras.metrics.MeanAbsoluteError()),
        ("mae", STEPS, STEPS[::-1], keras.metrics.MeanAbsoluteError()),
    ],
)
def test_equals_the_metric_of_keras(
    name: str, outputs: np.ndarray, targets: np.ndarray, metric: keras.metrics.Metric
) -> None:
    values = named(name)(outputs, targets)
    assert (values.shape, values.dtype) == ((30,), np.float32)
    metric.update_state(targets, outputs)
    np.testing.assert_allclose(np.mean(values), metric.result(), rtol=1e-6)


def test_a_metric_reads_the_only_array_of_a_tree() -> None:
    assert named("mse")({"y": SCORES}, (SCORES,)).tolist() == [0] * 30


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("acuracy", r"metric `acuracy` is unknown\. Did you mean `accuracy`"),
        ("top5_accuracy", r"Did you mean `top_5_accuracy`"),
        ("top_0_accuracy", r"metric `top_0_accuracy` is unknown"),
        ("xyz", r"There are: acc, accuracy,.*give a function of \(outputs, targets\)"),
    ],
)
def test_an_unknown_name_shows_what_there_is(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        named(name)


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "message"),
    [
        ("accuracy", SCORES, LABELS[:, None].repeat(2, 1), r"class numbers shaped \[30\].*are \[30, 2\]"),
        ("accuracy", {"a": SCORES, "b": SCORES}, LABELS, r"there are 2 and 1\. Give a function"),
        ("accuracy", SCORES, None, r"there are 1 and 0"),
        ("mse", SCORES, LABELS, r"like the outputs, \[30, 7\], and they are \[30\]"),
        ("binary_accuracy", SCORES, LABELS, r"metric `binary_accuracy` takes targets shaped"),
        ("categorical_accuracy", SCORES, LABELS, r"metric `categorical_accuracy` takes targets shaped"),
        ("top_2_accuracy", SCORES, SCORES[:, :2], r"metric `top_2_accuracy` takes class numbers"),
    ],
)
def test_shapes_that_do_not_fit_are_shown(name: str, outputs: object, targets: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        named(name)(outputs, targets)


class TestTotal:
    def test_loses_no_example_in_a_compiled_loop(self) -> None:
        start = Total(jnp.float32(2.0**24), jnp.float32(0))
        total = jax.jit(lambda total: jax.lax.fori_loop(0, 1000, lambda _, t: add(t, 1.0), total))(start)
        assert value(total) == 2**24 + 1000
        assert float(jnp.float32(2.0**24) + 1) == 2**24, "a plain sum would lose them"

    def test_pairs_merge_by_addition(self) -> None:
        one, other = (add(empty(), number) for number in (0.25, 3.0))
        assert value(Total(one.high + other.high, one.low + other.low)) == 3.25

    @given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40))
    def test_is_close_to_the_exact_sum(self, numbers: list[float]) -> None:
        total = empty()
        for number in numbers:
            total = _add(total, np.float32(number))
        assert float(value(total)) == pytest.approx(sum(numbers), abs=1e-3)

    def test_holds_arrays(self) -> None:
        assert value(add(empty((2,)), np.array([1.0, 2.0]))).tolist() == [1, 2]


_add = jax.jit(add)
