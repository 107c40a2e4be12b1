"""How a dozen steps are split is written down; who changes it sees what changes."""

from __future__ import annotations

import pytest

from golden.steps import FOLDER, STEPS, text_of


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_split_as_written_down(name: str) -> None:
    assert text_of(name) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_nothing_else_is_written_down() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(STEPS)
