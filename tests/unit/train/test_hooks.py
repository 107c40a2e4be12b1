"""Keras models under the trainer, with Keras's own callbacks."""

import keras
import numpy as np
import pytest

import dure
from dure import Trainer
from dure.errors import SpecError

# Keras 3.15 reads its variables in a way that NumPy 2 calls outdated; only the warning matters here.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def make_model(*, dropout=0.0, rate=0.05, momentum=0.9, seed=0, inputs=True):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Input((4,))] if inputs else []
    model = keras.Sequential(
        [*layers, keras.layers.Dense(8, activation="tanh"), keras.layers.Dropout(dropout), keras.layers.Dense(3)]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(rate, momentum=momentum),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


@pytest.fixture
def model():
    return make_model()


@pytest.fixture
def trainer(model, single):
    return Trainer(model, single)


def test_it_is_keras_s_own_fit(single, data):
    x, y = data
    ours, keras_own = make_model(), make_model()
    trainer = Trainer(ours, single)
    history = trainer.fit(x, y, epochs=2, batch_size=8, shuffle=False, verbose=0, validation_data=data)
    wanted = keras_own.fit(x, y, epochs=2, batch_size=8, shuffle=False, verbose=0, validation_data=data)
    for name, values in wanted.history.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5)
    for a, b in zip(ours.get_weights(), keras_own.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(trainer.predict(x), keras_own.predict(x, verbose=0), rtol=1e-4, atol=1e-5)
    assert trainer.evaluate(x, y)["loss"] == pytest.approx(ours.evaluate(x, y, verbose=0)[0], rel=1e-5)


def test_weights_that_the_user_sets_between_calls_are_taken_over(single, data):
    model = make_model(momentum=0.0)
    trainer = Trainer(model, single)
    trainer.fit(*data, batch_size=8, verbose=0)
    model.set_weights([weight * 0 for weight in model.get_weights()])
    assert not trainer.predict(data[0]).any()
    model.optimizer.learning_rate = 0.0
    trainer.fit(*data, batch_size=8, verbose=0)
    assert not np.any(model.get_weights()[0])
    assert not trainer.predict(data[0]).any()


def test_a_model_that_is_built_from_data(single, data, tmp_path):
    model = make_model(inputs=False)
    trainer = Trainer(model, single)
    trainer.fit(*data, batch_size=8, verbose=0)
    trainer.save(tmp_path / "c")
    other_model = make_model(inputs=False, seed=1)
    other = Trainer(other_model, single)
    other.restore(tmp_path / "c")
    for a, b in zip(other_model.get_weights(), model.get_weights(), strict=True):
        assert a.tobytes() == b.tobytes()
    trainer.fit(*data, batch_size=8, verbose=0)
    other.fit(*data, batch_size=8, verbose=0)
    for a, b in zip(other_model.get_weights(), model.get_weights(), strict=True):
        assert a.tobytes() == b.tobytes()


def test_a_model_that_is_built_from_inputs_alone(single, data):
    model, keras_own = make_model(inputs=False), make_model(inputs=False)
    trainer = Trainer(model, single)
    wanted = keras_own.predict(data[0], verbose=0)
    np.testing.assert_allclose(trainer.predict(data[0]), wanted, rtol=1e-5, atol=1e-6)
    assert np.isfinite(trainer.fit(*data, batch_size=8, verbose=0)["loss"]).all()
    np.testing.assert_allclose(trainer.predict(data[0]), model.predict(data[0], verbose=0), rtol=1e-5, atol=1e-6)
    # Built for the first kind of inputs, it is not rebuilt for another.
    with pytest.raises(SpecError, match=r"cannot take x: float32\[37, 3\]"):
        trainer.predict(data[0][:, :3], batch_size=37)


def test_outputs_before_any_training(trainer, model, data):
    np.testing.assert_allclose(trainer.predict(data[0]), model.predict(data[0], verbose=0), rtol=1e-5, atol=1e-6)
    trainer.fit(*data, batch_size=8, verbose=0)
    np.testing.assert_allclose(trainer.predict(data[0]), model.predict(data[0], verbose=0), rtol=1e-5, atol=1e-6)


class Highest(keras.metrics.Metric):
    """A metric that does more than add."""

    def __init__(self):
        super().__init__(name="highest")
        self.highest = self.add_variable((), initializer=keras.initializers.Constant(-100.0), name="highest")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.highest.assign(keras.ops.maximum(self.highest, keras.ops.max(y_pred)))

    def result(self):
        return self.highest.value

    def reset_state(self):
        self.highest.assign(-100.0)


def test_a_metric_that_does_more_than_add_is_right_or_refused(single, data):
    def compiled():
        model = make_model()
        model.compile(optimizer="sgd", loss=model.loss, metrics=[Highest()])
        return model

    wanted = Trainer(compiled(), single).fit(*data, batch_size=8, shuffle=False, verbose=0)
    with dure.Mirrored(num_devices=3) as strategy:
        found = Trainer(compiled(), strategy).fit(*data, batch_size=8, shuffle=False, verbose=0)
    assert found["highest"] == pytest.approx(wanted["highest"], rel=1e-5)
    with dure.Mirrored(num_devices=3, sync_every=2) as strategy:
        trainer = Trainer(compiled(), strategy)
        measured = trainer.evaluate(*data, batch_size=8)["highest"]
        assert measured == pytest.approx(trainer.predict(data[0]).max(), rel=1e-5)
        with pytest.raises(SpecError, match="what each of 3 replicas .* of `highest` do more than add. Build"):
            trainer.fit(*data, batch_size=8, verbose=0)


def test_weights_are_back_after_an_error(trainer, model, data):
    class Broken:
        def on_epoch(self, trainer, epoch, logs):
            raise ZeroDivisionError

    ended = []
    told = keras.callbacks.LambdaCallback(on_train_end=ended.append)
    before = model.get_weights()[0]
    with pytest.raises(ZeroDivisionError):
        trainer.fit(*data, batch_size=8, callbacks=[Broken(), told], verbose=0)
    assert ended == []
    assert model.get_weights()[0].tolist() == trainer.state.params[0].tolist() != before.tolist()


# --- Keras's callbacks ------------------------------------------------------------------------------------


def test_a_schedule_by_epoch_is_obeyed(single, data):
    def schedule(epoch, rate):
        return 0.05 if epoch < 1 else 0.0

    model = make_model(momentum=0.0)
    seen = []
    watch = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(model.get_weights()[0]))
    history = Trainer(model, single).fit(
        *data, epochs=3, batch_size=8, verbose=0, callbacks=[keras.callbacks.LearningRateScheduler(schedule), watch]
    )
    assert history["learning_rate"] == pytest.approx([0.05, 0.0, 0.0])
    assert seen[0].tolist() == seen[1].tolist() == seen[2].tolist()


