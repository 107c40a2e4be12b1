from __future__ import annotations

import pytest

from dure.cli import main


def test_parameter_servers_are_refused_clearly(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["run", "--ps", "1", "--workers", "2", "train.py"])
    assert end.value.code == 2
    assert "SpecError: asked for --ps 1; this version of Dure has no parameter servers" in capsys.readouterr().err


def test_a_script_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["run", "none.py", "--workers", "3"])
    assert end.value.code == 2
    assert "SpecError: asked for the script none.py" in capsys.readouterr().err
