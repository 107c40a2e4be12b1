from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dure.errors import SpecError
from dure.models.adapt import pure
from dure.models.model import Model
from dure.models.pure import Batch
from unit.models.steps import evaluate, rows, train

RNG = np.random.default_rng(0)
X = RNG.normal(size=(37, 5)).astype(np.float32)
Y = RNG.integers(0, 3, 37).astype(np.int32)
WEIGHT = RNG.uniform(0.1, 2, 37).astype(np.float32)
DATA = Batch(X, Y)
cross_entropy = optax.softmax_cross_entropy_with_integer_labels


def init(key: Any) -> Any:
    return {"w": 0.1 * jax.random.normal(key, (5, 3)), "b": jnp.zeros(3)}


def apply(params: Any, x: Any, *, key: Any, training: bool) -> Any:
    if training:
        x = jnp.where(jax.random.bernoulli(key, 0.5, x.shape), 2 * x, 0)
    return x @ params["w"] + params["b"]


def make(**options: Any) -> Model:
    chosen = {
        "init": init,
        "apply": apply,
        "loss": cross_entropy,
        "optimizer": optax.adam(0.01),
        "metrics": {"accuracy": "accuracy"},
    }
    return Model(**(chosen | options))


def apply_normalised(params: Any, state: Any, x: Any, *, key: Any, training: bool) -> Any:
    mean = x.mean(axis=0) if training else state["mean"]
    moved = {"mean": 0.9 * state["mean"] + 0.1 * mean, "count": state["count"] + 1} if training else state
    return (x - mean) @ params["w"] + params["b"], moved


def make_normalised(**options: Any) -> Model:
    def start(key: Any) -> Any:
        return init(key), {"mean": jnp.zeros(5), "count": 0}

    return make(**({"init": start, "apply": apply_normalised, "has_state": True} | options))


class TestTraining:
    def test_equals_the_loop_written_by_hand(self) -> None:
        optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(optax.linear_schedule(0.1, 0.01, 5)))
        model = pure(make(optimizer=optimizer))
        model.prepare(rows(DATA, 0, 10))
        state = model.init(4)
        params, opt_state = jax.tree.map(jnp.array, (state.params, optimizer.init(state.params)))
        losses, key = [], state.key

        @jax.jit
        def step(params: Any, opt_state: Any, batch: Batch, key: Any) -> Any:
            def loss(params: Any) -> Any:
                outputs = apply(params, batch.x, key=jax.random.wrap_key_data(key), training=True)
                return cross_entropy(outputs, batch.y).mean()

            number, grads = jax.value_and_grad(loss)(params)
            updates, opt_state = optimizer.update(grads, opt_state, params)
            return number, optax.apply_updates(params, updates), opt_state

        for start in range(0, 37, 10):
            batch = rows(DATA, start, start + 10)
            number, params, opt_state = step(params, opt_state, batch, key)
            losses.append(float(number) * len(batch.x))
            key = key + np.array([0, 1], np.uint32)
        state, history = train(model, state, DATA, size=10)
        assert history[0]["loss"] == pytest.approx(sum(losses) / 37, rel=1e-6)
        for found, expected in zip(jax.tree.leaves(state.params), jax.tree.leaves(params), strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
        assert (int(state.step), np.asarray(state.key).tolist()) == (4, np.asarray(key).tolist())

    @pytest.mark.parametrize("weight", [None, WEIGHT])
    def test_float64_is_kept_to_the_gradients(self, weight: Any) -> None:
        x, y = RNG.normal(size=(37, 5)), RNG.normal(size=37)

        def squares(outputs: Any, targets: Any) -> Any:
            return (outputs - targets) ** 2

        with jax.enable_x64(True):
            model = pure(
                Model(
                    init=lambda key: {"w": jnp.zeros(5, jnp.float64)},
                    apply=lambda params, x, *, key, training: x @ params["w"],
                    loss=squares,
                    optimizer=optax.sgd(0.1),
                )
            )
            metrics = model.new_metrics()
            grads, _, metrics = model.gradients(model.init(0), metrics, Batch(x, y, weight))
            assert metrics["sums"]["loss"].high.dtype == np.float32
            found = np.asarray(grads["w"])
        expected = -2 * (y * (1 if weight is None else weight)) @ x / 37
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)

    def test_the_same_seed_gives_the_same_bits_and_another_one_others(self) -> None:
        model = pure(make())
        runs = [train(model, model.reseed(model.init(0), seed), DATA, size=37)[0] for seed in (1, 1, 2)]
        weights = [np.asarray(state.params["w"]) for state in runs]
        assert np.array_equal(weights[0], weights[1])
        assert not np.array_equal(weights[0], weights[2])

    def test_reseed_changes_the_key_and_nothing_else(self) -> None:
        model = pure(make())
        state = model.init(0)
        again = model.reseed(state, 0)
        assert np.array_equal(again.key, state.key)
        assert again._replace(key=state.key) is not None
        assert all(a is b for a, b in zip(again[:3], state[:3], strict=True))

    def test_rows_of_one_batch_are_masked_differently(self) -> None:
        seen = {}

        def look(params: Any, x: Any, *, key: Any, training: bool) -> Any:
            seen["mask"] = jax.random.bernoulli(key, 0.5, x.shape)
            return x @ params["w"]

        model = pure(make(apply=look))
        state = model.init(0)
        model.predict(state, X)
        assert len({row.tobytes() for row in np.asarray(seen["mask"])}) > 10

    def test_sample_weights_follow_the_convention_of_keras(self) -> None:
        model = pure(make(apply=lambda params, x, *, key, training: x @ params["w"] + params["b"]))
        state = model.init(0)
        batch = Batch(X, Y, WEIGHT)
        model.prepare(batch)
        grads, _, metrics = jax.jit(model.gradients)(state, model.new_metrics(), batch)

        def objective(params: Any) -> Any:
            return jnp.sum(WEIGHT * cross_entropy(X @ params["w"] + params["b"], Y)) / len(X)

        number, expected = jax.value_and_grad(objective)(state.params)
        np.testing.assert_allclose(grads["w"], expected["w"], rtol=1e-5, atol=1e-7)
        assert model.result(metrics)["loss"] == pytest.approx(float(number), rel=1e-6)

    def test_a_model_without_targets_trains(self) -> None:
        model = pure(make(loss=lambda outputs, targets: jnp.sum(outputs**2, axis=1), metrics={}))
        assert model.prepare(Batch(X)).classes == ()
        _, history = train(model, model.init(0), Batch(X), size=37, epochs=3)
        assert history[-1]["loss"] < history[0]["loss"]


