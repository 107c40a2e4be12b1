"""What must stand in no file: promises, paths of one machine, addresses of registries."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import project

SELF = project.name(Path(__file__))
FORBIDDEN = {
    "a promise": re.compile(r"\b(TODO|FIXME|XXX)\b|raise NotImplemented"),
    "a path of one machine": re.compile(r"(?<![\w.~])/(work|root|home/\w+|Users/\w+|opt/\w+)/"),
    "the address of a registry": re.compile(
        r"pypi\.(org|python)|pythonhosted|--?(extra-)?index-url|find-links|file:///(opt|mnt|srv)/|artifactory|devpi"
    ),
}
VAGUE = {"util", "utils", "helper", "helpers", "common", "misc", "tools", "base_utils"}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in project.texts()
        if name != SELF
        for number, line in enumerate(text.splitlines(), 1)
        if FORBIDDEN[what].search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a promise", "# TODO: later"),
        ("a promise", "raise NotImplementedError"),
        ("a path of one machine", "open('/home/kim/data.csv')"),
        ("the address of a registry", "pip install --index-url https://host/simple"),
    ],
)
def test_what_is_forbidden_is_found(what: str, line: str) -> None:
    assert FORBIDDEN[what].search(line)


def test_modules_say_what_they_are() -> None:
    assert [project.name(path) for path in project.modules() if path.stem in VAGUE] == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [project.name(path) for path in project.modules() if not (project.parsed(path).body[0:1])]
    assert silent == []


def test_the_constraints_name_a_version_for_every_dependency() -> None:
    table = tomllib.loads((project.ROOT / "pyproject.toml").read_text())["project"]
    lines = (project.ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    extras = table["optional-dependencies"]
    needs = [*table["dependencies"], *extras["keras"], *extras["data"], *extras["tensorboard"], *extras["dev"]]
    for need in map(Requirement, needs):
        if need.name != "dure":
            assert need.specifier.contains(pins[canonicalize_name(need.name)]), need
