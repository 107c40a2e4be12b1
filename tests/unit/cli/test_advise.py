from __future__ import annotations

import re
import sys

import pytest

from dure.advise.advise import Advice
from dure.advise.machines import read
from dure.cli import advise as command
from unit.advise.outlooks import EXAMPLES, LARGE, outlook


@pytest.mark.parametrize(
    "asked",
    [
        outlook(),
        outlook(LARGE, site=read(EXAMPLES / "two-of-eight.toml"), strategies=("single", "mirrored:8"), batch_size=1024),
        outlook(LARGE, site=read(EXAMPLES / "gpu-and-cpu.toml"), strategies=("single",), batch_size=256),
    ],
    ids=["seed", "two-of-eight", "gpu-and-cpu"],
)
def test_table_and_words_fit_80_columns(asked, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    advice = Advice(asked)
    command._show(advice)
    told = capsys.readouterr().out
    assert max(len(line) for line in told.splitlines()) <= 80
    assert told.startswith(advice.table)
    assert " ".join(told[len(advice.table) :].split()) == " ".join(advice.verdict.split())


def test_on_a_terminal_the_same_words_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    advice = Advice(outlook())
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    command._show(advice)
    told = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert "".join(told.split()).endswith("".join(advice.verdict.split()))
    assert max(len(line) for line in told.splitlines()) <= 80
