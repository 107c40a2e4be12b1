"""Checkpoints of a trainer: going on exactly where it was, under any strategy."""

import shutil

import jax
import numpy as np
import pytest

import dure
from dure import Trainer, checkpoint
from dure.errors import CheckpointError, SpecError
from dure.train.callbacks import Checkpoint


def equal(found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_train_save_restore_train_is_training_at_once(classifier, single, data, tmp_path):
    trainer = Trainer(classifier(dropout=0.3), single, seed=4)
    trainer.fit(*data, epochs=2, batch_size=8, verbose=0)
    trainer.save(tmp_path / "c")
    history = trainer.fit(*data, epochs=2, batch_size=8, verbose=0)
    other = Trainer(classifier(dropout=0.3), single, seed=99)
    other.restore(tmp_path / "c")
    assert other.step == 10
    assert other.epoch == 2
    again = other.fit(*data, epochs=2, batch_size=8, verbose=0)
    equal(other.state, trainer.state)
    assert again["loss"] == history["loss"]
    assert again.epochs == [2, 3]


@pytest.mark.parametrize("resident_bytes", [None, 0])
def test_a_checkpoint_in_the_middle_of_an_epoch_ends_that_epoch_first(
    classifier, single, data, tmp_path, resident_bytes
):
    saver = Checkpoint(tmp_path, every=7, keep=None)
    dropout = 0.3 if resident_bytes is None else 0.0
    trainer = Trainer(classifier(dropout=dropout), single, seed=4)
    trainer.fit(*data, epochs=4, batch_size=8, verbose=0, callbacks=[saver])
    assert checkpoint.steps(tmp_path) == [7, 14]
    other = Trainer(classifier(dropout=dropout), single, resident_bytes=resident_bytes)
    other.restore(checkpoint.step_path(tmp_path, 7))
    assert (other.epoch, other.step) == (1, 7)
    history = other.fit(*data, epochs=2, batch_size=8, verbose=0)
    assert history.epochs == [1, 2, 3]
    assert history.steps == 3 + 10
    equal(other.state, trainer.state)
    other.restore(checkpoint.step_path(tmp_path, 7))
    with pytest.raises(SpecError, match="stands at step 2 of 37 rows in batches of 8, shuffled, and these data are"):
        other.fit(*data, epochs=1, batch_size=9, verbose=0)
    assert other.fit(*data, epochs=1, batch_size=9, verbose=0, seed=0).steps == 5


def test_batches_of_a_loader_go_on_where_they_were(classifier, single, data, tmp_path):
    batches = dure.data.Dataset.from_arrays(*data).shuffle(seed=3).batch(8)
    trainer = Trainer(classifier(), single)
    trainer.fit(batches, epochs=2, verbose=0, callbacks=[Checkpoint(tmp_path, every=3)])
    other = Trainer(classifier(), single)
    other.restore(checkpoint.step_path(tmp_path, 3))
    other.fit(dure.data.Dataset.from_arrays(*data).shuffle(seed=3).batch(8), epochs=1, verbose=0)
    equal(other.state, trainer.state)


def test_any_strategy_goes_on_from_any_other(classifier, single, data, tmp_path):
    trainer = Trainer(classifier(), single, seed=4)
    trainer.fit(*data, epochs=1, batch_size=37, verbose=0)
    trainer.save(tmp_path / "single")
    with dure.Mirrored(num_devices=3) as mirrored:
        other = Trainer(classifier(), mirrored)
        other.restore(tmp_path / "single")
        equal(other.state, trainer.state)
        other.fit(*data, epochs=1, batch_size=37, verbose=0)
        other.save(tmp_path / "mirrored")
        wanted = other.state
    trainer.restore(tmp_path / "mirrored")
    equal(trainer.state, wanted)


def test_a_checkpoint_under_local_sgd_is_the_average(classifier, single, data, tmp_path):
    with dure.Mirrored(num_devices=2, sync_every="epoch") as mirrored:
        trainer = Trainer(classifier(), mirrored)
        trainer.fit(*data, epochs=1, batch_size=8, verbose=0, callbacks=[Checkpoint(tmp_path, every=3)])
        trainer.save(tmp_path / "end")
        wanted = trainer.state
    other = Trainer(classifier(), single)
    other.restore(tmp_path / "end")
    equal(other.state, wanted)
    other.restore(checkpoint.step_path(tmp_path, 3))
    assert other.step == 3


def test_the_newest_of_a_directory_is_taken_and_a_damaged_one_passed_over(classifier, single, data, tmp_path):
    trainer = Trainer(classifier(), single)
    trainer.fit(*data, epochs=5, batch_size=8, verbose=0, callbacks=[Checkpoint(tmp_path)])
    assert checkpoint.steps(tmp_path) == [15, 20, 25]
    other = Trainer(classifier(), single)
    other.restore(tmp_path)
    equal(other.state, trainer.state)
    (checkpoint.step_path(tmp_path, 25) / "manifest.json").write_text("{")
    with pytest.warns(UserWarning, match="checkpoint of step 25 is damaged"):
        other.restore(tmp_path)
    assert other.step == 20


def test_a_checkpoint_of_another_model_lists_both_sides(classifier, single, data, tmp_path):
    trainer = Trainer(classifier(), single)
    trainer.save(tmp_path / "c")
    with pytest.raises(
        CheckpointError, match=r"`params\['first'\]` is float32 \[4, 8\] there and float32 \[5, 8\] here"
    ):
        Trainer(classifier(features=5), single).restore(tmp_path / "c")
    trainer.fit(*data, verbose=0)
    trainer.save(tmp_path / "c")
    with pytest.raises(CheckpointError, match="was made by training on data that this model does not take"):
        Trainer(classifier(features=5), single).restore(tmp_path / "c")


def test_nothing_to_restore_is_said_and_nothing_changes(classifier, single, tmp_path):
    trainer = Trainer(classifier(), single)
    before = trainer.state
    with pytest.raises(CheckpointError, match="no such directory"):
        trainer.restore(tmp_path / "missing")
    equal(trainer.state, before)


def test_a_checkpoint_that_something_else_wrote_is_refused(classifier, single, tmp_path):
    trainer = Trainer(classifier(), single)
    trainer.save(tmp_path / "c")
    saved = checkpoint.load(tmp_path / "c")
    for position in (
        None,
        {},
        {"epoch": 1},
        {**saved.about["position"], "step": "7"},
        {**saved.about["position"], "epoch": -1},
    ):
        shutil.rmtree(tmp_path / "c")
        checkpoint.save(tmp_path / "c", saved.arrays, {**saved.about, "position": position})
        with pytest.raises(CheckpointError, match="says nothing that can be read about where training was"):
            trainer.restore(tmp_path / "c")
    checkpoint.save(tmp_path / "c", saved.arrays, {"sample": {"object": 1}})
    with pytest.raises(CheckpointError, match="a part of kind 'object'"):
        trainer.restore(tmp_path / "c")


def test_a_save_that_fails_in_a_callback_ends_the_fit_and_keeps_the_weights(classifier, single, data, tmp_path):
    (tmp_path / "file").write_text("x")
    trainer = Trainer(classifier(), single)
    with pytest.raises(CheckpointError, match="failed: "):
        trainer.fit(*data, batch_size=8, verbose=0, callbacks=[Checkpoint(tmp_path / "file" / "c")])
    assert trainer.step == 5
    trainer.fit(*data, batch_size=8, verbose=0)


def test_data_of_any_form_are_remembered(echo, single, tmp_path):
    x = {"a": np.zeros((4, 2)), "b": [np.zeros(4), (np.zeros((4, 1)),)]}
    trainer = Trainer(echo, single)
    trainer.fit(x, np.zeros(4), verbose=0)
    trainer.save(tmp_path / "c")
    other = Trainer(echo, single)
    other.restore(tmp_path / "c")
    assert other.step == 1
    assert jax.tree.structure(other._engine.sample) == jax.tree.structure(trainer._engine.sample)
