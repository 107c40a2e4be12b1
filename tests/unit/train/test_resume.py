"""A run that is started again goes on from its last checkpoint and ends where it would have."""

import itertools

import jax
import numpy as np
import pytest

import dure
from dure import Trainer, checkpoint
from dure.callbacks import Checkpoint, CSVLog, EarlyStopping
from dure.errors import CheckpointError
from dure.train import trainer as trainers


class Crash(Exception):
    """The end of a process."""


class CrashAt:
    """Ends the process at a step, the first time."""

    def __init__(self, step):
        self.every_steps = 1
        self.step = step

    def on_step(self, trainer, step, logs):
        if step == self.step:
            raise Crash


@pytest.fixture
def start(monkeypatch):
    """Begins a process of a run, as `dure run` does: the variables, and trainers numbered from 0."""

    def begin(number, run="a"):
        monkeypatch.setenv("DURE_RUN", run)
        monkeypatch.setenv("DURE_RESTART", str(number))
        monkeypatch.setattr(trainers, "_NUMBERS", itertools.count())

    return begin


def script(make, data, folder, *, every, crash=None, callbacks=()):
    """A user's program: two fits, 5 steps an epoch."""
    with dure.SingleDevice() as strategy, Trainer(make(dropout=0.3), strategy, seed=4) as trainer:
        saver = Checkpoint(folder, every=every)
        ends = [CrashAt(crash)] if crash else []
        options = {"batch_size": 8, "verbose": 0, "validation_data": data}
        first = trainer.fit(*data, epochs=2, callbacks=[*ends, saver, *callbacks], **options)
        second = trainer.fit(*data, epochs=3, seed=9, callbacks=[*ends, saver, *callbacks], **options)
        return first, second, trainer.state


def alike(found, wanted):
    for one, other in zip(found[:2], wanted[:2], strict=True):
        assert one.epochs == other.epochs
        assert one.steps == other.steps
        assert one.metrics.keys() == other.metrics.keys()
        for name in other:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-6)
    for one, other in zip(jax.tree.leaves(found[2]), jax.tree.leaves(wanted[2]), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def wanted(classifier, data, tmp_path_factory):
    """What an undisturbed run gives."""
    return script(classifier, data, tmp_path_factory.mktemp("wanted"), every="epoch")


@pytest.mark.parametrize(("every", "crash"), [("epoch", 8), (3, 1), (3, 8), (3, 11), (5, 16), (3, 25)])
def test_a_crashed_run_gives_what_an_undisturbed_one_gives(classifier, data, tmp_path, start, wanted, every, crash):
    start(0)
    with pytest.raises(Crash):
        script(classifier, data, tmp_path / "found", every=every, crash=crash)
    start(1)
    alike(script(classifier, data, tmp_path / "found", every=every), wanted)


def test_a_run_that_crashes_again_and_again_comes_to_the_same_end(classifier, data, tmp_path, start, wanted):
    for number, crash in enumerate((4, 9, 13, 24)):
        start(number)
        with pytest.raises(Crash):
            script(classifier, data, tmp_path / "found", every=2, crash=crash)
    start(4)
    alike(script(classifier, data, tmp_path / "found", every=2), wanted)


def test_checkpoints_of_an_earlier_run_are_not_taken_up(classifier, data, tmp_path, start, wanted):
    start(0, run="yesterday")
    script(classifier, data, tmp_path / "found", every=3)
    start(0)
    with pytest.raises(Crash):
        script(classifier, data, tmp_path / "found", every=3, crash=2)
    start(1)
    alike(script(classifier, data, tmp_path / "found", every=3), wanted)


def test_logs_and_patience_outlive_a_crash(classifier, data, tmp_path, start):
    def run(name, crash=None):
        stopping = EarlyStopping("loss", patience=2, mode="max")
        log = CSVLog(tmp_path / f"{name}.csv")
        first, _, _ = script(classifier, data, tmp_path / name, every=2, crash=crash, callbacks=[log, stopping])
        lines = (tmp_path / f"{name}.csv").read_text().splitlines()
        return first, stopping.stopped_epoch, [line.split(",")[:3] for line in lines]

    start(0, run="undisturbed")
    wanted = run("wanted")
    start(0)
    with pytest.raises(Crash):
        run("found", crash=19)
    start(1)
    found = run("found")
    assert found[1:] == wanted[1:]
    assert wanted[1] == 4


def test_a_damaged_account_of_the_fits_is_refused(classifier, data, tmp_path, start):
    start(0)
    with pytest.raises(Crash):
        script(classifier, data, tmp_path, every=3, crash=4)
    place = checkpoint.step_path(tmp_path, 3)
    saved = checkpoint.load(place)
    checkpoint.save(place, saved.arrays, {**saved.about, "fits": [{"last": 2}]})
    start(1)
    with pytest.raises(CheckpointError, match="step-00000003 says nothing that can be read about the fits so far"):
        script(classifier, data, tmp_path, every=3)
