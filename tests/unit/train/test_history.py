"""The record of a fit."""

import json
import math

import pytest

from dure.errors import SpecError
from dure.train.history import History, Point


def test_values_are_lists_by_name():
    history = History()
    history.add_epoch(4, {"loss": 0.5, "val_loss": 0.6}, 2.0)
    history.add_epoch(5, {"loss": 0.25, "val_loss": 0.5}, 1.0)
    assert history["loss"] == [0.5, 0.25]
    assert list(history) == ["loss", "val_loss"]
    assert "loss" in history
    assert "accuracy" not in history
    assert len(history) == 2
    assert history.epochs == [4, 5]
    assert history.epoch_seconds == [2.0, 1.0]


def test_a_wrong_name_is_answered_with_the_right_ones():
    history = History()
    history.add_epoch(0, {"loss": 0.5, "accuracy": 0.6}, 2.0)
    with pytest.raises(SpecError, match="no `acuracy`. Did you mean `accuracy`. There are: accuracy, loss. Ask"):
        history["acuracy"]


def test_numbers_that_come_or_go_later_are_filled_up():
    history = History()
    history.add_epoch(0, {"loss": 1.0, "val_loss": 1.0}, 1.0)
    history.add_epoch(1, {"loss": 0.5, "learning_rate": 0.1}, 1.0)
    assert history["val_loss"][0] == 1.0
    assert math.isnan(history["val_loss"][1])
    assert math.isnan(history["learning_rate"][0])
    assert history["learning_rate"][1] == 0.1


def test_speed_leaves_out_what_compiles():
    history = History()
    assert math.isnan(history.steps_per_s)
    assert math.isnan(history.first_step_s)
    history.add_dispatch(Point(1, 3.0, 0.9), 1, 3.0, compiled=True)
    history.seconds = 4.0
    assert history.steps_per_s == 0.25
    history.add_dispatch(Point(101, 4.0, 0.8), 100, 1.0, compiled=False)
    assert history.steps_per_s == 100.0
    assert history.first_step_s == 3.0
    assert history.steps == 101


def test_it_goes_into_strict_json_and_shows_itself_on_a_line():
    history = History()
    history.add_dispatch(Point(1, 0.5, math.nan), 1, 0.5, compiled=True)
    history.add_epoch(0, {"loss": math.inf}, 0.5)
    history.interrupted = True
    record = json.loads(json.dumps(history.to_dict(), allow_nan=False))
    assert record["metrics"] == {"loss": [None]}
    assert record["curve"] == [[1, 0.5, None]]
    assert record["interrupted"] is True
    assert record["staleness"] == {}
    assert repr(history) == "History(1 epochs, 1 steps in 0 s, interrupted; loss=inf)"
