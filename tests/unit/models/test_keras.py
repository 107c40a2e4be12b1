from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from dure.errors import SpecError
from dure.models.adapt import pure
from dure.models.pure import Batch, PureModel, TrainState
from unit.models.networks import CASES, Residual
from unit.models.steps import evaluate, train

X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, 40).astype(np.int32)
DATA = Batch(X, Y)

# Keras 3.15 gives NumPy its variables without the `copy` that NumPy 2 asks for.
KERAS_AND_NUMPY = "ignore:__array__ implementation doesn't:DeprecationWarning"


def make(**options: Any) -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(3)])
    chosen = {
        "optimizer": keras.optimizers.SGD(0.1),
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": ["accuracy"],
    }
    model.compile(**(chosen | options))
    return model


def ready(keras_model: Any) -> tuple[PureModel, TrainState]:
    model = pure(keras_model)
    model.prepare(DATA)
    return model, model.init(0)


def dense_weights(keras_model: Any) -> np.ndarray:
    return np.array(keras_model.layers[-1].kernel.value)


class TestPrepare:
    def test_says_the_outputs_and_the_classes(self) -> None:
        outline = pure(make()).prepare(DATA)
        assert (outline.outputs.shape, outline.outputs.dtype) == ((40, 3), np.float32)
        assert outline.classes == (3,)

    def test_finds_the_classes_of_the_one_output_that_has_labels(self) -> None:
        for name in ("several outputs", "named outputs"):
            case = CASES[name]
            outline = pure(case.make()).prepare(Batch(case.x, case.y))
            by_leaf = dict(zip([leaf.ndim for leaf in jax.tree.leaves(case.y)], outline.classes, strict=True))
            assert by_leaf == {1: 10, 2: None}

    def test_an_ignored_class_may_lie_out_of_range(self) -> None:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
        assert pure(make(loss=loss)).prepare(DATA).classes == (None,)

    def test_builds_a_subclassed_model_from_x_alone(self) -> None:
        case = CASES["subclassed"]
        keras_model = case.make()
        model = pure(keras_model)
        outline = model.prepare(Batch(case.x), predicting=True)
        assert outline.outputs.shape == (60, 1)
        assert outline.classes == ()
        np.testing.assert_allclose(
            model.predict(model.init(0), case.x), keras_model.predict(case.x, verbose=0), rtol=1e-6
        )

    def test_refuses_inputs_of_another_width_and_shows_them(self) -> None:
        model, _ = ready(make())
        with pytest.raises(SpecError, match=r"cannot take x: float32\[5, 7\].*expected axis -1.*value 4"):
            model.prepare(Batch(np.zeros((5, 7), np.float32), Y[:5]))

    def test_refuses_targets_that_the_loss_cannot_take(self) -> None:
        wrong = np.zeros((40, 2), np.float32)
        with pytest.raises(SpecError, match=r"float32\[40, 2\]"):
            pure(make(loss="mse")).prepare(Batch(X, wrong))

    def test_refuses_a_model_without_trainable_weights(self) -> None:
        keras_model = make()
        keras_model.trainable = False
        keras_model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy")
        with pytest.raises(SpecError, match=r"has 3 variables and none that can be trained"):
            pure(keras_model).prepare(DATA)

    def test_refuses_an_optimizer_built_before_a_layer_was_frozen(self) -> None:
        keras_model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(5), keras.layers.Dense(3)])
        keras_model.compile(optimizer="sgd", loss="mse")
        keras_model.optimizer.build(keras_model.trainable_variables)
        keras_model.layers[0].trainable = False
        with pytest.raises(SpecError, match=r"2 trainable variables.*built for 4 \(2 of them frozen"):
            pure(keras_model).prepare(Batch(X, np.zeros((40, 3), np.float32)))


class TestState:
    def test_is_a_copy_that_can_be_donated(self) -> None:
        keras_model = make()
        model, state = ready(keras_model)
        step = jax.jit(lambda s: model.update(s, s.params, s.model_state), donate_argnums=0)
        given = jax.tree.map(jnp.array, state)
        step(given)
        assert given.params[0].is_deleted()
        assert keras_model.predict(X, verbose=0).shape == (40, 3)
        before = dense_weights(keras_model)
        state.params[0][:] = 7
        np.testing.assert_array_equal(dense_weights(keras_model), before)

    def test_reseed_restarts_the_seed_generators_and_nothing_else(self) -> None:
        model, state = ready(make())
        once, again, other = (model.reseed(state, seed) for seed in (5, 5, 6))
        assert all(np.array_equal(a, b) for a, b in zip(once.model_state, again.model_state, strict=True))
        assert not np.array_equal(once.model_state[0], other.model_state[0])
        assert once.model_state[0].tolist()[1] == 0
        assert once.params is state.params

    def test_generators_of_one_seed_differ_by_their_place(self) -> None:
        keras_model = keras.Sequential(
            [keras.layers.Input((4,)), keras.layers.Dropout(0.1), keras.layers.Dropout(0.1), keras.layers.Dense(3)]
        )
        keras_model.compile(optimizer="sgd", loss="mse")
        model = pure(keras_model)
        model.prepare(Batch(X, np.zeros((40, 3), np.float32)))
        first, second = model.reseed(model.init(0), 1).model_state
        assert first[0] != second[0]

    def test_evaluation_changes_nothing(self) -> None:
        model, state = ready(make())
        parts, whole = (evaluate(model, state, DATA, size=size) for size in (20, 40))
        assert parts == pytest.approx(whole, rel=1e-6)


