"""Local SGD: when replicas are averaged, by what weights, and what becomes of the optimizer's state."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dure.errors import SpecError
from dure.models.pure import PureModel
from dure.strategy.local import LocalRunner
from unit.strategy.engine import forward, in_order, network, rows, steps
from unit.strategy.test_spmd import leaves_equal


def runner(model: PureModel, replicas: int, sync_every: int | None, *, keeps: bool = False) -> LocalRunner:
    """A runner on the first few devices."""
    return LocalRunner(
        model, jax.devices()[:replicas], sync_every=sync_every, keeps_optimizer=keeps, resident_bytes=1000
    )


def copies(leaf: Any) -> list[np.ndarray]:
    """What each replica has of a leaf."""
    return list(np.asarray(leaf))


def test_replicas_part_and_are_averaged_every_so_many_steps() -> None:
    model = network()
    engine = runner(model, 2, 3)
    feed = engine.feed(engine.hold(rows(48)), in_order(48, 8))
    state, metrics = engine.place(model.init(0)), engine.new_metrics()
    apart = []
    for step in range(6):
        state, metrics = engine.train(state, metrics, feed, step, 1)
        one, other = copies(state.state.params["w"])
        apart.append(bool((one != other).any()))
    assert apart == [True, True, False, True, True, False]
    assert np.asarray(state.state.step).tolist() == [6, 6]


def test_an_average_weighs_each_replica_by_its_examples() -> None:
    model, data = network(), rows(14)
    engine = runner(model, 3, None)
    feed = engine.feed(engine.hold(data), in_order(14, 7))
    state, _ = engine.train(engine.place(model.init(0)), engine.new_metrics(), feed, 0, 2)
    own = np.stack(copies(state.state.params["w"]))
    averaged = engine.gather(engine.sync(state)).params["w"]
    # Of seven rows the replicas have three, three and one.
    np.testing.assert_allclose(averaged, np.tensordot(np.array([3, 3, 1]) / 7, own, 1), rtol=1e-5, atol=1e-6)


def test_a_replica_without_rows_does_not_move() -> None:
    model = network()
    engine = runner(model, 4, None)
    feed = engine.feed(engine.hold(rows(5)), in_order(5, 5))
    initial = model.init(0).params["w"]
    state, metrics = engine.train(engine.place(model.init(0)), engine.new_metrics(), feed, 0, 1)
    moved = [bool((copy != initial).any()) for copy in copies(state.state.params["w"])]
    assert moved == [True, True, True, False]
    assert np.asarray(state.seen).tolist() == [2, 2, 1, 0]
    assert np.asarray(metrics["examples"]).sum() == 5


def test_synchronising_equal_replicas_changes_nothing() -> None:
    model = network(optimizer=optax.adam(0.1))
    engine = runner(model, 3, None)
    initial = model.init(0)
    found = engine.gather(engine.sync(engine.place(initial)))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(initial), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("keeps", [False, True])
def test_the_optimizers_state_is_averaged_or_kept(keeps: bool) -> None:
    model = network(optimizer=optax.sgd(0.1, momentum=0.9))
    engine = runner(model, 2, None, keeps=keeps)
    feed = engine.feed(engine.hold(rows(16)), in_order(16, 8))
    state, _ = engine.train(engine.place(model.init(0)), engine.new_metrics(), feed, 0, 2)
    (before,) = jax.tree.leaves(jax.tree.map(np.array, state.state.opt_state))
    after = engine.sync(state)
    (found,) = jax.tree.leaves(jax.tree.map(np.array, after.state.opt_state))
    mean = before.mean(0)
    if keeps:
        np.testing.assert_array_equal(found, before)
        assert (found[0] != found[1]).any()
    else:
        np.testing.assert_allclose(found, [mean, mean], rtol=1e-5, atol=1e-7)
    # A checkpoint holds one state, whichever it is.
    (saved,) = jax.tree.leaves(engine.gather(after).opt_state)
    np.testing.assert_allclose(saved, mean, rtol=1e-5, atol=1e-7)


def test_a_learning_rate_comes_out_bit_for_bit() -> None:
    optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=0.1)
    model = network(optimizer=optimizer)
    engine = runner(model, 3, 1)
    feed = engine.feed(engine.hold(rows(21)), in_order(21, 7))
    state, _ = engine.train(engine.place(model.init(0)), engine.new_metrics(), feed, 0, 3)
    found = engine.gather(engine.sync(state)).opt_state
    assert found.hyperparams["learning_rate"] == np.float32(0.1)
    assert found.count == 3


def test_narrow_weights_do_not_shrink_by_averaging() -> None:
    narrow = network(lambda params, x, **_: x @ params["w"].astype(jnp.float32))
    model = network(optimizer=optax.sgd(0.0))
    initial = model.init(0)
    initial = initial._replace(params={"w": jnp.asarray(initial.params["w"], jnp.bfloat16)})
    engine = runner(narrow, 3, 1)
    feed = engine.feed(engine.hold(rows(63)), in_order(63, 3))
    placed = engine.sync(engine.place(jax.tree.map(np.asarray, initial)))
    for _ in range(20):
        placed = engine.sync(placed)
    leaves_equal(engine.gather(placed).params, initial.params)
    assert feed.steps == 21


def by_row(keys: Any, x: Any) -> Any:
    """Rows with values dropped by a key a row."""
    return jax.vmap(lambda key, row: row * jax.random.bernoulli(key, 0.5, row.shape))(keys, x)


def on_another_axis(key: Any, x: Any) -> Any:
    """Rows with values dropped by a draw whose rows are not in front."""
    mask = jax.random.bernoulli(key, 0.5, (2, len(x) * 3))
    return x * mask.reshape(2, len(x), 3).swapaxes(0, 1).reshape(x.shape)


def in_a_loop(key: Any, x: Any) -> Any:
    """Rows with values dropped twice, each time by another key."""
    keys = jax.random.split(key)
    return jax.lax.scan(lambda x, key: (x * jax.random.bernoulli(key, 0.5, x.shape), None), x, keys)[0]


# Rows `[rows, 6]` with some values gone.
DROPPED: dict[str, Any] = {
    "one draw": lambda key, x: x * jax.random.bernoulli(key, 0.5, x.shape),
    "a key a row": lambda key, x: by_row(jax.random.split(key, len(x)), x),
    "places of all rows in a line": lambda key, x: x * jax.random.bernoulli(key, 0.5, (len(x) * 3, 2)).reshape(x.shape),
    "rows on another axis": on_another_axis,
    "a draw of several keys": lambda key, x: (
        x * jax.vmap(lambda key: jax.random.uniform(key, x.shape))(jax.random.split(key)).sum(0)
    ),
    "a mask of the weights": lambda key, x: x * jax.random.bernoulli(key, 0.5, x.shape[1:]),
    "bytes": lambda key, x: x * (jax.random.bits(key, x.shape, "uint8") > 100),
    "in a loop": in_a_loop,
}
NOT_APART: dict[str, tuple[Any, str]] = {
    "waiting times": (
        lambda key, x: x * jax.random.gamma(key, jnp.ones((len(x), 1))),
        r"`random_gamma` of \[4, 1\] on 4 rows would be the same on each\. Give each row a key of its own",
    ),
    "counts": (
        lambda key, x: x * jax.random.poisson(key, 1.0, (len(x), 1)),
        r"`random_bits` of \[4, 1\] on 4 rows would be the same on each",
    ),
    "numbered keys": (
        lambda key, x: by_row(jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(len(x))), x),
        r"`random_fold_in` of \[4\] on 4 rows would be the same on each",
    ),
    "each row with each": (
        lambda key, x: jax.random.bernoulli(key, 0.5, (len(x), len(x))) @ x,
        r"`random_bits` of \[4, 4\] on 4 rows is \[8, 8\] on 8, where one axis was to grow with the rows",
    ),
}


def dropping(dropped: Any) -> PureModel:
    """A network of one layer on rows with some values gone."""

    def apply(params: Any, x: Any, *, key: Any, training: bool) -> Any:
        return forward(params, dropped(key, x) if training else x, key=key, training=training)

    return network(apply)


@pytest.mark.parametrize("dropped", DROPPED.values(), ids=DROPPED)
def test_each_replica_draws_its_rows_of_the_full_batchs_masks(dropped: Any) -> None:
    results = []
    for replicas, sync_every in ((1, None), (3, 1)):
        engine = runner(model := dropping(dropped), replicas, sync_every)
        feed = engine.feed(engine.hold(rows(14)), in_order(14, 7))
        state, _ = engine.train(engine.place(model.init(0)), engine.new_metrics(), feed, 0, 2)
        results.append(engine.gather(engine.sync(state)).params["w"])
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=1e-5 * np.abs(results[0]).max())


def test_an_order_of_the_rows_is_one_of_each_replicas_own() -> None:
    model = dropping(lambda key, x: x[jax.random.permutation(key, len(x))])
    engine = runner(model, 2, 1)
    feed = engine.feed(engine.hold(rows(8)), in_order(8, 8))
    state, _ = engine.train(engine.place(model.init(0)), engine.new_metrics(), feed, 0, 1)
    assert np.isfinite(engine.gather(engine.sync(state)).params["w"]).all()


@pytest.mark.parametrize(("dropped", "words"), NOT_APART.values(), ids=NOT_APART)
def test_draws_that_would_be_alike_on_each_replica_are_refused(dropped: Any, words: str) -> None:
    engine = runner(model := dropping(dropped), 2, 1)
    feed = engine.feed(engine.hold(rows(8)), in_order(8, 8))
    with pytest.raises(SpecError, match=words):
        engine.train(engine.place(model.init(0)), engine.new_metrics(), feed, 0, 1)


def test_evaluation_and_prediction_take_the_averaged_weights_and_all_rows() -> None:
    model, data = network(), rows(14)
    engine = runner(model, 4, None)
    feed = engine.stream(steps(data, 7))
    state, _ = engine.train(engine.place(model.init(0)), engine.new_metrics(), feed, 0, 2)
    state = engine.sync(state)
    weights = engine.gather(state)
    metrics = engine.measure(state, engine.new_metrics(), feed, 0, 2)
    assert np.asarray(metrics["examples"]).sum() == 14
    expected = model.result(model.measure(weights, model.new_metrics(), data))
    assert engine.result(metrics) == pytest.approx(expected, rel=1e-5)
    outputs = np.concatenate([engine.predict(state, feed, 0), engine.predict(state, feed, 1)])
    np.testing.assert_allclose(outputs, model.predict(weights, data.x), rtol=1e-4, atol=1e-4)
