"""What a comparison predicts before it runs."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace

import pytest

from dure.advise.ahead import Basis, forecasts
from dure.advise.calibration import Point
from dure.advise.cost import Load, Network
from dure.advise.record import Record, Settings
from unit.advise.records import MACHINE, MS, foretold, record

NETWORK = Network(
    points=(Point(13, 0.2 * MS), Point(25, 0.3 * MS)),
    points_one=(Point(13, 0.3 * MS), Point(25, 0.5 * MS)),
    gradients=Load(4, 4e5),
    state=Load(13, 1.2e6),
    state_bytes=1.2e6,
    first_step_s=2.0,
)
SETTINGS = Settings("m", "d", ("single", "mirrored:2", "multi-worker:2"), batch_size=25, epochs=2)


def test_each_strategy_is_predicted_in_the_order_asked() -> None:
    found, reason = forecasts(Basis(NETWORK, MACHINE), SETTINGS, 1000)
    assert [forecast.strategy for forecast in found] == list(SETTINGS.strategies)
    assert reason == ""
    single, mirrored, several = found
    assert single.step_s == pytest.approx(0.3 * MS)
    assert single.seconds == pytest.approx(2.0 + 79 * 0.3 * MS)
    assert single.cause == ""
    assert single.step_s < mirrored.step_s < several.step_s
    assert several.cause == "the exchange"


def test_as_in_a_measured_run_the_start_of_the_processes_does_not_count() -> None:
    several = forecasts(Basis(NETWORK, MACHINE), SETTINGS, 1000)[0][2]
    assert MACHINE.between[0].start_s > 0
    assert several.seconds == pytest.approx(2.0 + 79 * several.step_s)


def test_a_rarer_exchange_is_predicted_too() -> None:
    often = forecasts(Basis(NETWORK, MACHINE), SETTINGS, 1000)[0][2]
    seldom = forecasts(Basis(NETWORK, MACHINE), replace(SETTINGS, sync_every=16), 1000)[0][2]
    assert seldom.step_s < often.step_s


def test_what_the_machine_could_not_measure_is_not_predicted_and_said() -> None:
    lacking = replace(MACHINE, between=(), notes=("exchange between processes was not measured: no port",))
    found, reason = forecasts(Basis(NETWORK, lacking), SETTINGS, 1000)
    assert [forecast.strategy for forecast in found] == ["single", "mirrored:2"]
    assert reason == "multi-worker:2 could not be predicted: exchange between processes was not measured: no port"
    none = forecasts(Basis(NETWORK, replace(lacking, notes=())), SETTINGS, 1000)[1]
    assert none == "multi-worker:2 could not be predicted: the calibration has no figures for it"


def test_without_a_measurement_or_without_the_data_nothing_is_predicted() -> None:
    assert forecasts(None, SETTINGS, 1000) == ((), "")
    assert forecasts(Basis(NETWORK, MACHINE), SETTINGS, 0) == ((), "")


def test_the_error_is_above_zero_where_too_much_was_predicted() -> None:
    measured = foretold(record({"single": (8.0, 8.0), "mirrored:2": ()}), {"single": 10.0, "mirrored:2": 12.0})
    assert measured.error("single") == pytest.approx(0.25)
    assert measured.error("mirrored:2") is None
    assert measured.error("mirrored:4") is None


def test_predictions_are_in_the_dictionary_form() -> None:
    measured = replace(foretold(record({"single": (8.0,)}), {"single": 10.0}), unpredicted="a reason")
    plain = measured.to_dict()
    assert list(plain["forecasts"]) == [dataclasses.asdict(forecast) for forecast in measured.forecasts]
    assert Record.from_dict(json.loads(json.dumps(plain))) == measured
