"""Comparisons from end to end, in real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import dure
from dure.advise import bench, calibrate, child
from dure.advise.cause import replicas, split
from dure.cli import main
from dure.errors import DataError, SpecError
from unit.advise.processes import running, until
from unit.advise.records import MACHINE, trial
from unit.advise.test_trial import NETWORKS


@pytest.fixture
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of a user's, on the import path that fresh processes inherit."""
    (tmp_path / "compare_networks.py").write_text(NETWORKS)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of this test's own, which holds a calibration."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    calibrate.keep(replace(MACHINE, key=calibrate.known()))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring runs that are too short to say much, once each."""
    monkeypatch.setattr(bench, "PROBE_PASSES", 1)
    monkeypatch.setattr(bench, "PROBE_S", 0.05)


def test_a_mirror_is_rehearsed_and_taken_apart(networks: Path, short: None, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    y = np.argmax(x[:, :3], axis=1)
    result = dure.compare(
        "compare_networks:make",
        ((x, y), (x, y)),
        strategies=["mirrored:2"],
        epochs=2,
        batch_size=10,
        repeat=1,
        predict=False,
    )
    (trial,) = result.record.trials
    assert (trial.devices, trial.virtual, trial.steps) == (2, True, 8)
    assert trial.ready_s > 0
    assert [str(probe.control) for probe in result.record.probes] == [
        "single at 10 rows",
        "single at 5 rows",
        "mirrored:1 at 5 rows",
        "mirrored:2 at 10 rows without exchange",
        "mirrored:2 at 10 rows",
    ]
    assert result.record.facts.rows == 40
    assert "2 virtual cpu" in result.table
    assert "arrays [40, 4]" in result.table
    assert "there is nothing to set it against" in result.verdict
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "[1/3] mirrored:2, run 1 of 1"
    assert lines[2].startswith("[2/3] measuring steps of 1 device, run 1 of 1 (about ")
    assert lines[3].startswith("  single at 10 rows: ")
    assert lines[6].startswith("[3/3] measuring steps of 2 devices, run 1 of 1 (about ")
    assert result.record.forecasts == ()


def test_several_processes_are_predicted_trained_and_taken_apart(
    networks: Path, calibrated: None, short: None, capsys: pytest.CaptureFixture[str]
) -> None:
    result = dure.compare(
        "compare_networks:make",
        "compare_networks:read",
        strategies="multi-worker:2",
        epochs=2,
        batch_size=20,
        repeat=1,
    )
    (several,) = result.record.trials
    assert (several.devices, several.kind, several.virtual, several.steps) == (2, "cpu", True, 6)
    assert [str(probe.control) for probe in result.record.probes][-2:] == [
        "multi-worker:2 at 20 rows without exchange",
        "multi-worker:2 at 20 rows",
    ]
    said = result.to_dict()["forecasts"]
    assert [forecast["strategy"] for forecast in said] == ["multi-worker:2"]
    assert said[0]["seconds"] > said[0]["step_s"] > 0
    assert "2 processes" in result.table
    assert "predicted" in result.table
    assert split(result.record, "multi-worker:2") is not None
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "  measuring one device at 10, 20 rows"
    assert "[3/3] measuring steps of 2 processes, run 1 of 1" in "\n".join(lines)


def test_without_a_calibration_nothing_is_predicted_and_the_comparison_goes_on(
    networks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(networks / "cache"))
    monkeypatch.setattr(calibrate, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(calibrate, "TEAMS", (2,))
    result = dure.compare("compare_networks:make", "compare_networks:read", strategies="single", epochs=1, repeat=1)
    assert result.record.forecasts == ()
    assert result.record.unpredicted.startswith("a process was to measure this machine, and it was not done after")
    assert len(result.record.trials) == 1
    assert "Not predicted: a process was to measure this machine" in " ".join(result.table.split())
    assert "  nothing is predicted: a process was to measure this machine" in capsys.readouterr().err


def test_what_is_settled_after_one_run_is_not_run_again(networks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = bench.Settings("m", "d", ("single", "mirrored:1", "mirrored:2"), batch_size=25, epochs=1, repeat=2)
    lines: list[str] = []
    with TemporaryDirectory() as folder:
        asked = bench.Plan(settings, {}, folder, "")  # type: ignore[arg-type]
        measuring = bench._Bench(asked, lines.append)
        measuring.trials = [trial("single", 0, 8.0), trial("mirrored:1", 0, 15.9), trial("mirrored:2", 0, 16.1)]
        again = {run.strategy: measuring._hopeless(run) for run in measuring.runs if run.number and not run.controls}
        assert again == {
            "single": "",
            "mirrored:1": "",
            "mirrored:2": "it took 2.0 times as long as single in its first run",
        }


def test_it_works_twice_and_leaves_the_devices_of_this_process_alone(networks: Path) -> None:
    environment = dict(os.environ)
    for repeat in (1, 2):
        result = dure.compare(
            "compare_networks:make",
            "compare_networks:read",
            strategies="single",
            epochs=1,
            batch_size=25,
            repeat=repeat,
            predict=False,
            progress=False,
        )
        assert [trial.devices for trial in result.record.trials] == [1] * repeat
        assert result.record.command == (
            "dure.compare('compare_networks:make', 'compare_networks:read', strategies='single', epochs=1, "
            f"batch_size=25, repeat={repeat}, sync_every='step', seed=0, predict=False)"
        )
    # The same seed trains the same network, in whichever process.
    losses = {trial.metrics["loss"] for trial in result.record.trials}
    assert len(losses) == 1
    assert dict(os.environ) == environment
    assert len(dure.devices()) == 8


def test_a_strategy_that_dies_is_named_and_not_tried_again(networks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = dure.compare(
        "compare_networks:leave", "compare_networks:read", strategies="mirrored:1", repeat=2, epochs=1, predict=False
    )
    (failure,) = result.record.failures
    assert failure.what == "mirrored:1, run 1 of 2"
    assert failure.tail[-1] == "the last words"
    assert "No verdict: `mirrored:1`" in result.verdict
    assert "failed" in result.table
    shown = capsys.readouterr().err
    assert "  failed: its process ended with code 3 and sent no result\n" in shown
    assert "[2/4] mirrored:1, run 2 of 2: left out, because it failed before" in shown
    assert "[4/4] measuring steps of 1 device, run 2 of 2: left out, because no strategy that it explains" in shown


@pytest.mark.parametrize(
    ("model", "data", "error", "words"),
    [
        ("wrong", "read", SpecError, r"`compare_networks:wrong` was called without arguments and raised KeyError"),
        ("make", "other", SpecError, r"`compare_networks:other` was asked for the data and returned a str"),
    ],
)
def test_what_no_strategy_could_train_ends_the_comparison(
    networks: Path, model: str, data: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        dure.compare(f"compare_networks:{model}", f"compare_networks:{data}", strategies="single", progress=False)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"strategies": "single,mirored:2"}, SpecError, r"strategy `mirored:2` is not known. Did you mean"),
        ({"batch_size": 0}, SpecError, "batch_size is 0"),
        ({"model": lambda: None}, SpecError, "which a fresh process cannot import"),
        ({"data": (np.ones(3), np.ones(2))}, DataError, "have 3, 2 rows"),
    ],
)
def test_what_is_wrong_as_written_starts_no_process(
    arguments: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        dure.compare(**arguments)  # type: ignore[arg-type]


def test_a_script_that_calls_itself_is_told_where_to_put_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(child.INSIDE, "1")
    with pytest.raises(SpecError, match=r'Put the call under `if __name__ == "__main__":`'):
        dure.compare()


def test_runs_are_turned_around_in_every_other_repeat() -> None:
    strategies = ("single", "mirrored:1", "multi-worker:2")
    settings = bench.Settings("m", "d", strategies, batch_size=25, epochs=1, repeat=3)
    runs = list(bench._order(settings))
    trained = [run.strategy for run in runs if not run.controls]
    assert trained == [*strategies, *strategies[::-1], *strategies]
    measured = [[str(control) for control in run.controls] for run in runs if run.controls]
    one = ["single at 25 rows", "mirrored:1 at 25 rows", "single at 13 rows", "mirrored:1 at 13 rows"]
    two = ["multi-worker:2 at 25 rows without exchange", "multi-worker:2 at 25 rows"]
    assert measured == [one, two, two[::-1], one[::-1]]


def test_the_command_prints_one_document_and_writes_the_report(
    networks: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = networks / "report.html"
    words = ["--model", "compare_networks:make", "--data", "compare_networks:read", "--strategies", "single"]
    words = ["compare", *words, "--epochs", "1", "--repeat", "1", "--out", str(report), "--json", "--no-predict"]
    monkeypatch.setattr(sys, "argv", ["dure", *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        main(words)
    shown = capsys.readouterr()
    assert ended.value.code == 0, shown.err
    document = json.loads(shown.out)
    assert document["table"][0]["strategy"] == "single"
    assert document["verdict"]["best"] == "single"
    assert document["command"].startswith("dure compare --model compare_networks:make")
    assert "How to measure it again" in report.read_text()
    assert f"report: {report}" in shown.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--strategies", "mirored:2"], "SpecError: strategy `mirored:2` is not known. Did you mean `mirrored`?"),
        (["--out", "nowhere/report.html"], "SpecError: the report was to be written to nowhere/report.html"),
    ],
)
def test_the_command_refuses_before_it_measures(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        main(["compare", *words])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("strategy", ["single", "multi-worker:2"])
def test_ctrl_c_ends_the_processes_and_prints_what_there_is(networks: Path, strategy: str) -> None:
    command = [sys.executable, "-c", "from dure.cli import main; main()", "compare"]
    words = [
        "--model",
        "compare_networks:hang",
        "--data",
        "compare_networks:read",
        "--no-predict",
        "--strategies",
        strategy,
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [*command, *words],
        cwd=networks,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(f"[1/{2 if strategy == 'single' else 6}] {strategy}, run 1 of 2")
        until(lambda: len(running(networks)) >= replicas(strategy))
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=30)
    assert process.returncode == 130, error
    assert re.search(rf"{strategy} +not run", out)
    assert running(networks) == []
    assert "this is what was measured so far" in out.replace("\n", " ")
    assert not (networks / "dure-report.html").exists()
