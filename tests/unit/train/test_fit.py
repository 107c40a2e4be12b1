"""`fit`, `evaluate` and `predict`: their numbers, and going on from where they were."""

import jax
import numpy as np
import pytest

import dure
from dure import Trainer
from dure.errors import BusyError, ClosedError, SpecError
from dure.models import adapt
from dure.models.pure import Batch
from dure.train.epochs import Plan, order


def by_hand(model, x, y, *, epochs, batch_size, seed=0, weight=None, shuffle=True):
    """The same training as a plain loop over the model's pure functions: weights, and the loss of each epoch."""
    pure = adapt.pure(model)
    pure.prepare(Batch(x, y.astype(np.int32), weight))
    state = pure.reseed(pure.init(0), seed)
    losses = []

    @jax.jit
    def step(state, metrics, batch):
        grads, model_state, metrics = pure.gradients(state, metrics, batch)
        return pure.update(state, grads, model_state), metrics

    for epoch in range(epochs):
        metrics = pure.new_metrics()
        places = order(Plan(len(x), batch_size, shuffle), seed, epoch)
        for start in range(0, len(x), batch_size):
            picked = places[start : start + batch_size]
            rows = Batch(x[picked], y[picked].astype(np.int32), None if weight is None else weight[picked])
            state, metrics = step(state, metrics, rows)
        losses.append(pure.result(jax.device_get(metrics))["loss"])
    return jax.device_get(state), losses


def close(found, wanted, rtol=1e-5):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(np.abs(b).max(), 1e-30))


