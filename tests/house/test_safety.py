"""What the package must never do: run what it reads, or start a shell."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import project

MODULES = {"pickle", "cloudpickle", "dill", "shelve", "marshal", "imp", "telnetlib"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
# (the last name of what it is called on, the method)
METHODS = {
    ("yaml", "load"),
    ("torch", "load"),
    ("os", "system"),
    ("os", "popen"),
    ("tempfile", "mktemp"),
    ("pd", "read_pickle"),
}
OPTIONS = {"allow_pickle", "shell"}


def dangers(module: ast.Module) -> list[str]:
    """Returns the forbidden imports and calls of a module, in words."""
    found = []
    for node in ast.walk(module):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        found.extend(f"line {node.lineno}: imports {name}" for name in names if name.split(".")[0] in MODULES)
        if isinstance(node, ast.Call):
            found.extend(f"line {node.lineno}: {text}" for text in _call_dangers(node))
    return found


def _call_dangers(call: ast.Call) -> list[str]:
    found = []
    if isinstance(call.func, ast.Name) and call.func.id in BUILTINS:
        found.append(f"calls {call.func.id}")
    if isinstance(call.func, ast.Attribute) and (project.last_name(call.func.value), call.func.attr) in METHODS:
        found.append(f"calls {project.last_name(call.func.value)}.{call.func.attr}")
    for keyword in call.keywords:
        said_no = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        if keyword.arg in OPTIONS and not said_no:
            found.append(f"passes {keyword.arg}")
    return found


@pytest.mark.parametrize("path", project.modules(), ids=project.name)
def test_nothing_dangerous_is_called(path: Path) -> None:
    assert dangers(project.parsed(path)) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from cloudpickle import loads",
        "import marshal as m",
        "eval(text)",
        "exec(text)",
        "yaml.load(text)",
        "numpy.load(path, allow_pickle=True)",
        "os.system(command)",
        "subprocess.run(command, shell=True)",
        "subprocess.run(command, shell=flag)",
    ],
)
def test_a_danger_is_found(line: str) -> None:
    assert len(dangers(ast.parse(line))) == 1


SAFE = ["model.compile(optimizer)", "numpy.load(path, allow_pickle=False)", "json.load(file)"]


@pytest.mark.parametrize("line", SAFE)
def test_what_is_safe_passes(line: str) -> None:
    assert dangers(ast.parse(line)) == []
