from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

import project

CONFIGURATION = tomllib.loads((project.ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
CONTRACTS = {contract["id"]: contract for contract in CONFIGURATION["contracts"]}

FLOORS = """
cli
advise
train
strategy
models | checkpoint | data | launch
session
net
run
plan
graph
cluster
devices
_jax | clock
errors
"""
PURE = ["devices.names", "cluster.spec", "graph.ir", "graph.verify", "plan", "run.steps"]


def lint(folder: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--cache-dir", cache],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_import_goes_down(tmp_path: Path) -> None:
    outcome = lint(project.ROOT, tmp_path)
    assert outcome.returncode == 0, outcome.stdout


def test_the_floors_are_those_of_the_design() -> None:
    layers = [layer.replace("(", "").replace(")", "") for layer in CONTRACTS["floors"]["layers"]]
    assert layers == FLOORS.split("\n")[1:-1]


def test_every_pure_module_that_exists_is_under_the_contract() -> None:
    existing = []
    for name in PURE:
        path = project.PACKAGE.joinpath(*name.split("."))
        if path.is_dir() or path.with_suffix(".py").is_file():
            existing.append(f"dure.{name}")
    assert CONTRACTS["pure"]["source_modules"] == existing


def test_only_commands_import_the_root() -> None:
    graph = grimp.build_graph("dure", cache_dir=None)
    importers = graph.find_modules_that_directly_import("dure")
    assert {name for name in importers if not name.startswith("dure.cli")} == set()


def test_nobody_inside_goes_through_a_public_door() -> None:
    graph = grimp.build_graph("dure", cache_dir=None)
    # The root names it for type checkers.
    assert graph.find_modules_that_directly_import("dure.callbacks") <= {"dure"}


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("errors.py", "import dure.clock"),
        ("clock.py", "import dure._jax"),
        ("devices/names.py", "import threading"),
        ("devices/names.py", "import grpc"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, module: str, line: str) -> None:
    package = tmp_path / "dure"
    for path in project.modules():
        copy = package / path.relative_to(project.PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    (tmp_path / "pyproject.toml").write_text((project.ROOT / "pyproject.toml").read_text())
    assert lint(tmp_path, tmp_path / "cache").returncode == 0
    wrong = package / module
    wrong.write_text(f"{wrong.read_text()}\n{line}\n")
    outcome = lint(tmp_path, tmp_path / "cache")
    assert outcome.returncode == 1, outcome.stdout
    assert line.removeprefix("import ").split(".")[0] in outcome.stdout