def equal(found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_it_is_the_plain_loop(classifier, single, data):
    x, y = data
    model = classifier(dropout=0.3)
    trainer = Trainer(model, single)
    history = trainer.fit(x, y, epochs=3, batch_size=8, seed=5, verbose=0)
    state, losses = by_hand(model, x, y, epochs=3, batch_size=8, seed=5)
    close(trainer.params, state.params)
    close(history["loss"], losses)
    assert trainer.step == 15
    assert trainer.epoch == 3
    assert history.epochs == [0, 1, 2]
    assert history.steps == 15
    assert not history.interrupted
    assert history.staleness == {}
    assert history.curve[-1].step == 15
    assert 0 < history.first_step_s <= history.curve[-1].seconds <= history.seconds
    assert len(history.epoch_seconds) == 3


def test_sample_weights_count(classifier, single, data):
    x, y = data
    weight = np.linspace(0, 2, 37)
    trainer = Trainer(classifier(), single)
    history = trainer.fit(x, y, sample_weight=weight, batch_size=8, verbose=0, shuffle=False)
    state, losses = by_hand(classifier(), x, y, epochs=1, batch_size=8, weight=weight.astype(np.float32), shuffle=False)
    close(trainer.params, state.params)
    close(history["loss"], losses)


def test_the_numbers_do_not_depend_on_dispatches_or_on_where_data_lie(classifier, single, data):
    x, y = data
    held = Trainer(classifier(), single)
    streamed = Trainer(classifier(), single, resident_bytes=0)
    start = held.state
    wanted = held.fit(x, y, epochs=2, batch_size=8, seed=1, verbose=0, steps_per_execution=2)
    reached = held.state
    for trainer, fixed in [(held, None), (held, 1), (held, 3), (streamed, None), (streamed, 1), (streamed, 100)]:
        trainer.state = start
        history = trainer.fit(x, y, epochs=2, batch_size=8, seed=1, verbose=0, steps_per_execution=fixed)
        equal(trainer.state, reached)
        assert history["loss"] == wanted["loss"]
    assert streamed.evaluate(x, y, batch_size=8) == held.evaluate(x, y, batch_size=8)
    assert streamed.predict(x, batch_size=8).tobytes() == held.predict(x, batch_size=8).tobytes()


def test_batches_that_come_from_elsewhere_train_the_same(classifier, single, data):
    x, y = data
    batches = [(x[start : start + 8], y[start : start + 8]) for start in range(0, 37, 8)]
    trainer = Trainer(classifier(), single, resident_bytes=0)
    start = trainer.state
    history = trainer.fit(x, y, epochs=2, batch_size=8, shuffle=False, verbose=0, seed=0)
    reached = trainer.state
    measured, outputs = trainer.evaluate(x, y, batch_size=8), trainer.predict(x, batch_size=8)
    for given in (batches, dure.data.Dataset.from_arrays(x, y).batch(8), lambda: iter(batches)):
        trainer.state = start
        found = trainer.fit(given, epochs=2, verbose=0, validation_data=given, seed=0)
        equal(trainer.state, reached)
        assert found["loss"] == history["loss"]
        assert trainer.evaluate(given) == measured
        assert found["val_loss"][-1] == measured["loss"]
        assert trainer.predict(given).tobytes() == outputs.tobytes()


def test_each_row_is_trained_on_once_an_epoch(counter, single):
    for strategy in (single, dure.Mirrored(num_devices=3)):
        with strategy:
            for rows, batch_size, resident_bytes in [(37, 8, None), (37, 8, 0), (36, 36, None), (5, 64, None)]:
                trainer = Trainer(counter, strategy, resident_bytes=resident_bytes)
                # The objective is a mean over the step's rows: a row of a step of b rows counts 1/b.
                sizes = np.full(rows, batch_size)
                sizes[order(Plan(rows, batch_size, True), 3, 0)[rows - rows % batch_size :]] = rows % batch_size
                x, y = np.eye(64, dtype=np.float32)[:rows], sizes.astype(np.float32)
                trainer.fit(x, y, batch_size=batch_size, seed=3, verbose=0)
                np.testing.assert_allclose(trainer.params["seen"][:rows], 1.0, rtol=1e-6)
                assert not trainer.params["seen"][rows:].any()


def test_fit_goes_on_from_where_it_was(classifier, single, data):
    x, y = data
    trainer = Trainer(classifier(dropout=0.3), single)
    start = trainer.state
    whole = trainer.fit(x, y, epochs=4, batch_size=8, seed=2, verbose=0)
    reached = trainer.state
    trainer.state = start
    first = trainer.fit(x, y, epochs=1, batch_size=8, seed=2, verbose=0)
    rest = trainer.fit(x, y, epochs=3, batch_size=8, verbose=0)
    equal(trainer.state, reached)
    assert first["loss"] + rest["loss"] == whole["loss"]
    assert rest.epochs == [5, 6, 7]


def test_a_seed_starts_the_order_and_the_draws_anew(classifier, single, data):
    x, y = data
    frozen = classifier(dropout=0.5, rate=0.0)
    trainer = Trainer(frozen, single)
    losses = [trainer.fit(x, y, batch_size=8, seed=seed, verbose=0)["loss"] for seed in (7, None, 7, 8)]
    assert losses[0] == losses[2]
    assert losses[0] != losses[1]
    assert losses[0] != losses[3]


def test_the_same_run_twice_is_bit_equal(classifier, single, data):
    states = []
    for _ in range(2):
        trainer = Trainer(classifier(dropout=0.3), single, seed=9)
        trainer.fit(*data, epochs=2, batch_size=37, verbose=0)
        states.append(trainer.state)
    equal(*states)


def test_no_call_sees_old_data(classifier, single, data):
    x, y = data[0].copy(), data[1].copy()
    trainer = Trainer(classifier(), single)
    start = trainer.state
    trainer.fit(x, y, batch_size=8, verbose=0, seed=0)
    old, before, outputs = trainer.params["first"], trainer.evaluate(x, y), trainer.predict(x)
    x *= -1
    assert trainer.evaluate(x, y) != before
    assert trainer.predict(x).tolist() != outputs.tolist()
    trainer.state = start
    trainer.fit(x, y, batch_size=8, verbose=0, seed=0)
    assert trainer.params["first"].tolist() != old.tolist()


def test_64_bits_and_other_dtypes_give_the_numbers_of_32(classifier, single, data):
    x, y = (data[0] * 10).astype(np.uint8), data[1].astype(np.int32)
    trainer = Trainer(classifier(), single)
    start, found = trainer.state, []
    for given in [(x, y), (x.astype(np.float64), y.astype(np.int64)), (jax.numpy.asarray(x), y.astype(np.uint8))]:
        trainer.state = start
        found.append(trainer.fit(*given, batch_size=37, seed=0, verbose=0)["loss"])
    assert found[0] == found[1] == found[2]


def test_validation_is_what_evaluate_gives(classifier, single, data):
    x, y = data
    trainer = Trainer(classifier(), single)
    history = trainer.fit(x, y, epochs=2, batch_size=8, validation_data=(x[:11], y[:11]), verbose=0)
    assert set(history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    result = trainer.evaluate(x[:11], y[:11], batch_size=8)
    assert history["val_loss"][-1] == result["loss"]
    assert history["val_accuracy"][-1] == result["accuracy"]
    start = trainer.state
    history = trainer.fit(x, y, batch_size=25, seed=0, validation_split=0.3, verbose=0, validation_batch_size=6)
    reached = trainer.state
    trainer.state = start
    trainer.fit(x[:25], y[:25], batch_size=25, seed=0, verbose=0)
    equal(trainer.state, reached)
    assert history["val_loss"][-1] == pytest.approx(trainer.evaluate(x[25:], y[25:])["loss"], rel=1e-6)


def test_outputs_have_the_model_s_form_and_the_order_of_the_rows(echo, single):
    trainer = Trainer(echo, single)
    x = {"a": np.arange(20.0).reshape(10, 2), "b": (np.arange(10.0),)}
    outputs = trainer.predict(x, batch_size=3)
    assert outputs["a"].tolist() == x["a"].tolist()
    assert outputs["b"][0].tolist() == x["b"][0].tolist()
    assert outputs["a"].dtype == np.float32


def test_evaluate_alone_measures_fresh_weights(classifier, single, data):
    x, y = data
    trainer = Trainer(classifier(), single)
    pure = adapt.pure(classifier())
    metrics = jax.jit(pure.measure)(pure.init(0), pure.new_metrics(), Batch(x, y.astype(np.int32)))
    close(trainer.evaluate(x, y), pure.result(jax.device_get(metrics)))


def test_no_epochs_train_nothing(classifier, single, data):
    trainer = Trainer(classifier(), single)
    before = trainer.state
    history = trainer.fit(*data, epochs=0, verbose=0)
    equal(trainer.state, before)
    assert list(history) == []
    assert history.steps == 0


def test_lines_are_written_and_verbose_0_writes_none(classifier, single, data, capsys):
    trainer = Trainer(classifier(), single)
    trainer.fit(*data, epochs=2, batch_size=8, verbose=0)
    trainer.evaluate(*data)
    assert capsys.readouterr() == ("", "")
    trainer.fit(*data, epochs=2, batch_size=8)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("epoch 1/2: loss ")
    trainer.evaluate(*data, verbose=2)
    assert capsys.readouterr().out.startswith("evaluation: loss ")


def test_state_can_be_read_and_set(classifier, single, data):
    trainer = Trainer(classifier(), single)
    start = trainer.state
    trainer.fit(*data, epochs=2, batch_size=8, verbose=0)
    assert isinstance(trainer.params["first"], np.ndarray)
    trainer.state = start
    equal(trainer.state, start)
    assert trainer.step == 0
    with pytest.raises(SpecError, match="state is dict of another structure than this trainer's state"):
        trainer.state = {"params": 1}
    with pytest.raises(SpecError, match=r"state.params\['first'\] is float64 \[4, 8\], and this trainer's is float32"):
        trainer.state = start._replace(params={**start.params, "first": start.params["first"].astype(np.float64)})


def test_the_seed_of_a_trainer_is_that_of_its_weights(classifier, single):
    equal(Trainer(classifier(), single, seed=3).params, Trainer(classifier(), single, seed=3).params)
    first, second = (Trainer(classifier(), single, seed=seed).params["first"] for seed in (3, 4))
    assert first.tolist() != second.tolist()


def test_a_closed_one_says_so(classifier, data):
    with dure.SingleDevice() as strategy:
        with Trainer(classifier(), strategy) as trainer:
            trainer.fit(*data, verbose=0)
        trainer.close()
        for use in (
            lambda: trainer.fit(*data),
            lambda: trainer.evaluate(*data),
            lambda: trainer.predict(data[0]),
            lambda: trainer.state,
            lambda: trainer.save("x"),
            lambda: trainer.restore("x"),
        ):
            with pytest.raises(ClosedError, match=r"Trainer\(Model, SingleDevice\(.*\)\) is closed. Make a new one"):
                use()


def test_a_fit_inside_a_fit_is_refused(classifier, single, data):
    class Greedy:
        def on_epoch(self, trainer, epoch, logs):
            trainer.fit(*data)

    class Restorer:
        def on_epoch(self, trainer, epoch, logs):
            trainer.restore("x")

    trainer = Trainer(classifier(), single)
    with pytest.raises(BusyError, match="is in a `fit` already. Wait for its end, or make another Trainer"):
        trainer.fit(*data, callbacks=[Greedy()], verbose=0)
    with pytest.raises(BusyError, match=r"restore\('x'\) was called while `fit` runs"):
        trainer.fit(*data, callbacks=[Restorer()], verbose=0)
    trainer.fit(*data, verbose=0)
