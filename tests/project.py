"""The project's own files, as the tests of the house and of the documents read them."""

from __future__ import annotations

import ast
import functools
import io
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "dure"

# Tokens that are not code: a line that holds nothing else is blank or a comment.
_SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@functools.cache
def files() -> tuple[Path, ...]:
    """Returns every file of the project that Git has or would take, so nothing that is built or fetched."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = (ROOT / name for name in listed.split("\0") if name)
    return tuple(sorted(path for path in paths if path.is_file() and "shared" not in path.parts))


def texts() -> Iterator[tuple[str, str]]:
    """Yields the name and the text of every file that is text."""
    for path in files():
        try:
            yield name(path), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def modules(folder: Path = PACKAGE) -> list[Path]:
    """Returns the Python files under a folder."""
    return [path for path in files() if path.suffix == ".py" and path.is_relative_to(folder)]


def name(path: Path) -> str:
    """Returns the path of a file from the root of the project."""
    return path.relative_to(ROOT).as_posix()


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Returns the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def dotted(path: Path) -> str:
    """Returns the name under which a file of the package is imported."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def code_lines(text: str) -> set[int]:
    """Returns the numbers of the lines that hold code: no blank line, no comment, no docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
            continue
        if isinstance(first.value.value, str):
            lines.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yields the functions and methods of a syntax tree, inner ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def last_name(node: ast.AST) -> str:
    """Returns the last part of a dotted name: `c` of `a.b.c`; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
