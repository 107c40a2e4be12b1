from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import dure
from dure import cli
from dure.errors import DeadlineError

DURE = Path(sys.executable).with_name("dure")


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    return int(end.value.code or 0)


@pytest.fixture
def add_command(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[..., None]], None]:
    """Adds a command for the length of a test, as a module of `dure.cli` does."""

    def add(name: str, function: Callable[..., None]) -> None:
        module = ModuleType(f"dure.cli.{name}")
        setattr(module, name, function)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(cli.COMMANDS, name, "A command of a test.")

    return add


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    told = capsys.readouterr().out
    assert all(name in told for name in cli.COMMANDS)


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, "--help") == 0
    assert f"dure {name} [OPTIONS]" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_the_short_help_is_the_first_line_of_the_long_one(name: str) -> None:
    command = cli.load(name)
    assert (command.help or "").strip().split("\n")[0] == cli.COMMANDS[name]


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 2
    assert "Commands" in "".join(capsys.readouterr())


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"dure {dure.__version__}\n"


def test_a_typing_error_shows_near_misses(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    monkeypatch.setenv("COLUMNS", "200")
    assert run("compar") == 2
    told = capsys.readouterr()
    assert "No such command `compar`. Did you mean `compare`? There are: advise, compare, devices, run." in told.err
    assert told.out == ""


def test_an_error_of_dure_is_one_message(add_command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise DeadlineError("no answer from /job:ps/task:0 within 5 s; start it again", task="/job:ps/task:0")

    add_command("fail", fail)
    assert run("fail") == 2
    told = capsys.readouterr()
    assert told.err == "DeadlineError: no answer from /job:ps/task:0 within 5 s; start it again\n"
    assert told.out == ""


@pytest.mark.parametrize("asked", ["option", "variable"])
def test_the_way_of_an_error_is_shown_when_asked(
    asked: str,
    add_command: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise DeadlineError("no answer from /job:ps/task:0 within 5 s; start it again")

    add_command("fail", fail)
    if asked == "variable":
        monkeypatch.setenv("DURE_TRACEBACK", "1")
    assert run(*(["--traceback"] if asked == "option" else []), "fail") == 2
    told = capsys.readouterr().err
    assert told.startswith("Traceback (most recent call last):")
    assert f'File "{__file__}"' in told
    assert "DeadlineError: no answer from /job:ps/task:0" in told


def test_an_error_of_the_program_itself_is_not_hidden(add_command: Callable[..., None]) -> None:
    def fail() -> None:
        raise ZeroDivisionError("1 by 0")

    add_command("fail", fail)
    with pytest.raises(ZeroDivisionError):
        cli.main(["fail"])


def test_an_interrupt_ends_cleanly(add_command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)

    add_command("interrupted", interrupted)
    assert run("interrupted") == 130
    told = capsys.readouterr()
    assert told.err == "\nInterrupted.\n"
    assert told.out == ""


def test_the_installed_command_answers() -> None:
    outcome = subprocess.run(
        [DURE, "--version"], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "80"}
    )
    assert outcome.stdout == f"dure {dure.__version__}\n"