class TestState:
    def test_leaves_are_numpy_arrays_of_the_width_of_jax(self) -> None:
        model = pure(
            make_normalised(
                init=lambda key: ({"w": np.zeros((5, 3)), "b": np.zeros(3)}, {"mean": np.zeros(5), "count": 0})
            )
        )
        leaves = jax.tree.leaves(model.init(0))
        assert {type(leaf) for leaf in leaves} == {np.ndarray}
        assert {leaf.dtype.name for leaf in leaves} == {"float32", "int32", "uint32"}

    def test_a_state_moves_in_training_and_rests_in_evaluation(self) -> None:
        model = pure(make_normalised())
        model.prepare(DATA)
        state, _ = train(model, model.init(0), DATA, size=20)
        assert int(state.model_state["count"]) == 2
        expected = 0.9 * 0.1 * X[:20].mean(0) + 0.1 * X[20:].mean(0)
        np.testing.assert_allclose(state.model_state["mean"], expected, rtol=1e-5, atol=1e-7)
        assert evaluate(model, state, DATA, size=10)["loss"] == pytest.approx(
            evaluate(model, state, DATA, size=37)["loss"], rel=1e-6
        )

    def test_a_state_keeps_its_types(self) -> None:
        def careless(params: Any, state: Any, x: Any, *, key: Any, training: bool) -> Any:
            return x @ params["w"], {"mean": x.mean(0).astype(jnp.float16), "count": 7}

        model = pure(make_normalised(apply=careless))
        _, state, _ = model.gradients(model.init(0), model.new_metrics(), DATA)
        assert [state["mean"].dtype, state["count"].dtype] == [jnp.float32, jnp.int32]
        assert not state["count"].weak_type

    def test_a_state_may_hold_keys(self) -> None:
        def start(key: Any) -> Any:
            return init(key), {"key": key}

        def noisy(params: Any, state: Any, x: Any, *, key: Any, training: bool) -> Any:
            now, later = jax.random.split(state["key"])
            return (x + jax.random.normal(now, x.shape)) @ params["w"], {"key": later}

        model = pure(make(init=start, apply=noisy, has_state=True))
        model.prepare(DATA)
        before = model.init(0)
        state, _ = train(model, before, DATA, size=37)
        assert state.model_state["key"].data.dtype == np.uint32
        assert not np.array_equal(state.model_state["key"].data, before.model_state["key"].data)

    def test_an_optimizer_may_hold_keys(self) -> None:
        model = pure(make(optimizer=optax.chain(optax.add_noise(0.1, 0.5, jax.random.key(1)), optax.sgd(0.1))))
        model.prepare(DATA)
        state, history = train(model, model.init(0), DATA, size=37, epochs=2)
        assert np.isfinite([epoch["loss"] for epoch in history]).all()
        assert all(isinstance(leaf.dtype, np.dtype) for leaf in jax.tree.leaves(state))

    def test_an_init_that_cannot_be_traced_is_run(self) -> None:
        def load(key: Any) -> Any:
            return {"w": np.asarray(jax.random.normal(key, (5, 3))) * 0.1, "b": np.zeros(3)}

        model = pure(make(init=load))
        assert model.prepare(DATA).outputs.shape == (37, 3)


