"""The fits of a trainer as checkpoints keep them."""

import json
import math

import pytest

from dure.errors import CheckpointError
from dure.train.epochs import Position
from dure.train.history import History
from dure.train.record import Fits


def test_a_fit_ends_after_its_epochs_and_an_unfinished_one():
    fits = Fits()
    assert fits.begin(Position(), epochs=2).last == 2
    assert fits.begin(Position(epoch=2, step=5), epochs=2).last == 5
    assert [record["last"] for record in fits.to_list()] == [2, 5]


def test_fits_that_a_process_called_before_the_restart_are_taken_over_in_their_order():
    fits = Fits()
    first = fits.begin(Position(), epochs=2)
    first.history.add_epoch(0, {"loss": 0.5}, 1.0)
    first.history.add_epoch(1, {"loss": 0.25, "val_loss": math.inf}, 2.0)
    fits.begin(Position(epoch=2), epochs=3).history.steps = 7
    saved = json.loads(json.dumps(fits.to_list(), allow_nan=False))
    again = Fits()
    again.resume(saved)
    one = again.begin(Position(epoch=3, step=1), epochs=2)
    two = again.begin(Position(epoch=3, step=1), epochs=3)
    new = again.begin(Position(epoch=5), epochs=1)
    assert [(r.last, r.is_over, r.is_resumed) for r in (one, two, new)] == [
        (2, True, True), (5, False, True), (6, False, False)
    ]  # fmt: skip
    assert one.history["loss"] == [0.5, 0.25]
    assert math.isnan(one.history["val_loss"][1])
    assert two.history.steps == 7
    assert new.history is not two.history


def test_nothing_is_remembered_where_nothing_starts_again():
    fits = Fits(is_kept=False)
    assert fits.begin(Position(), epochs=2).history is not fits.begin(Position(), epochs=2).history
    assert fits.to_list() == []


@pytest.mark.parametrize(
    ("name", "value"), [("last", -1), ("last", "7"), ("epochs", [0]), ("metrics", {"loss": [1.0]})]
)
def test_values_that_are_no_fits_are_refused(name, value):
    values = {"last": 2, **History().past(), name: value}
    with pytest.raises(CheckpointError):
        Fits().resume([values])
