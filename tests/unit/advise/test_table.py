"""The table: what it says, and that it fits its line."""

from __future__ import annotations

import io
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dure.advise import table
from dure.advise.record import Facts, Failure, Forecast
from unit.advise.records import foretold, record, trial


def flat(text: str) -> str:
    """The text without its line ends."""
    return " ".join(text.split())


def test_every_cell_of_a_row() -> None:
    measured = record({"single": (8.0, 8.2, 9.0), "mirrored:2": (16.4, 16.0, 17.0)})
    single, mirrored = table.rows(measured)
    assert single == ("single", "1 cpu", "8.20 s", "1.00", "3,333", "1.00 s", "600 MiB", "0.8800", "-", "-")
    assert mirrored == (
        "mirrored:2",
        "2 virtual cpu",
        "16.4 s",
        "2.00",
        "1,558",
        "1.00 s",
        "600 MiB",
        "0.8800",
        "-",
        "-",
    )
    assert table.headings(measured).result == "test acc"


def test_a_strategy_without_a_result_is_in_the_table() -> None:
    failure = Failure("mirrored:2, run 1 of 1", "mirrored:2", "it ended")
    failed = record({"single": (8.0,), "mirrored:2": (), "mirrored:4": ()}, failures=(failure,))
    assert [row.devices for row in table.rows(failed)] == ["1 cpu", "failed", "not run"]


def test_a_regression_shows_its_test_loss_and_no_test_rows_a_dash() -> None:
    base = record({"single": (8.0,)})
    regression = replace(base, trials=(trial("single", 0, 8.0, metrics={"loss": 0.4321}),))
    assert table.headings(regression).result == "test loss"
    assert table.rows(regression)[0].result == "0.4321"
    untested = replace(base, trials=(trial("single", 0, 8.0, metrics={}),))
    assert table.rows(untested)[0].result == "-"


def test_the_footer_says_what_was_trained_and_that_the_data_are_a_sample() -> None:
    note = "The data are the sample that ships with Dure, not the whole of fashion_mnist."
    shown = flat(table.text(record({"single": (8.0, 8.1)}, facts=Facts(10_000, 2_000, "784 float32", note))))
    assert "Trained: the seed network on fashion_mnist, 10,000 rows; 10 epochs of batches of 25." in shown
    assert "Median of 2 runs of each" in shown
    assert note in shown


def test_a_strategy_that_ran_less_often_is_named() -> None:
    shown = flat(table.text(record({"single": (8.0, 8.1), "mirrored:2": (9.0, 9.1), "multi-worker:2": (32.0,)})))
    assert "Median of 2 runs of each, the order turned around in between, multi-worker:2 of 1; ratio" in shown


def test_what_comes_before_the_training_is_told_apart() -> None:
    base = record({"single": (8.0,), "multi-worker:2": (30.0,)})
    ready = {"single": 3.5, "multi-worker:2": 5.25}
    measured = replace(base, trials=tuple(replace(run, ready_s=ready[run.strategy]) for run in base.trials))
    words = "Starting, importing and reading data is not in the times: 3.50 s (single) to 5.25 s (multi-worker:2)."
    assert words in flat(table.text(measured))
    assert "Starting" not in table.text(base)


def test_what_was_predicted_stands_beside_what_was_measured() -> None:
    times = {"single": (8.0, 8.2), "mirrored:1": (8.0, 8.2), "mirrored:2": (16.0, 16.4), "multi-worker:2": (33.0,)}
    said = {"single": 8.3, "mirrored:1": 8.3, "mirrored:2": 12.0}
    measured = replace(foretold(record(times), said), unpredicted="multi-worker:2 could not be predicted: no Gloo")
    assert [row.predicted for row in table.rows(measured)] == ["8.30 s", "8.30 s", "12.0 s", "-"]
    assert [row.error for row in table.rows(measured)] == ["+2 %", "+2 %", "-26 %", "-"]
    shown = table.text(measured)
    assert shown.splitlines()[0].split() == [
        "strategy",
        "devices",
        "time",
        "ratio",
        "steps/s",
        "start",
        "memory",
        "test",
        "acc",
    ]
    assert "multi-worker:2  2 processes    33.0 s   4.07      750  1.00 s  600 MiB    0.8800" in shown
    below = shown.split("\n\n")[1].splitlines()
    assert below[0] == "strategy        predicted    time  error  predicted step     step  error"
    assert below[4] == "mirrored:2         12.0 s  16.2 s  -26 %          458 µs   633 µs  -28 %"
    assert below[5] == "multi-worker:2          -  33.0 s      -               -  1.33 ms      -"
    assert "Predicted before the runs, from steps of one device and this machine's calibration." in flat(shown)
    assert "Not predicted: multi-worker:2 could not be predicted: no Gloo." in flat(shown)


def test_without_a_prediction_there_is_no_second_table() -> None:
    shown = table.text(record({"single": (8.0,)}))
    assert "predicted" not in shown
    assert "\n\n" not in shown


def test_without_any_result_the_footer_says_so() -> None:
    assert "Nothing was measured." in flat(table.text(record({"single": (), "mirrored:2": ()})))


@given(
    name=st.text(st.characters(codec="ascii", exclude_categories=["C", "Z"]), min_size=1, max_size=60),
    seconds=st.floats(1e-5, 1e6),
    devices=st.integers(1, 1024),
)
def test_no_line_is_longer_than_eighty_columns(name: str, seconds: float, devices: int) -> None:
    run = replace(trial("single", 0, seconds), strategy=name, devices=devices, virtual=True, step_s=seconds / 24_000)
    base = record({name: ()})
    settings = replace(base.settings, model="m" * 90, data=name)
    measured = replace(base, settings=settings, trials=(run,), forecasts=(Forecast(name, seconds * 3, seconds / 9),))
    assert max(len(line) for line in table.text(measured).splitlines()) <= table.WIDTH


def test_on_a_terminal_it_says_the_same_in_colours() -> None:
    measured = record({"single": (8.0, 8.2), "mirrored:2": (16.4, 16.0), "mirrored:4": ()})
    measured = foretold(measured, {"single": 8.1, "mirrored:4": 20.0})
    console = Console(width=80, force_terminal=True, color_system="standard", file=io.StringIO(), record=True)
    console.print(table.terminal(measured))
    shown = console.export_text(clear=False).splitlines()
    assert all(line in shown for line in table.text(measured).splitlines() if not line.startswith("--"))
    assert "\x1b[32msingle" in console.export_text(styles=True)
