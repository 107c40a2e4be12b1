"""The examples of the docstrings, run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import project

WITH_EXAMPLES = [path for path in project.modules() if ">>>" in path.read_text()]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=project.name)
def test_the_examples_are_right(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = doctest.testmod(importlib.import_module(project.dotted(path)), optionflags=FLAGS)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_a_wrong_example_is_found() -> None:
    def wrong() -> None:
        """Adds.

        >>> 1 + 1
        3
        """

    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
    for example in finder.find(wrong, "wrong"):
        assert runner.run(example, out=lambda text: None).failed == 1
