"""Every code block of the documents runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import project
from blocks import Block, blocks
from dure.advise import calibrate
from unit.advise.outlooks import calibration

DOCUMENTS = [path for path in project.files() if path.suffix == ".md" and "reference" not in path.parts]
WITH_CODE = [path for path in DOCUMENTS if "```" in path.read_text(encoding="utf-8")]


def parts(found: list[Block]) -> list[Block]:
    """Joins the Python blocks of one process; what is written or typed between them happens in its place."""
    joined: list[Block] = []
    program: list[Block] = []

    def end() -> None:
        if program:
            code = "".join(step(block) for block in program)
            joined.append(Block("python", code, program[0].line))
            program.clear()

    for block in found:
        if block.kind == "python":
            if block.fresh:
                end()
            program.append(block)
        elif block.kind == "file":
            joined.append(block)
        else:
            end()
            joined.append(block)
    end()
    return joined


def step(block: Block) -> str:
    """Returns the code of a block, its lines numbered as in the document, the error it shows awaited."""
    code = f"_block = compile({chr(10) * block.line + block.code!r}, DOCUMENT, 'exec')\n"
    if not block.raises:
        return f"{code}exec(_block, globals())\n"
    return (
        f"{code}try:\n    exec(_block, globals())\nexcept Exception as _error:\n"
        f"    if type(_error).__name__ != {block.raises!r}: raise\n"
        f"else:\n    raise AssertionError('line {block.line}: no {block.raises}')\n"
    )


def run(document: Path, folder: Path) -> None:
    """Runs the blocks of a document in an empty folder, this environment's commands first in the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100"}
    for part in parts(blocks(document.read_text(encoding="utf-8"))):
        if part.kind == "file":
            target = folder / part.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(part.code, encoding="utf-8")
            continue
        if part.kind == "python":
            program = f"__name__ = '__main__'\nDOCUMENT = {str(document)!r}\n{part.code}"
            command = [sys.executable, "-W", "error", "-c", program]
        else:
            command = ["bash", "-euo", "pipefail", "-c", part.code]
        outcome = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        said = f"{outcome.stdout[-3000:]}\n{outcome.stderr[-6000:]}"
        assert outcome.returncode == 0, f"{document.name}, block at line {part.line}:\n{said}"


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder of the tests' own, which holds a calibration of this machine: to measure one takes long."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        calibrate.keep(calibration(key=calibrate.known()))
    return folder


@pytest.mark.parametrize("document", WITH_CODE, ids=project.name)
def test_the_blocks_of_a_document_run(
    document: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    run(document, tmp_path)


class TestRunner:
    def test_the_blocks_of_a_document_are_one_program(self, tmp_path: Path) -> None:
        document = tmp_path / "page.md"
        document.write_text(
            "```python\nx = 1\n```\n\nThen:\n\n```python\nwith open('x', 'w') as f: f.write(str(x + 1))\n```\n"
        )
        run(document, tmp_path)
        assert (tmp_path / "x").read_text() == "2"

    def test_a_file_is_there_for_the_shell(self, tmp_path: Path) -> None:
        document = tmp_path / "page.md"
        document.write_text(
            '<!-- test: file a.py; "9" becomes "1" -->\n```python\nprint(9)\n```\n\n```bash\npython a.py > out\n```\n'
        )
        run(document, tmp_path)
        assert (tmp_path / "out").read_text() == "1\n"

    def test_an_error_that_is_awaited_passes(self, tmp_path: Path) -> None:
        document = tmp_path / "page.md"
        document.write_text("<!-- test: raises ZeroDivisionError -->\n```python\n1 / 0\n```\n")
        run(document, tmp_path)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("```python\n1 / 0\n```\n", r"page\.md\", line 2"),
            ("<!-- test: raises KeyError -->\n```python\n1 / 0\n```\n", "ZeroDivisionError"),
            ("<!-- test: raises KeyError -->\n```python\n1\n```\n", "no KeyError"),
            ("```python\nx = 1\n```\n<!-- test: fresh -->\n```python\nx\n```\n", "NameError"),
            ("```console\n$ false\n```\n", "block at line 1"),
        ],
    )
    def test_a_block_that_fails_is_found(self, text: str, message: str, tmp_path: Path) -> None:
        document = tmp_path / "page.md"
        document.write_text(text)
        with pytest.raises(AssertionError, match=message):
            run(document, tmp_path)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("<!-- test: not run: slow -->\n```python\n1\n```\n", "no such wish"),
            ("<!-- test: skip -->\n```bash\nls\n```\n", "no such wish"),
            ('<!-- test: "a" becomes "b" -->\n```python\n1\n```\n', "does not hold"),
        ],
    )
    def test_no_block_is_excused_without_a_reason(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            blocks(text)

    def test_a_block_that_installs_need_not_run(self) -> None:
        assert blocks("<!-- test: not run: it installs -->\n```bash\npip install dure\n```\n") == []
