"""Comparisons from end to end, in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dure
from dure.advise import bench, child
from dure.cli import main
from dure.errors import DataError, SpecError
from unit.advise.test_trial import NETWORKS


@pytest.fixture
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of a user's, on the import path that fresh processes inherit."""
    (tmp_path / "compare_networks.py").write_text(NETWORKS)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring runs that are too short to say much, once each."""
    monkeypatch.setattr(bench, "PROBE_PASSES", 1)
    monkeypatch.setattr(bench, "PROBE_S", 0.05)


def test_a_mirror_is_rehearsed_and_taken_apart(networks: Path, short: None, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    y = np.argmax(x[:, :3], axis=1)
    result = dure.compare(
        "compare_networks:make", ((x, y), (x, y)), strategies=["mirrored:2"], epochs=2, batch_size=10, repeat=1
    )
    (trial,) = result.record.trials
    assert (trial.devices, trial.virtual, trial.steps) == (2, True, 8)
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
    assert lines[0] == "[1/6] mirrored:2, run 1 of 1"
    assert lines[2].startswith("[2/6] measuring single at 10 rows (about ")


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
            progress=False,
        )
        assert [trial.devices for trial in result.record.trials] == [1] * repeat
        assert result.record.command == (
            "dure.compare('compare_networks:make', 'compare_networks:read', strategies='single', epochs=1, "
            f"batch_size=25, repeat={repeat}, sync_every='step', seed=0)"
        )
    # The same seed trains the same network, in whichever process.
    losses = {trial.metrics["loss"] for trial in result.record.trials}
    assert len(losses) == 1
    assert dict(os.environ) == environment
    assert len(dure.devices()) == 8


def test_a_strategy_that_dies_is_named_and_not_tried_again(networks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = dure.compare(
        "compare_networks:leave", "compare_networks:read", strategies="mirrored:1", repeat=2, epochs=1
    )
    (failure,) = result.record.failures
    assert failure.what == "mirrored:1, run 1 of 2"
    assert failure.tail[-1] == "the last words"
    assert "No verdict: `mirrored:1`" in result.verdict
    assert "failed" in result.table
    shown = capsys.readouterr().err
    assert "  failed: its process ended with code 3 and sent no result\n" in shown
    assert "[2/6] mirrored:1, run 2 of 2: left out, because it failed before" in shown
    assert "[6/6] measuring single at 25 rows: left out, because no strategy that it explains gave a" in shown


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
    settings = bench.Settings("m", "d", ("single", "mirrored:1"), batch_size=25, epochs=1, repeat=3)
    runs = list(bench._order(settings))
    trained = [run.strategy for run in runs if run.control is None]
    assert trained == ["single", "mirrored:1", "mirrored:1", "single", "single", "mirrored:1"]
    measured = [str(run.control) for run in runs if run.control is not None]
    assert measured == ["single at 25 rows", "mirrored:1 at 25 rows", "mirrored:1 at 25 rows", "single at 25 rows"]


def test_the_command_prints_one_document_and_writes_the_report(
    networks: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = networks / "report.html"
    words = ["--model", "compare_networks:make", "--data", "compare_networks:read", "--strategies", "single"]
    words = ["compare", *words, "--epochs", "1", "--repeat", "1", "--out", str(report), "--json"]
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


def test_ctrl_c_ends_the_processes_and_prints_what_there_is(networks: Path) -> None:
    command = [sys.executable, "-c", "from dure.cli import main; main()", "compare"]
    words = ["--model", "compare_networks:hang", "--data", "compare_networks:read", "--strategies", "single"]
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
        assert process.stderr.readline().startswith("[1/2] single, run 1 of 2")
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=30)
    assert process.returncode == 130, error
    assert "single    not run" in out
    assert "this is what was measured so far" in out.replace("\n", " ")
    assert not (networks / "dure-report.html").exists()
