from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

import dure
import project


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", project.ROOT / "scripts" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_what_the_docstrings_say(reference: ModuleType) -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in reference.FOLDER.glob("*.md")}
    made = reference.pages()
    stale = sorted(name for name in made.keys() | written.keys() if made.get(name) != written.get(name))
    assert stale == [], f"run `make reference`: {stale}"


def test_every_public_name_has_a_page_with_words() -> None:
    folder = project.ROOT / "docs" / "reference"
    for name in dure.__all__:
        if name != "__version__":
            text = (folder / f"{name}.md").read_text(encoding="utf-8")
            assert f"# dure.{name}" in text
            assert len(text) > 300, f"dure.{name} is hardly explained"


def test_every_name_of_a_public_module_has_a_section() -> None:
    for module in ("data", "callbacks", "errors"):
        text = (project.ROOT / "docs" / "reference" / f"{module}.md").read_text(encoding="utf-8")
        for name in getattr(dure, module).__all__:
            assert f"## dure.{module}.{name}\n" in text


def test_every_argument_of_a_public_name_is_explained(reference: ModuleType) -> None:
    import inspect

    silent = []
    for name in dure.__all__:
        thing = reference.public(getattr(dure, name))
        if inspect.isclass(thing) or inspect.isfunction(thing):
            for label, member in [
                (name, thing),
                *(reference.members(thing) if inspect.isclass(thing) else []),
            ]:
                if not callable(member) or (inspect.isclass(member) and issubclass(member, tuple)):
                    continue
                words = inspect.getdoc(member) or ""
                arguments = [a for a in inspect.signature(member).parameters if a not in {"self", "cls"}]
                silent += [f"{name}.{label}: {a}" for a in arguments if len(arguments) > 1 and a not in words]
    assert silent == []


def test_a_docstring_becomes_markdown(reference: ModuleType) -> None:
    docstring = """Adds two numbers.

More words.

Args:
    a: the first
        of them.
    b (int): the second.

Returns:
    Their sum.

Example:
    >>> 1 + 1
    2
"""
    assert reference.body(docstring) == (
        "Adds two numbers.\n\nMore words.\n\n**Args**\n\n- `a`: the first\n  of them.\n"
        "- `b` (int): the second."
        "\n\n**Returns**\n\nTheir sum.\n\n**Example**\n\n```pycon\n>>> 1 + 1\n2\n```"
    )
