"""The code blocks of a document, and how a test runs them.

Every block of Python, Bash or console in a document runs. The Python blocks of a document are one program, as
the cells of a notebook are; a block of Bash runs where it stands. A comment right above a block changes that:

    <!-- test: file train.py -->              the block is the file `train.py`, for a later block to run
    <!-- test: fresh -->                      a new process begins here
    <!-- test: "epochs=10" becomes "epochs=1" -->   in the test, which so takes a second, not a minute
    <!-- test: raises SpecError -->           the block ends with this error
    <!-- test: not run: REASON -->            for a block of Bash that installs or fetches, nothing else

Several wishes are joined by `;`.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, replace
from typing import Literal

PYTHON = {"python", "py"}
SHELL = {"bash", "sh", "shell", "console"}

_FENCE = re.compile(
    r"(?:^[ ]*<!-- test: (?P<marker>.*?) -->\s*\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_REPLACEMENT = re.compile(r'"(?P<old>[^"]+)" becomes "(?P<new>[^"]*)"')


@dataclass(frozen=True)
class Block:
    """One block of a document, as the test runs it."""

    kind: Literal["python", "shell", "file", "none"]
    code: str
    line: int
    file: str = ""
    fresh: bool = False
    raises: str = ""
    reason: str = ""


def blocks(document: str) -> list[Block]:
    """Returns the blocks of a document that the test runs, with the wishes of their markers applied.

    Raises:
        ValueError: a marker is not one of those above, changes nothing, or excuses Python from running.
    """
    found = []
    for match in _FENCE.finditer(document):
        language = match["language"].lower()
        line = document.count("\n", 0, match.start("code"))
        code = textwrap.dedent(match["code"])
        if language in PYTHON:
            block = Block("python", code, line)
        elif language in SHELL:
            block = Block("shell", _commands(code) if language == "console" else code, line)
        elif match["marker"]:
            block = Block("none", code, line)
        else:
            continue
        for wish in (match["marker"] or "").split(";"):
            if wish.strip():
                block = _with(block, wish.strip())
        if block.kind != "none":
            found.append(block)
    return found


def _with(block: Block, wish: str) -> Block:
    if change := _REPLACEMENT.fullmatch(wish):
        if change["old"] not in block.code:
            raise ValueError(f"line {block.line}: the block does not hold {change['old']!r}")
        return replace(block, code=block.code.replace(change["old"], change["new"]))
    word, _, rest = wish.partition(" ")
    if word == "file" and rest:
        return replace(block, kind="file", file=rest)
    if wish == "fresh":
        return replace(block, fresh=True)
    if word == "raises" and rest:
        return replace(block, raises=rest)
    if wish.startswith("not run: ") and block.kind == "shell":
        return replace(block, kind="none", reason=wish.removeprefix("not run: "))
    raise ValueError(f"line {block.line}: no such wish for a block of this kind: {wish!r}")


def _commands(session: str) -> str:
    """Returns what was typed in a console: the lines after `$`, and those that go on from them."""
    return "".join(line[2:] for line in session.splitlines(keepends=True) if line.startswith(("$ ", "> ")))
