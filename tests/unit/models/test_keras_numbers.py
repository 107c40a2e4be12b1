"""A Keras network trains to Keras's own numbers, whatever it is made of."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from dure.models.adapt import pure
from dure.models.pure import Batch
from unit.models.networks import CASES
from unit.models.steps import evaluate, rows, train


@pytest.mark.parametrize("name", CASES)
def test_training_equals_the_fit_of_keras(name: str) -> None:
    case = CASES[name]
    keras.utils.set_random_seed(3)
    expected = case.make()
    options = {"batch_size": 30, "epochs": 2, "shuffle": False, "verbose": 0}
    history = expected.fit(case.x, case.y, sample_weight=case.weight, **options).history

    keras.utils.set_random_seed(3)
    found, data = case.make(), Batch(case.x, case.y, case.weight)
    model = pure(found)
    model.prepare(rows(data, 0, 30))
    state, results = train(model, model.init(0), data, size=30, epochs=2)
    model.absorb(model.finish(state))

    assert set(results[0]) == set(history)
    for key, values in history.items():
        np.testing.assert_allclose([result[key] for result in results], np.ravel(values), rtol=1e-6, err_msg=key)
    pairs = zip(
        [*expected.variables, *expected.optimizer.variables],
        [*found.variables, *found.optimizer.variables],
        strict=True,
    )
    for one, other in pairs:
        a, b = np.asarray(one.value, np.float64), np.asarray(other.value, np.float64)
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-6 * np.abs(a).max(), err_msg=one.path)


@pytest.mark.parametrize("name", ["batch normalisation, noise", "named outputs", "subclassed", "several outputs"])
def test_evaluation_equals_that_of_keras_with_a_short_last_batch(name: str) -> None:
    case = CASES[name]
    keras_model, data = case.make(), Batch(case.x, case.y, case.weight)
    model = pure(keras_model)
    model.prepare(rows(data, 0, 25))
    results = evaluate(model, model.init(0), data, size=25)
    expected = keras_model.evaluate(
        case.x, case.y, sample_weight=case.weight, batch_size=25, verbose=0, return_dict=True
    )
    assert set(results) == set(expected)
    assert next(iter(results)) == "loss"
    for key, number in expected.items():
        np.testing.assert_allclose(results[key], np.squeeze(number), rtol=1e-6, err_msg=key)
