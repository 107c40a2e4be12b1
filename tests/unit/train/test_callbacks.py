"""Callbacks of Dure's own form."""

import csv
import sys

import numpy as np
import pytest

from dure import Trainer, checkpoint
from dure.errors import SpecError
from dure.train.callbacks import Checkpoint, CSVLog, EarlyStopping, TensorBoard


class Recorder:
    def __init__(self):
        self.calls = []

    def on_start(self, trainer):
        self.calls.append(("start", trainer.step))

    def on_step(self, trainer, step, logs):
        assert step == trainer.step == int(trainer.state.step)
        self.calls.append(("step", step, sorted(logs)))

    def on_epoch(self, trainer, epoch, logs):
        self.calls.append(("epoch", epoch, sorted(logs)))

    def on_end(self, trainer, history):
        self.calls.append(("end", history.steps))


class Scripted:
    """Puts numbers of its own into an epoch's logs."""

    def __init__(self, values):
        self.values = values

    def on_epoch(self, trainer, epoch, logs):
        logs["scripted"] = self.values[epoch]


@pytest.fixture
def trainer(classifier, single):
    return Trainer(classifier(), single)


def test_each_is_called_at_its_moments(trainer, data):
    recorder = Recorder()
    trainer.fit(
        *data, epochs=2, batch_size=8, steps_per_execution=3, callbacks=[recorder], verbose=0,
        validation_data=data,
    )  # fmt: skip
    names, all_names = ["accuracy", "loss"], ["accuracy", "loss", "val_accuracy", "val_loss"]
    epochs = [[("step", first + 3, names), ("step", first + 4, names), ("step", first + 5, names)] for first in (0, 5)]
    assert recorder.calls == [
        ("start", 0),
        *epochs[0],
        ("epoch", 0, all_names),
        *epochs[1],
        ("epoch", 1, all_names),
        ("end", 10),
    ]


def test_a_part_of_the_methods_is_enough_and_one_needs_no_list(trainer, data):
    class Ends:
        ended = False

        def on_end(self, trainer, history):
            self.ended = True

    ends = Ends()
    trainer.fit(*data, callbacks=ends, verbose=0)
    assert ends.ended


def test_what_a_callback_adds_gets_into_the_history(trainer, data):
    history = trainer.fit(*data, epochs=2, callbacks=[Scripted([1.0, 2.0])], verbose=0)
    assert history["scripted"] == [1.0, 2.0]


def test_an_error_in_one_ends_the_fit_and_all_are_told(trainer, data):
    class Broken:
        def on_epoch(self, trainer, epoch, logs):
            raise ZeroDivisionError("mine")

        def on_end(self, trainer, history):
            raise ValueError("hidden by the first")

    recorder = Recorder()
    with pytest.raises(ZeroDivisionError, match="mine"):
        trainer.fit(*data, batch_size=8, callbacks=[Broken(), recorder], verbose=0)
    assert recorder.calls[-1] == ("end", 5)
    assert trainer.step == 5
    trainer.fit(*data, batch_size=8, verbose=0)


def test_an_error_at_the_end_is_raised_after_all_were_told(trainer, data):
    class Broken:
        def on_end(self, trainer, history):
            raise ValueError("at the end")

    recorder = Recorder()
    with pytest.raises(ValueError, match="at the end"):
        trainer.fit(*data, callbacks=[Broken(), recorder], verbose=0)
    assert recorder.calls[-1][0] == "end"


def test_a_callback_may_stop_in_the_middle_of_an_epoch(trainer, data):
    class Stops:
        def on_step(self, trainer, step, logs):
            if step == 2:
                trainer.stop()

    history = trainer.fit(*data, epochs=5, batch_size=8, steps_per_execution=1, callbacks=[Stops()], verbose=0)
    assert trainer.step == 2
    assert not history.interrupted
    assert trainer.fit(*data, epochs=1, batch_size=8, verbose=0).steps == 3 + 5


def test_a_callback_may_evaluate_and_change_the_state(trainer, data):
    class Meddles:
        def on_step(self, trainer, step, logs):
            self.measured = trainer.evaluate(*data, verbose=0)
            trainer.state = trainer.state._replace(params={k: v * 0 for k, v in trainer.params.items()})

    meddles = Meddles()
    trainer.fit(*data, batch_size=37, callbacks=[meddles], verbose=0)
    assert meddles.measured["loss"] > 0
    assert not trainer.params["first"].any()


# --- Checkpoint -------------------------------------------------------------------------------------------


def test_checkpoints_end_at_each_multiple_and_the_newest_are_kept(trainer, data, tmp_path):
    trainer.fit(*data, epochs=3, batch_size=8, verbose=0, callbacks=[Checkpoint(tmp_path, every=4, keep=2)])
    assert checkpoint.steps(tmp_path) == [8, 12]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["step-00000008", "step-00000012"]


def test_what_a_killed_run_left_is_removed(trainer, data, tmp_path):
    (tmp_path / ".step-00000009.saving-0123456789abcdef").mkdir()
    trainer.fit(*data, verbose=0, callbacks=[Checkpoint(tmp_path)])
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-00000002"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": "day"}, "every is 'day'; it is \"epoch\" or a number of steps"),
        ({"every": 0}, "every is 0"),
        ({"every": 1.5}, "every is 1.5"),
        ({"keep": 0}, "keep is 0"),
    ],
)
def test_options_of_checkpoint_are_checked(options, words):
    with pytest.raises(SpecError, match=words):
        Checkpoint("x", **options)


