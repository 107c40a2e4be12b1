"""No message without a value: an error of Dure shows what was asked and what is so."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import project
from dure import errors

OURS = {name for name in errors.__all__ if name.endswith("Error")}

# Of Python's own, only what its protocols ask for (a missing attribute or key, the end of an iteration).
FOREIGN = {
    "Exception",
    "BaseException",
    "ValueError",
    "RuntimeError",
    "OSError",
    "IOError",
    "TimeoutError",
    "AssertionError",
    "Not" + "ImplementedError",
    "ArithmeticError",
    "LookupError",
    "ImportError",
}
SHORTEST = 20
BRACE = re.compile(r"\{[a-z_][\w.\[\]()]*(![rs])?(:[^{}]*)?\}")


def faults(module: ast.Module) -> list[str]:
    """Returns what is wrong with the errors that a module raises, in words."""
    found = []
    caught = caught_names(module)
    inside = {
        id(node)
        for function in project.functions(module)
        if function.name.startswith("_")
        for node in ast.walk(function)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and project.last_name(node.func) in OURS:
            name = project.last_name(node.func)
            if not node.args:
                if not any(keyword.arg is None for keyword in node.keywords):
                    found.append(f"line {node.lineno}: {name} has no message")
                continue
            found.extend(f"line {node.lineno}: {name} {fault}" for fault in message_faults(node.args[0]))
        elif isinstance(node, ast.Raise) and node.exc is not None:
            kind = project.last_name(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
            # A private function may signal to its own module, which makes one of our errors of it.
            if kind in FOREIGN and not (id(node) in inside and kind in caught):
                found.append(f"line {node.lineno}: raises {kind}, which is none of dure.errors")
            elif kind in OURS and not isinstance(node.exc, ast.Call):
                found.append(f"line {node.lineno}: raises a bare {kind}")
    return found


def caught_names(module: ast.Module) -> set[str]:
    """Returns the names of the exceptions that a module catches."""
    handlers = (node for node in ast.walk(module) if isinstance(node, ast.ExceptHandler) and node.type)
    return {project.last_name(node) for handler in handlers for node in ast.walk(handler.type)}


def message_faults(message: ast.expr) -> list[str]:
    """Returns what is wrong with the first argument of an error."""
    pieces = [node.value for node in ast.walk(message) if isinstance(node, ast.Constant)]
    text = "".join(piece for piece in pieces if isinstance(piece, str))
    computing = ast.FormattedValue | ast.Call | ast.Name | ast.Attribute
    found = []
    # A line to write, in backticks, is worth a value.
    if not any(isinstance(node, computing) for node in ast.walk(message)) and "`" not in text:
        found.append(f"shows no value: {text!r}")
    if isinstance(message, ast.JoinedStr | ast.Constant | ast.BinOp) and len(text) < SHORTEST:
        found.append(f"says too little: {text!r}")
    # `.format` fills its braces; nobody else does.
    formats = isinstance(message, ast.Call) and project.last_name(message.func) == "format"
    if not formats and (unfilled := BRACE.search(text)):
        found.append(f"has an unfilled brace: {unfilled.group()}")
    return found


@pytest.mark.parametrize("path", project.modules(), ids=project.name)
def test_every_error_shows_a_value(path: Path) -> None:
    assert faults(project.parsed(path)) == []


def test_exceptions_are_defined_in_one_place() -> None:
    # A signal between modules is no answer to a caller: not called an error, and caught in the package.
    caught = set().union(*(caught_names(project.parsed(path)) for path in project.modules()))
    elsewhere = [
        f"{project.name(path)}: {node.name}"
        for path in project.modules()
        if path.name != "errors.py"
        for node in ast.walk(project.parsed(path))
        if isinstance(node, ast.ClassDef)
        and any(project.last_name(base) in OURS | FOREIGN for base in node.bases)
        and (node.name.endswith("Error") or node.name not in caught)
    ]
    assert elsewhere == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("raise SpecError('the batch size is wrong, mend it')", "shows no value"),
        ("raise SpecError('batch size {size} is wrong, mend it')", "unfilled brace"),
        ("raise SpecError(f'a {b}' '{size} is wrong, mend it please')", "unfilled brace"),
        ("raise errors.DataError(f'bad {x}')", "says too little"),
        ("raise SpecError()", "has no message"),
        ("raise SpecError", "bare"),
        ("raise ValueError(f'batch size {size} is wrong, mend it')", "none of dure.errors"),
        ("error = StateError('asked for what is not there')", "shows no value"),
    ],
)
def test_a_poor_error_is_found(line: str, fault: str) -> None:
    assert any(fault in found for found in faults(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "raise SpecError(f'batch size {size} is below 1; give at least 1')",
        "raise SpecError('asked for ' + name + ', which is not there')",
        "raise SpecError('batch size {} is below 1'.format(size))",
        "raise SpecError(message)",
        "raise kind(text) from error",
        "raise AttributeError(name)",
        "raise",
    ],
)
def test_a_good_error_passes(line: str) -> None:
    assert faults(ast.parse(line)) == []