def test_a_plateau_reduces_the_rate(trainer, model, data):
    callback = keras.callbacks.ReduceLROnPlateau("loss", factor=0.1, patience=1, min_delta=100.0)
    history = trainer.fit(*data, epochs=4, batch_size=8, verbose=0, callbacks=[callback])
    assert history["learning_rate"][0] == pytest.approx(0.05)
    assert history["learning_rate"][-1] < 0.01
    assert float(model.optimizer.learning_rate) < 0.01


@pytest.mark.parametrize("restore", [False, True])
def test_early_stopping_stops_and_brings_the_best_weights_back(single, data, restore):
    model = make_model()
    seen = []

    class Scripted(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["scripted"] = [3.0, 1.0, 2.0, 2.0, 2.0][epoch]
            seen.append(self.model.get_weights()[0])

    stopping = keras.callbacks.EarlyStopping("scripted", mode="min", patience=2, restore_best_weights=restore)
    trainer = Trainer(model, single)
    history = trainer.fit(*data, epochs=5, batch_size=8, verbose=0, callbacks=[Scripted(), stopping])
    assert history["scripted"] == [3.0, 1.0, 2.0, 2.0]
    assert trainer.epoch == 4
    assert stopping.stopped_epoch == 3
    best = seen[1] if restore else seen[3]
    assert model.get_weights()[0].tolist() == best.tolist()
    assert trainer.state.params[0].tolist() == best.tolist()


def test_a_model_checkpoint_saves_the_weights_of_its_epoch(single, data, tmp_path):
    model = make_model()
    path = str(tmp_path / "{epoch}.weights.h5")
    saver = keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    Trainer(model, single).fit(*data, epochs=2, batch_size=8, verbose=0, callbacks=[saver])
    other = make_model(seed=1)
    other.optimizer.build(other.trainable_variables)
    other.load_weights(str(tmp_path / "2.weights.h5"))
    assert other.get_weights()[0].tolist() == model.get_weights()[0].tolist()
    other.load_weights(str(tmp_path / "1.weights.h5"))
    assert other.get_weights()[0].tolist() != model.get_weights()[0].tolist()


def test_a_csv_logger_writes_a_line_an_epoch(trainer, data, tmp_path):
    logger = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
    trainer.fit(*data, epochs=2, batch_size=8, verbose=0, callbacks=[logger])
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert lines[0].startswith("epoch,accuracy,loss")
    assert len(lines) == 3


def test_each_hook_is_called_with_what_keras_gives(trainer, model, data):
    calls = []

    class Recorder(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            calls.append(("train_begin", self.model is model, self.params["epochs"], self.params["steps"]))

        def on_epoch_begin(self, epoch, logs=None):
            calls.append(("epoch_begin", epoch))

        def on_test_begin(self, logs=None):
            calls.append("test_begin")

        def on_test_end(self, logs=None):
            calls.append("test_end")

        def on_epoch_end(self, epoch, logs=None):
            calls.append(("epoch_end", epoch, sorted(logs)))

        def on_train_end(self, logs=None):
            calls.append(("train_end", sorted(logs)))

    trainer.fit(*data, batch_size=8, verbose=0, validation_data=data, callbacks=[[Recorder()]])
    names = ["accuracy", "loss", "val_accuracy", "val_loss"]
    assert calls == [
        ("train_begin", True, 1, 5),
        ("epoch_begin", 0),
        "test_begin",
        "test_end",
        ("epoch_end", 0, names),
        ("train_end", names),
    ]


def test_epochs_go_on_counting_over_fits(trainer, data):
    seen = []
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
    trainer.fit(*data, epochs=2, batch_size=37, verbose=0, callbacks=[callback])
    trainer.fit(*data, epochs=1, batch_size=37, verbose=0, callbacks=[callback])
    assert seen == [0, 1, 2]


class EveryBatch(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        pass


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (EveryBatch, "EveryBatch has `on_train_batch_end`, and there is no moment after each batch: many steps run in"),
        (EveryBatch, r"Do the work in `on_epoch_end`, or in `on_step\(trainer, step, logs\)`"),
        (lambda: keras.callbacks.LambdaCallback(on_train_batch_begin=print), "has `on_train_batch_begin`"),
        (lambda: keras.callbacks.TensorBoard("x"), r"Use `dure.callbacks.TensorBoard\(path\)`"),
        (lambda: keras.callbacks.BackupAndRestore("x.weights.h5"), r"Use `dure.callbacks.Checkpoint\(path\)`"),
        (keras.callbacks.TerminateOnNaN, r"Stop from a callback with `on_step\(trainer, step, logs\)`"),
        (lambda: keras.callbacks.ModelCheckpoint("x.keras", save_freq=3), "ModelCheckpoint has `on_train_batch_end`"),
    ],
)
def test_what_needs_every_batch_is_refused(trainer, data, make, words):
    with pytest.raises(SpecError, match=words):
        trainer.fit(*data, callbacks=[make()], verbose=0)


def test_a_keras_callback_needs_a_keras_model(classifier, single, data):
    with pytest.raises(SpecError, match="is a callback for Keras models, and this trainer's model is a Model. Use one"):
        Trainer(classifier(), single).fit(*data, callbacks=[keras.callbacks.History()], verbose=0)


def test_mirrored_keras_callbacks_too(data):
    model = make_model()
    with dure.Mirrored(num_devices=3) as strategy:
        history = Trainer(model, strategy).fit(
            *data,
            epochs=2,
            batch_size=8,
            verbose=0,
            callbacks=[keras.callbacks.LearningRateScheduler(lambda epoch: 0.05 if epoch == 0 else 0.0)],
        )
    assert history["learning_rate"] == pytest.approx([0.05, 0.0])