class TestAbsorb:
    @pytest.mark.filterwarnings(KERAS_AND_NUMPY)
    def test_writes_everything_back_and_the_model_saves(self, tmp_path: Path) -> None:
        keras_model = make(optimizer="adam")
        model, state = ready(keras_model)
        state, _ = train(model, state, DATA, size=20)
        model.absorb(state)
        np.testing.assert_array_equal(dense_weights(keras_model), state.params[0])
        assert int(keras_model.optimizer.iterations) == 2
        assert float(keras_model.get_metrics_result()["loss"]) == 0
        keras_model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        np.testing.assert_allclose(
            again.predict(X, verbose=0), np.asarray(model.predict(state, X)), rtol=1e-5, atol=1e-6
        )

    def test_survives_a_donation_of_what_it_took(self) -> None:
        keras_model = make()
        model, state = ready(keras_model)
        state = jax.tree.map(jnp.array, state)
        model.absorb(state)
        for leaf in jax.tree.leaves(state):
            leaf.delete()
        assert np.isfinite(keras_model.predict(X, verbose=0)).all()

    def test_refuses_the_state_of_another_model(self) -> None:
        model, _ = ready(make())
        _, other = ready(make(optimizer="adam"))
        with pytest.raises(SpecError, match=r"has 5 variables, and the state has 9"):
            model.absorb(other)


class TestRefresh:
    def test_returns_the_state_itself_when_nothing_changed(self) -> None:
        model, state = ready(make())
        assert model.refresh(state) is state
        model.absorb(state)
        assert model.refresh(state) is state

    def test_takes_a_new_learning_rate(self) -> None:
        keras_model = make()
        model, state = ready(keras_model)
        model.absorb(state)
        keras_model.optimizer.learning_rate = 0.5
        fresh = model.refresh(state)
        assert fresh is not state
        assert float(fresh.opt_state[1]) == 0.5
        assert fresh.params[0] is state.params[0]
        assert model.refresh(fresh) is fresh

    @pytest.mark.filterwarnings(KERAS_AND_NUMPY)
    def test_takes_what_a_callback_of_keras_reduced(self) -> None:
        keras_model = make()
        model, state = ready(keras_model)
        callback = keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.1, patience=0)
        callback.set_model(keras_model)
        callback.on_train_begin()
        for epoch in range(2):
            model.absorb(state)
            callback.on_epoch_end(epoch, {"loss": 1.0})
            state = model.refresh(state)
        assert float(state.opt_state[1]) == pytest.approx(0.01)

    def test_takes_what_changed_before_data_of_another_kind_came(self) -> None:
        keras_model = make()
        model, state = ready(keras_model)
        keras_model.optimizer.learning_rate = 0.5
        model.prepare(Batch(X[:7], Y[:7]))
        assert float(model.refresh(state).opt_state[1]) == 0.5

    def test_takes_weights(self) -> None:
        keras_model = make()
        model, state = ready(keras_model)
        model.absorb(state)
        keras_model.layers[-1].kernel.assign(np.full((4, 3), 2.0))
        assert (model.refresh(state).params[0] == 2).all()

    def test_is_not_fooled_by_a_prediction_in_a_callback(self) -> None:
        keras_model = make()
        model, state = ready(keras_model)
        model.absorb(state)
        keras_model.predict(X, verbose=0)
        assert model.refresh(state) is state

    def test_refuses_a_model_compiled_anew(self) -> None:
        keras_model = make()
        model, state = ready(keras_model)
        keras_model.compile(optimizer="adam", loss="mse")
        keras_model.optimizer.build(keras_model.trainable_variables)
        with pytest.raises(SpecError, match=r"has 9 variables, and the state has 5.*new `dure\.Trainer`"):
            model.refresh(state)


