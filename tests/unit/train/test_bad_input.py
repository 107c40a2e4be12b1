"""Bad input gives a typed error before anything is compiled, and leaves the trainer as it was."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dure
from dure import Model, Trainer
from dure.errors import DataError, SpecError

X, Y = np.zeros((6, 4), np.float32), np.array([0, 1, 2, 0, 1, 2])
NAN = np.where(np.eye(6, 4) > 0, np.nan, 0)


@pytest.fixture
def trainer(classifier, single, monkeypatch):
    made = Trainer(classifier(), single)

    def compiled(*_):
        pytest.fail("something was compiled before the error")

    monkeypatch.setattr(type(made._engine.runner), "_build", compiled)
    return made


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "words"),
    [
        ((X, Y[:5]), {}, DataError, r"x has 6 rows and y has 5"),
        ((X[:0], Y[:0]), {}, DataError, r"x has the shape \[0, 4\], so no rows"),
        ((X, Y + 1), {}, DataError, r"y has the label 3 in row 2, and 2 such rows: the model has 3 classes"),
        ((X, Y - 1), {}, DataError, r"y has the label -1 in row 0"),
        ((NAN, Y), {"check_finite": True}, DataError, r"x has a value that is not finite in row 0, and 4 such"),
        ((X[:, :3], Y), {}, SpecError, r"float32 ?\[6, 3\]"),
        ((X, np.zeros((6, 7))), {}, SpecError, r"\[6, 7\]"),
        ((X, Y), {"batch_size": 0}, SpecError, r"batch_size is 0 \(int\); it is a whole number of at least 1"),
        ((X, Y), {"batch_size": -5}, SpecError, r"batch_size is -5"),
        ((X, Y), {"batch_size": 2.0}, SpecError, r"batch_size is 2.0 \(float\)"),
        ((X, Y), {"epochs": -1}, SpecError, r"epochs is -1 \(int\); it is a whole number of at least 0"),
        ((X, Y), {"epochs": "3"}, SpecError, r"epochs is '3' \(str\)"),
        ((X, Y), {"seed": -1}, SpecError, r"seed is -1"),
        ((X, Y), {"shuffle": "yes"}, SpecError, r"shuffle is 'yes' \(str\); it is True or False"),
        ((X, Y), {"steps_per_execution": 0}, SpecError, r"steps_per_execution is 0"),
        ((X, Y), {"steps_per_epoch": 3}, SpecError, r"steps_per_epoch=3 is for batches that never end, and x is"),
        ((X, Y), {"validation_split": 1.5}, SpecError, r"validation_split is 1.5"),
        ((X, Y), {"validation_split": True}, SpecError, r"validation_split is True"),
        ((X, Y), {"validation_split": 0.5, "validation_data": (X, Y)}, SpecError, r"both given. Give one"),
        ((X, Y), {"validation_data": (X, Y[:3])}, DataError, r"x has 6 rows and y has 3"),
        ((X, Y), {"validation_data": (X, Y + 9)}, DataError, r"y has the label 9 in row 0"),
        ((X, Y), {"validation_data": X}, SpecError, r"validation_data is a ndarray, and it is `\(x, y\)`"),
        ((X, Y), {"validation_data": (X,)}, SpecError, r"validation_data has 1 parts"),
        ((X, Y), {"sample_weight": np.ones(5)}, DataError, r"x has 6 rows and weight has 5"),
        ((X, Y), {"verbose": 7}, SpecError, r"verbose is 7"),
        ((X, Y), {"callbacks": [print]}, SpecError, r"is no callback: it has none of the methods on_start"),
        ((X, Y), {"callbacks": [dure.callbacks.CSVLog]}, SpecError, r"Make one: `CSVLog\(...\)`"),
        (([(X, Y)],), {"validation_split": 0.5}, SpecError, r"takes the last rows of arrays, and x is a list"),
        (([(X, Y)], Y), {}, SpecError, r"x is a list, which is no array, and y is given beside it"),
        (([(X, Y + 9)],), {}, DataError, r"batch 0 \(counted from 0\): y has the label 9 in row 0"),
        (([],), {}, DataError, r"no array"),
        ((iter([]),), {}, DataError, r"gives none"),
        (("mnist",), {}, SpecError, r"str"),
        ((None,), {}, SpecError, r"NoneType"),
        ((np.array(["a"] * 6), Y), {}, DataError, r"x is no array that can be used"),
    ],
)
def test_fit_refuses(trainer, arguments, options, kind, words):
    before = trainer.state
    with pytest.raises(kind, match=words):
        trainer.fit(*arguments, **{"verbose": 0, **options})
    assert trainer.state.params["first"].tolist() == before.params["first"].tolist()
    assert trainer.step == 0


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda t: t.evaluate(X, Y[:5]), DataError, r"x has 6 rows and y has 5"),
        (lambda t: t.evaluate(X, Y + 1), DataError, r"y has the label 3 in row 2"),
        (lambda t: t.evaluate(X, Y, batch_size=0), SpecError, r"batch_size is 0"),
        (lambda t: t.predict(X[:, :3]), SpecError, r"float32\[6, 3\]"),
        (lambda t: t.predict(X, batch_size=True), SpecError, r"batch_size is True"),
        (lambda t: t.predict(X[:0]), DataError, r"no rows"),
        (lambda t: t.predict(3.0), SpecError, r"float"),
    ],
)
def test_evaluate_and_predict_refuse(trainer, call, kind, words):
    with pytest.raises(kind, match=words):
        call(trainer)


def test_a_bad_label_in_a_later_batch_is_named_and_what_was_trained_stays(classifier, single):
    trainer = Trainer(classifier(), single)
    batches = [(X, Y)] * 3 + [(X, Y + 1)]
    with pytest.raises(DataError, match=r"batch 3 \(counted from 0\): y has the label 3 in row 2"):
        trainer.fit(batches, verbose=0)
    assert np.isfinite(trainer.params["first"]).all()
    trainer.fit([(X, Y)], verbose=0, seed=0)


def test_data_that_fail_in_the_middle_leave_the_trainer_usable(classifier, single):
    def broken():
        yield X, Y
        yield X, Y
        raise OSError("the disk is gone")

    trainer = Trainer(classifier(), single)
    with pytest.raises(DataError, match="batch 2 .*OSError: the disk is gone") as caught:
        trainer.fit(broken, verbose=0)
    assert isinstance(caught.value.__cause__, OSError)
    trainer.fit([(X, Y)], verbose=0, seed=0)
    assert trainer.epoch == 1


def test_data_that_never_end_need_a_number_of_steps(classifier, single):
    data = dure.data.Dataset.from_arrays(X, Y).batch(3).repeat()
    trainer = Trainer(classifier(), single)
    with pytest.raises(DataError, match="never ends"):
        trainer.fit(data, verbose=0)
    history = trainer.fit(data, epochs=2, steps_per_epoch=3, verbose=0)
    assert history.steps == 6


def test_an_iterator_serves_one_pass(classifier, single):
    trainer = Trainer(classifier(), single)
    with pytest.raises(SpecError, match="x is a list_iterator, which can be passed over once, and 2 passes are asked"):
        trainer.fit(iter([(X, Y)] * 2), epochs=2, verbose=0)
    with pytest.raises(SpecError, match="validation_data is a list_iterator, which can be passed over once"):
        trainer.fit(X, Y, epochs=2, validation_data=iter([(X, Y)]), verbose=0)
    assert trainer.fit(iter([(X, Y)] * 2), validation_data=iter([(X, Y)]), verbose=0).steps == 2
    history = trainer.fit(iter([(X, Y)] * 4), epochs=2, steps_per_epoch=2, verbose=0)
    assert history.steps == 4
    with pytest.raises(DataError, match="it ended after 1"):
        trainer.fit(iter([(X, Y)] * 3), epochs=2, steps_per_epoch=2, verbose=0)


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("mirrored", r"strategy is the text 'mirrored', .*Write `Trainer\(model, dure.Mirrored\(num_devices=2\)\)`"),
        ("mirorred:4", r"dure.Mirrored\(num_devices=2\)"),
        ("single", r"dure.SingleDevice\(\)"),
        (dure.SingleDevice, r"strategy is the class SingleDevice. Make one: `SingleDevice\(\)`"),
        (2, r"strategy is a int, which is none. Write `Trainer\(model, dure.SingleDevice\(\)\)`"),
        (None, r"strategy is a NoneType"),
    ],
)
def test_what_is_no_strategy_is_answered_with_what_to_write(classifier, strategy, words):
    with pytest.raises(SpecError, match=words):
        Trainer(classifier(), strategy)


def test_what_is_no_model_is_refused(single):
    with pytest.raises(SpecError, match="model is a"):
        Trainer("resnet", single)
    with pytest.raises(SpecError, match="seed is None"):
        Trainer(_model(lambda x: x), single, seed=None)
    with pytest.raises(SpecError, match="resident_bytes is -1"):
        Trainer(_model(lambda x: x), single, resident_bytes=-1)


def _model(apply):
    return Model(
        init=lambda key: {"w": jnp.ones(())},
        apply=lambda params, x, *, key, training: apply(x * params["w"]),
        loss=lambda outputs, targets: (outputs - targets) ** 2,
        optimizer=optax.sgd(0.1),
    )


def test_what_the_model_raises_is_shown_with_the_shapes(single):
    def apply(x):
        raise KeyError("embedding")

    with pytest.raises(SpecError, match=r"float32\[6\].*KeyError: 'embedding'") as caught:
        Trainer(_model(apply), single).predict(np.ones(6))
    assert isinstance(caught.value.__cause__, KeyError)


def test_whole_numbers_as_targets_of_a_regression_are_no_labels(single):
    history = Trainer(_model(lambda x: x), single).fit(np.ones(6), np.array([7, -8, 900, 1, 2, 3]), verbose=0)
    assert np.isfinite(history["loss"][0])
