"""The calibration of this machine: measured in fresh processes, kept, and read again only where it holds."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from dure.advise import calibrate, child
from dure.advise.calibrate import Answers, assembled, cache_file, could_keep, keep, kept, known
from dure.advise.readings import APART, ARRAYS, MANY, SIZES, STREAM, product, update
from dure.cli import devices as command
from dure.errors import StepError
from unit.advise.outlooks import calibration


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dure"


def test_the_command_measures_this_machine_prints_it_and_keeps_it(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.devices(calibrate=True)
    printed = capsys.readouterr()
    assert printed.err.startswith("measuring this machine: about 10 s, once;")
    lines = printed.out.splitlines()
    assert max(map(len, lines[2:])) <= 80
    assert [line.split("  ")[0] for line in lines if line[:1].isdigit()] == [
        "2 devices",
        "4 devices",
        "2 processes",
    ] * 2
    (file,) = cache.iterdir()
    assert lines[1] == f"Kept in {file}"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    # From now on it is read and not measured.
    found = calibrate.calibrate(pytest.fail)
    assert found.notes == ()
    assert (found.kind, found.cores) == ("cpu", int(found.key["cores"]))
    assert 0 < found.dispatch_s < 0.1
    assert min(found.flops_per_s, found.flops_per_s_one, found.bytes_per_s, found.bytes_per_s_one) > 1e6
    assert [team.number for team in (*found.inside, *found.between)] == [2, 4, 2]
    for team in (*found.inside, *found.between):
        assert min(team.computing, *(point.seconds for point in team.moving)) >= 1
        assert team.exchange.seconds(1, 2**24) >= team.exchange.seconds(1, 2**16) >= 0
    assert found.between[0].start_s > 0


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", '{"format": 0}', '{"format": 1}', '{"format": 1, "inside": [], "between": [], "notes": []}'],
)
def test_a_damaged_file_is_no_calibration(text: str) -> None:
    path = keep(calibration(key=known()))
    assert kept(known()) is not None
    path.write_text(text)
    assert kept(known()) is None


def test_a_file_that_holds_for_something_else_is_no_calibration() -> None:
    here = known()
    path = keep(calibration(key=here))
    other = calibration(key={**here, "devices": "another processor"})
    path.write_text(json.dumps(other.to_dict()))
    assert kept(here) is None
    assert kept({**here, "jax": "0.0.1"}) is None


def test_devices_cores_versions_and_settings_have_a_file_each(monkeypatch: pytest.MonkeyPatch) -> None:
    here = known()
    assert {"devices", "cores", "threads", "environment", "dure", "jax", "jaxlib"} == here.keys()
    files = {cache_file({**here, name: "other"}) for name in here}
    assert len({cache_file(here), *files}) == len(here) + 1
    # A number of virtual devices is no other machine; a number of threads is.
    monkeypatch.setenv("DURE_CONFIGURE", "cpu_devices=4")
    assert known() == here
    monkeypatch.setenv("DURE_CONFIGURE", "intra_op_threads=1")
    assert known() != here


def test_the_folder_is_below_home_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_file({}).parent == tmp_path / "cache" / "dure"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_file({}).parent == tmp_path / ".cache" / "dure"


def test_a_link_where_the_file_is_to_be_is_replaced_and_not_followed(cache: Path, tmp_path: Path) -> None:
    found = calibration(key=known())
    cache.mkdir(parents=True)
    target = tmp_path / "target"
    target.write_text("mine")
    cache_file(found.key).symlink_to(target)
    path = keep(found)
    assert target.read_text() == "mine"
    assert not path.is_symlink()
    assert os.listdir(cache) == [path.name]


def test_what_cannot_be_kept_is_said(cache: Path) -> None:
    cache.parent.write_text("no folder")
    said: list[str] = []
    assert not could_keep(calibration(key=known()), said.append)
    (line,) = said
    assert line.startswith("the calibration cannot be kept (")
    assert line.endswith("; it will be measured again next time")


def test_a_machine_that_cannot_be_measured_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(calibrate, "TEAMS", (2,))
    with pytest.raises(
        StepError, match=r"was to measure this machine, and it was not done after 0\.05 s and was ended"
    ):
        calibrate.measure(known(), lambda _: None)


def answered(**changes: Any) -> child.Ended:
    """Loops that all take a second, an exchange another."""
    times = {STREAM: 1.0, product("alone"): 1.0, product("together"): 1.0, update("branch", ARRAYS, SIZES[-1]): 1.0}
    for size in (*SIZES, *APART):
        times |= {update(how, ARRAYS, size): 1.0 for how in ("alone", "together")}
        times |= {update(how, ARRAYS, size): 2.0 for how in ("sum", "flat")}
    times |= {update("together", MANY, SIZES[0]): 1.0, update("sum", MANY, SIZES[0]): 3.0}
    return child.Ended(result={"kind": "cpu", "dispatch_s": 1e-5, "start_s": 0.5, "times": times, **changes})


HUNG = child.Ended(reason="it hung", tail=("a line",))
KEY = {"devices": "a processor"}


def test_what_was_answered_becomes_a_calibration() -> None:
    found = assembled(Answers({2: answered(), 4: answered()}, answered(), answered()), KEY, "cpu", 2)
    assert (found.device, found.kind, found.cores, found.dispatch_s, found.notes) == ("a processor", "cpu", 2, 1e-5, ())
    assert [team.number for team in (*found.inside, *found.between)] == [2, 4, 2]
    assert found.between[0].exchange.seconds(1, 2**12) == 1.0


def test_what_is_missing_is_a_note() -> None:
    found = assembled(Answers({2: answered(), 4: HUNG}, HUNG, HUNG), KEY, "cpu", 2)
    assert ([team.number for team in found.inside], found.between, found.flops_per_s_one) == ([2], (), 0.0)
    assert found.notes == (
        "4 devices could not be measured: it hung",
        "exchange between processes was not measured: it hung",
    )
    with pytest.raises(StepError, match="to measure this machine, and it hung; its last lines: a line"):
        assembled(Answers({2: HUNG}, answered(), None), KEY, "cpu", 2)


def test_accelerators_have_no_threads() -> None:
    found = assembled(Answers({1: answered()}, HUNG, None), KEY, "gpu", 8)
    assert (found.inside, found.flops_per_s_one, found.kind) == ((), 0.0, "gpu")