class TestFinish:
    def test_takes_the_averages_as_weights(self) -> None:
        model, state = ready(make(optimizer=keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.5)))
        state, _ = train(model, state, DATA, size=20)
        finished = model.finish(state)
        averages = [leaf for leaf in state.opt_state if np.shape(leaf) == (4, 3)]
        np.testing.assert_array_equal(finished.params[0], averages[0])
        assert not np.array_equal(finished.params[0], state.params[0])

    def test_is_nothing_otherwise(self) -> None:
        model, state = ready(make())
        assert model.finish(state) is state


class Largest(keras.metrics.Metric):
    """A metric that does not add: the largest output so far."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.largest = self.add_variable((), initializer=keras.initializers.Constant(-1e9), name="largest")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.largest.assign(keras.ops.maximum(self.largest.value, keras.ops.max(y_pred)))

    def result(self) -> Any:
        return self.largest.value

    def reset_state(self) -> None:
        self.largest.assign(-1e9)


class Counts(keras.metrics.Metric):
    """A metric of two sums, each added to in a way of its own."""

    def __init__(self) -> None:
        super().__init__(name="counts")
        self.total = self.add_variable((), initializer="zeros", name="total")
        self.rows = self.add_variable((), initializer="zeros", name="rows", dtype="int32")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(keras.ops.sum(y_pred))
        self.rows.assign(self.rows + keras.ops.shape(y_pred)[0])

    def result(self) -> Any:
        return self.total / keras.ops.cast(self.rows, "float32")


class TestMetrics:
    def test_a_metric_that_does_not_add_is_handed_on(self) -> None:
        model, state = ready(make(metrics=[Largest()]))
        results = evaluate(model, state, DATA, size=15)
        assert results["largest"] == pytest.approx(float(np.asarray(model.predict(state, X)).max()))

    def test_a_metric_that_does_more_than_add_is_known(self) -> None:
        model, _ = ready(make(metrics=["accuracy", Counts(), Largest()]))
        assert model.unmerged == ("largest",)
        assert ready(make())[0].unmerged == ()

    def test_no_example_is_lost_beyond_what_float32_counts(self) -> None:
        model, state = ready(make())
        metrics = jax.jit(model.measure)(state, model.new_metrics(), DATA)
        many = jax.tree.map(lambda leaf: leaf, metrics)
        many = many._replace(
            variables=[slot._replace(high=jnp.float32(2**24)) if slot else slot for slot in metrics.variables]
        )
        grown = jax.jit(model.measure)(state, many, Batch(X[:1], Y[:1]))
        grown = jax.jit(model.measure)(state, grown, Batch(X[:1], Y[:1]))
        count = grown.variables[-1]
        assert float(np.float64(count.high) + np.float64(count.low)) == 2**24 + 2

    def test_a_metric_with_several_numbers_gives_each_a_name(self) -> None:
        y = np.eye(3, dtype=np.float32)[Y]
        model = pure(make(loss="mse", metrics=[keras.metrics.F1Score(average=None)]))
        model.prepare(Batch(X, y))
        results = evaluate(model, model.init(0), Batch(X, y), size=40)
        assert list(results) == ["loss", "f1_score_0", "f1_score_1", "f1_score_2"]

    def test_without_examples_the_loss_is_no_number(self) -> None:
        model, _ = ready(make())
        assert np.isnan(model.result(model.new_metrics())["loss"])

    def test_a_model_with_a_loss_of_its_own_reports_it(self) -> None:
        class Own(keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.dense = keras.layers.Dense(3)
                self.tracker = keras.metrics.Mean(name="loss")

            def call(self, x: Any) -> Any:
                return self.dense(x)

            def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any, training: bool = True) -> Any:
                loss = keras.ops.mean((y_pred - y) ** 2)
                self.tracker.update_state(2 * loss)
                return loss

            @property
            def metrics(self) -> list[Any]:
                return [self.tracker]

        keras_model = Own()
        keras_model.compile(optimizer="sgd")
        y = np.ones((40, 3), np.float32)
        model = pure(keras_model)
        model.prepare(Batch(X, y))
        results = evaluate(model, model.init(0), Batch(X, y), size=40)
        expected = 2 * np.mean((np.asarray(model.predict(model.init(0), X)) - y) ** 2)
        assert results == {"loss": pytest.approx(expected, rel=1e-5)}


def test_nothing_of_a_trace_stays_in_the_model() -> None:
    case = CASES["subclassed"]
    model = pure(case.make())
    with jax.checking_leaks():
        model.prepare(Batch(case.x, case.y))


def test_the_subclassed_case_is_no_functional_model() -> None:
    assert Residual.__base__ is keras.Model
