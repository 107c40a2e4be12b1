"""What `make` says and does before anything is installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import project

OLD = """#!/bin/sh
case "$1" in
--version) echo "Python 3.9.2" ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((project.ROOT / name).read_text())
    return tmp_path


def make(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # Of an outer `make`, nothing: its options would be taken for this one's.
    outer = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"}
    return subprocess.run(
        ["make", *words],
        cwd=checkout,
        env={name: value for name, value in os.environ.items() if name not in outer},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("target", ["compare", "test", "check", ".venv"])
def test_an_old_python_is_refused_in_words(checkout: Path, target: str) -> None:
    old = checkout / "old-python"
    old.write_text(OLD)
    old.chmod(0o755)
    outcome = make(checkout, target, f"PYTHON={old}")
    assert outcome.returncode == 2
    assert f"Dure needs Python 3.11 or later, and `{old}` is Python 3.9.2." in outcome.stderr
    assert f"make PYTHON=python3.12 {target}" in outcome.stderr
    assert not (checkout / ".venv").exists()


def test_no_python_is_refused_in_words(checkout: Path) -> None:
    outcome = make(checkout, "test", "PYTHON=no-such-python")
    assert outcome.returncode == 2
    assert "Dure needs Python 3.11 or later, and there is no `no-such-python`." in outcome.stderr


def test_an_environment_is_made_again_only_when_its_versions_change(checkout: Path) -> None:
    stamp = checkout / ".venv" / ".installed"
    stamp.parent.mkdir()
    stamp.touch()
    for name in ("pyproject.toml", "constraints.txt"):
        os.utime(checkout / name, (1, 1))
    assert "pip install" not in make(checkout, "--dry-run", ".venv").stdout
    os.utime(stamp, (2, 2))
    os.utime(checkout / "constraints.txt", (3, 3))
    assert "pip install" in make(checkout, "--dry-run", ".venv").stdout


def test_arguments_reach_the_commands(checkout: Path) -> None:
    plan = make(checkout, "--dry-run", "compare", "ARGS=--epochs 2").stdout
    assert ".venv/bin/dure compare --epochs 2" in plan
    plan = make(checkout, "--dry-run", "test", "ARGS=tests/unit").stdout
    assert ".venv/bin/pytest -n 2 --dist loadfile tests/unit" in plan