class TestMetrics:
    def test_are_exact_with_a_short_last_batch(self) -> None:
        metrics = {"accuracy": "accuracy", "top": "top_2_accuracy", "first": lambda outputs, targets: outputs[:, 0]}
        model = pure(make(metrics=metrics))
        model.prepare(DATA)
        state = model.init(0)
        outputs = np.asarray(model.predict(state, X))
        found = evaluate(model, state, DATA, size=10)
        assert list(found) == ["loss", "accuracy", "top", "first"]
        assert found["accuracy"] == pytest.approx((outputs.argmax(1) == Y).mean(), abs=1e-12)
        assert found["loss"] == pytest.approx(float(np.mean(cross_entropy(outputs, Y))), rel=1e-6)
        assert found["first"] == pytest.approx(float(outputs[:, 0].mean()), rel=1e-5)

    def test_are_no_numbers_without_examples(self) -> None:
        model = pure(make())
        assert all(np.isnan(number) for number in model.result(model.new_metrics()).values())

    def test_accumulators_of_parts_add_up_to_those_of_the_whole(self) -> None:
        model = pure(make())
        state, empty = model.init(0), model.new_metrics()
        measure = jax.jit(model.measure)
        parts = [measure(state, empty, rows(DATA, *span)) for span in ((0, 20), (20, 37))]
        whole = measure(state, empty, DATA)
        assert model.result(jax.tree.map(jnp.add, *parts)) == pytest.approx(model.result(whole), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "batch", "message"),
    [
        (
            {"loss": lambda outputs, targets: cross_entropy(outputs, targets).mean()},
            DATA,
            r"loss gave float32\[\] for outputs float32\[37, 3\] and targets int32\[37\].*leave `jnp\.mean`",
        ),
        (
            {"loss": lambda outputs, targets: outputs**2},
            DATA,
            r"loss gave float32\[37, 3\].*one value an example, \[37\].*`jnp\.mean\(values, axis=\(1,\)\)`",
        ),
        (
            {"loss": lambda outputs, targets: (outputs[:, :1] - targets) ** 2},
            DATA,
            r"loss gave float32\[37, 37\].*\[batch\] against \[batch, 1\] spreads to this",
        ),
        (
            {"loss": lambda outputs, targets: outputs[:5, 0]},
            DATA,
            r"loss gave float32\[5\].*Return one number for each row",
        ),
        (
            {"metrics": {"odd": lambda outputs, targets: outputs}},
            DATA,
            r"metric `odd` gave float32\[37, 3\]",
        ),
        ({}, Batch(X[:, :2], Y), r"cannot be applied to x: float32\[37, 2\]\. It raised TypeError: dot_general"),
        ({}, Batch(X, Y[:, None]), r"loss or metrics cannot take \(outputs, targets\): .*int32\[37, 1\]"),
        ({"metrics": {"mse": "mse"}}, DATA, r"metric `mean_squared_error` takes targets shaped"),
        ({"init": lambda key: {}}, DATA, r"params without an array: \{\}"),
        (
            {"init": lambda key: {"w": jnp.zeros((5, 3), jnp.int32), "b": 0.0}},
            DATA,
            r"params\['w'\] is int32\[5, 3\], and only floating arrays",
        ),
        ({"init": lambda key: {"f": jnp.tanh}}, DATA, r"params\['f'\] is a .*, and a state holds arrays only"),
        (
            {"init": init, "apply": apply_normalised, "has_state": True},
            DATA,
            r"init returned a dict, and with has_state=True it returns the pair `\(params, state\)`",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_compiled(
    options: dict[str, Any], batch: Batch, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        pure(make(**options)).prepare(batch)


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (
            lambda params, state, x, *, key, training: x @ params["w"],
            r"apply returned a .*, and with has_state=True it returns the pair `\(outputs, state\)`",
        ),
        (
            lambda params, state, x, *, key, training: (x @ params["w"], {}),
            r"apply returned a state of structure PyTreeDef\(\{\}\), and init's is",
        ),
        (
            lambda params, state, x, *, key, training: (x @ params["w"], state | {"mean": x}),
            r"apply returned state\['mean'\] of shape \[37, 5\], and init's is \[5\]",
        ),
    ],
)
def test_a_state_of_another_form_is_refused(apply: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        pure(make_normalised(apply=apply)).prepare(DATA)


def test_predicting_looks_at_x_alone() -> None:
    outline = pure(make()).prepare(Batch(X), predicting=True)
    assert (outline.outputs.shape, outline.classes) == ((37, 3), ())


def test_holds_no_weights_of_its_own() -> None:
    model = pure(make())
    state = model.init(0)
    model.absorb(state)
    assert model.refresh(state) is state
    assert model.finish(state) is state
