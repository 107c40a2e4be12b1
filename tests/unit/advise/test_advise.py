"""Advice from end to end: one device measured in fresh processes, this machine's calibration made by hand."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import dure
from dure.advise import calibrate
from dure.advise.advise import Advice, _quicker, _sizes
from dure.cli import main
from dure.errors import SpecError
from unit.advise.outlooks import EXAMPLES, SEED, calibration, outlook
from unit.advise.test_trial import NETWORKS


@pytest.fixture
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of a user's, on the import path that fresh processes inherit; and a calibration, already kept."""
    (tmp_path / "advise_networks.py").write_text(NETWORKS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    calibrate.keep(calibration(key=calibrate.known()))
    return tmp_path


MODEL, DATA = "advise_networks:make", "advise_networks:read"


def test_one_device_is_measured_and_the_rest_predicted(networks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = dict(os.environ)
    advice = dure.advise(MODEL, DATA, epochs=2, batch_size=10)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[0].startswith("measuring one device at 3, 10, 512 rows")
    assert isinstance(advice, Advice)
    assert [point.size for point in advice.outlook.network.points] == [3, 10, 512]
    assert len(advice.outlook.network.points_one) == 3
    assert advice.outlook.asked.strategies == ("single", "mirrored:2", "mirrored:4", "multi-worker:2")
    assert advice.outlook.facts.rows > 0
    assert max(len(line) for line in advice.table.splitlines()) <= 80
    assert advice.verdict.startswith("Use ")
    assert str(advice) == f"{advice.table}\n\n{advice.verdict}"
    assert "<table>" in advice._repr_html_()
    assert advice.outlook.command == (
        "dure.advise('advise_networks:make', 'advise_networks:read', strategies=['single', 'mirrored:2', 'mirrored:4', "
        "'multi-worker:2'], epochs=2, batch_size=10, repeat=1, seed=0, sync_every=['step', 10, 100, 'epoch'])"
    )
    path = advice.save(networks / "advice.html")
    assert "What would change the answer" in path.read_text()
    assert dict(os.environ) == environment


def test_the_command_prints_words_or_json(
    networks: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = networks / "advice.html"
    words = ["advise", "--model", MODEL, "--data", DATA, "--batch-size", "10", "--epochs", "1"]
    words += ["--strategies", "mirrored:8,multi-worker:16", "--sync-every", "step,10", "--out", str(out)]
    words += ["--machines", str(EXAMPLES / "two-of-eight.toml")]
    with pytest.raises(SystemExit) as end:
        main([*words, "--json"])
    assert end.value.code == 0
    told = capsys.readouterr()
    plain = json.loads(told.out)
    assert f"report: {out}" in told.err
    assert [(line["strategy"], line["sync_every"]) for line in plain["lines"]] == [
        ("single", "step"),
        ("mirrored:8", "step"),
        ("mirrored:8", 10),
        ("multi-worker:16", "step"),
        ("multi-worker:16", 10),
    ]
    assert plain["verdict"]["best"] in {"single", "mirrored:8", "multi-worker:16"}
    assert "A reckoning, not a measurement: two-of-eight" in plain["verdict"]["text"]
    assert plain["site"]["name"] == "two-of-eight"
    line = plain["lines"][1]
    assert line["steps_per_s"] == pytest.approx(1 / line["step_s"])
    assert sum(line["causes_s"].values()) + plain["lines"][0]["step_s"] / 8 == pytest.approx(line["step_s"])


def test_what_is_wrong_is_refused_before_anything_is_measured(
    networks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = [
        ({"strategies": "single,mirored:2"}, "strategy `mirored:2` is not known. Did you mean"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"repeat": 0}, "repeat is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"sync_every": "often"}, "sync_every is 'often'"),
        ({"machines": networks / "none.toml"}, "asked for the machines of "),
        ({"model": lambda: None}, "which a fresh process cannot import"),
    ]
    for arguments, words in wrong:
        with pytest.raises(SpecError, match=words):
            dure.advise(**arguments)  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""


def test_a_model_that_cannot_be_made_is_refused(networks: Path) -> None:
    with pytest.raises(SpecError, match=r"`advise_networks:wrong` was called without arguments and raised KeyError"):
        dure.advise("advise_networks:wrong", DATA, progress=False)


def test_a_script_that_calls_it_while_it_is_measured_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURE_TRIAL", "1")
    with pytest.raises(SpecError, match=r"`dure.advise` was called by a process that itself measures for it"):
        dure.advise()


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_measured(
    networks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["advise", "--out", str(networks / "nowhere" / "r.html")])
    assert end.value.code == 2
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("batch_size", "strategies", "sizes"),
    [
        (25, ("single", "mirrored:4"), (7, 25, 512)),
        (1024, ("single", "mirrored:2"), (512, 1024, 2048)),
        (8192, ("single", "mirrored:2"), (4096, 8192)),
        (1, ("single", "mirrored:2"), (1, 512)),
        (8192, ("single",), (4096, 8192)),
    ],
)
def test_where_one_device_is_measured(batch_size: int, strategies: tuple[str, ...], sizes: tuple[int, ...]) -> None:
    assert _sizes(batch_size, strategies) == sizes


def test_of_several_measurements_the_quicker_counts() -> None:
    slow = replace(SEED, points=tuple(p._replace(seconds=2 * p.seconds) for p in SEED.points), first_step_s=0.5)
    found = _quicker(slow, SEED)
    assert (found.points, found.points_one, found.first_step_s) == (SEED.points, SEED.points_one, 0.5)
    assert _quicker(SEED, replace(SEED, points=SEED.points[:2])).points == SEED.points[:2]


def test_it_is_plain_values() -> None:
    plain = json.loads(json.dumps(Advice(outlook()).to_dict(), allow_nan=False))
    assert plain["lines"][0]["limit"] is None
    assert plain["lines"][1]["limit"] == "the exchange"
    assert plain["lines"][1]["pays_at_batches"] == []
    assert plain["verdict"]["best"] == "single"
    unknown = json.loads(json.dumps(Advice(outlook(here=calibration(between=()))).to_dict(), allow_nan=False))
    assert unknown["lines"][-1]["seconds"] is None
    assert unknown["lines"][-1]["causes_s"] is None
