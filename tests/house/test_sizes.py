from __future__ import annotations

import ast
from pathlib import Path

import pytest

import project

FILE_LINES = 400
FUNCTION_LINES = 60
CONSTRUCTOR_ARGUMENTS = 8
PUBLIC_METHODS = 12

EVERY_FILE = [path for path in project.files() if path.suffix == ".py"]


@pytest.mark.parametrize("path", EVERY_FILE, ids=project.name)
def test_files_are_short(path: Path) -> None:
    lines = len(project.code_lines(path.read_text()))
    assert lines <= FILE_LINES, f"{project.name(path)} has {lines} lines of code, at most {FILE_LINES}: split it"


def too_large(text: str) -> list[str]:
    """Returns what of a module is larger than the design allows, in words."""
    found = []
    code = project.code_lines(text)
    module = ast.parse(text)
    for function in project.functions(module):
        lines = len(code & set(range(function.lineno, (function.end_lineno or 0) + 1)))
        if lines > FUNCTION_LINES:
            found.append(f"{function.name} has {lines} lines of code, at most {FUNCTION_LINES}")
    for kind in (node for node in ast.walk(module) if isinstance(node, ast.ClassDef)):
        methods = [node for node in kind.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        public = [method.name for method in methods if not method.name.startswith("_")]
        if len(public) > PUBLIC_METHODS:
            found.append(f"{kind.name} has {len(public)} public methods, at most {PUBLIC_METHODS}")
        for method in methods:
            arguments = [*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs][1:]
            if method.name == "__init__" and len(arguments) > CONSTRUCTOR_ARGUMENTS:
                found.append(f"{kind.name} takes {len(arguments)} arguments, at most {CONSTRUCTOR_ARGUMENTS}")
    return found


@pytest.mark.parametrize("path", project.modules(), ids=project.name)
def test_functions_and_classes_are_small(path: Path) -> None:
    assert too_large(path.read_text()) == []


def test_only_code_is_counted() -> None:
    text = '''"""A docstring
of two lines."""

# A comment.


def f(
    x,
):
    """Another."""
    return """a
    string"""  # with a comment
'''
    assert sorted(project.code_lines(text)) == [7, 8, 9, 11, 12]


def test_what_is_too_large_is_found() -> None:
    body = "\n".join(f"    x{i} = {i}" for i in range(FUNCTION_LINES))
    arguments = ", ".join(f"a{i}" for i in range(CONSTRUCTOR_ARGUMENTS + 1))
    methods = "\n".join(f"    def m{i}(self): ..." for i in range(PUBLIC_METHODS + 1))
    text = f"def f():\n{body}\n\nclass C:\n    def __init__(self, {arguments}): ...\n{methods}\n"
    assert too_large(text) == [
        "f has 61 lines of code, at most 60",
        "C has 13 public methods, at most 12",
        "C takes 9 arguments, at most 8",
    ]