# --- EarlyStopping ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "options", "stopped", "best"),
    [
        ([5, 4, 3, 2, 1, 0], {}, None, 5),
        ([5, 4, 4, 3, 2, 1], {}, 2, 1),
        ([5, 4, 4, 4, 2, 1], {"patience": 2}, 3, 1),
        ([5, 4.5, 4, 4, 4, 4], {"patience": 2, "min_delta": 0.75}, 4, 2),
        ([1, 2, 3, 2, 2, 2], {"mode": "max", "patience": 2}, 4, 2),
        ([np.nan, np.nan, 3, 2, 2, 2], {"patience": 3}, None, 3),
        ([3, np.nan, np.nan, 1, 1, 1], {"patience": 2}, 2, 0),
    ],
)
def test_it_stops_when_patience_ends(trainer, data, values, options, stopped, best):
    stopping = EarlyStopping("scripted", **options)
    trainer.fit(*data, batch_size=37, epochs=6, callbacks=[Scripted(values), stopping], verbose=0)
    assert stopping.stopped_epoch == stopped
    assert stopping.best_epoch == best
    assert trainer.epoch == (6 if stopped is None else stopped + 1)


def test_more_is_better_for_an_accuracy(trainer, data):
    class Scores:
        def on_epoch(self, trainer, epoch, logs):
            logs["val_accuracy"] = [0.5, 0.6, 0.7, 0.7][epoch]

    stopping = EarlyStopping("val_accuracy")
    trainer.fit(*data, batch_size=37, epochs=4, callbacks=[Scores(), stopping], verbose=0)
    assert stopping.best_epoch == 2


def test_the_best_epoch_s_state_comes_back(trainer, data):
    states = []

    class Keeps:
        def on_epoch(self, trainer, epoch, logs):
            states.append(trainer.state)

    stopping = EarlyStopping("scripted", restore_best=True, patience=2)
    trainer.fit(*data, batch_size=37, epochs=6, callbacks=[Scripted([3, 1, 2, 2, 2, 2]), Keeps(), stopping], verbose=0)
    assert len(states) == 4
    assert trainer.params["first"].tobytes() == states[1].params["first"].tobytes()
    assert trainer.step == 2


def test_a_number_that_is_not_there_is_answered_with_those_that_are(trainer, data):
    with pytest.raises(SpecError, match="EarlyStopping looks at `val_loss`, which .* There are: accuracy, loss. Cho"):
        trainer.fit(*data, callbacks=[EarlyStopping()], verbose=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "least"}, "mode is 'least'"),
        ({"min_delta": -1}, "min_delta is -1"),
        ({"min_delta": float("nan")}, "min_delta is nan"),
        ({"patience": -1}, "patience is -1"),
    ],
)
def test_options_of_early_stopping_are_checked(options, words):
    with pytest.raises(SpecError, match=words):
        EarlyStopping(**options)


# --- CSVLog -----------------------------------------------------------------------------------------------


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_line_an_epoch_goes_into_the_file(trainer, data, tmp_path):
    path = tmp_path / "logs" / "log.csv"
    history = trainer.fit(*data, epochs=2, batch_size=8, callbacks=[CSVLog(path)], verbose=0)
    rows = rows_of(path)
    assert [row["epoch"] for row in rows] == ["0", "1"]
    assert [row["step"] for row in rows] == ["5", "10"]
    assert [float(row["loss"]) for row in rows] == history["loss"]
    trainer.fit(*data, epochs=1, batch_size=8, callbacks=[CSVLog(path, append=True)], verbose=0)
    assert [row["epoch"] for row in rows_of(path)] == ["0", "1", "2"]
    trainer.fit(*data, epochs=1, batch_size=8, callbacks=[CSVLog(path)], verbose=0)
    assert [row["epoch"] for row in rows_of(path)] == ["3"]


def test_appending_keeps_the_columns_that_are_there(trainer, data, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("loss,mine,epoch\n")
    history = trainer.fit(*data, callbacks=[CSVLog(path, append=True)], verbose=0)
    assert rows_of(path) == [{"loss": str(history["loss"][0]), "mine": "", "epoch": "0"}]


# --- TensorBoard ------------------------------------------------------------------------------------------


def test_without_the_extra_it_shows_the_line_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for name in [name for name in sys.modules if name.startswith("tensorboard.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SpecError, match=r"is not installed .*Install it: `pip install 'dure\[tensorboard\]'`"):
        TensorBoard(tmp_path)


def test_tensorboard_reads_the_curves(trainer, data, tmp_path):
    history = trainer.fit(
        *data, epochs=2, batch_size=37, validation_data=data, callbacks=[TensorBoard(tmp_path)], verbose=0
    )
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (file,) = tmp_path.iterdir()
    found = {
        (value.tag, event.step): value.tensor.float_val[0]
        for event in EventFileLoader(str(file)).Load()
        for value in event.summary.value
    }
    assert found["loss/train", 1] == pytest.approx(history["loss"][1])
    assert found["accuracy/validation", 0] == pytest.approx(history["val_accuracy"][0])
    assert found["dispatch/loss", 2] == pytest.approx(history["loss"][1])
    assert found["dispatch/steps_per_s", 2] > 0
