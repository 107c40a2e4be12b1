"""Writes docs/reference from the docstrings of the public names and of the commands.

Run: .venv/bin/python scripts/reference.py
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

import dure
from dure import cli

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
SECTIONS = (
    "Args",
    "Attributes",
    "Returns",
    "Yields",
    "Raises",
    "Example",
    "Examples",
    "Source",
    "Note",
    "Notes",
)
LINE = 100
NOTICE = "<!-- Written from the docstrings: change those, then run `make reference`. -->\n\n"


def pages() -> dict[str, str]:
    """Returns the text of each page by the name of its file."""
    names = [name for name in dure.__all__ if name != "__version__"]
    made = {f"{name}.md": NOTICE + page(f"dure.{name}", getattr(dure, name)) for name in names}
    made["commands.md"] = NOTICE + commands()
    made["index.md"] = NOTICE + index(names)
    return made


def index(names: list[str]) -> str:
    """Returns the page that lists the others."""
    rows = [f"- [`dure.{name}`]({name}.md): {summary(public(getattr(dure, name)))}" for name in names]
    listing = "\n".join(rows)
    return f"# Reference\n\n{listing}\n\nOn the command line: [the commands](commands.md).\n"


def page(title: str, thing: Any) -> str:
    """Returns the page of one public name."""
    thing = public(thing)
    text = f"# {title}\n\n"
    if not isinstance(thing, ModuleType):
        return text + definition(title, thing, level=2)
    text += body(inspect.getdoc(thing) or "") + "\n"
    for name in thing.__all__:
        text += f"\n## {title}.{name}\n\n{definition(f'{title}.{name}', getattr(thing, name), level=3)}"
    return text


def public(thing: Any) -> Any:
    """Returns the function that a callable package stands for; anything else as it is."""
    if isinstance(thing, ModuleType) and callable(thing):
        module = {"dure.advise": "advise", "dure.devices": "inventory"}[thing.__name__]
        return getattr(importlib.import_module(f"{thing.__name__}.{module}"), thing.__name__.rpartition(".")[2])
    return thing


def definition(title: str, thing: Any, *, level: int) -> str:
    """Returns the signature and docstring of a class or function, and the members of a class."""
    if not callable(thing):
        return f"{type(thing).__name__}: `{thing!r}`\n"
    text = f"```text\n{signature(title, thing)}\n```\n\n{body(inspect.getdoc(thing) or '')}\n"
    if inspect.isclass(thing):
        for name, member in members(thing):
            short = f"{title.rsplit('.', 1)[-1]}.{name}"
            text += f"\n{'#' * level} {short}\n\n"
            if callable(member):
                text += f"```text\n{signature(name, member)}\n```\n\n"
            text += body(inspect.getdoc(member) or "") + "\n"
    return text


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yields the public methods and properties that have words of their own, in the order of the code."""
    seen: set[str] = set()
    for owner in kind.__mro__:
        if not owner.__module__.startswith("dure"):
            continue
        for name, raw in vars(owner).items():
            member = raw.__func__ if isinstance(raw, classmethod | staticmethod) else raw
            told = callable(member) or isinstance(member, property)
            if name.startswith("_") or name in seen or not told or not inspect.getdoc(member):
                continue
            seen.add(name)
            yield name, member


class _Bare:
    """An annotation that is printed as it was written, without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def signature(name: str, thing: Callable[..., Any]) -> str:
    """Returns how it is called, one argument a line where one line is too short."""
    found = inspect.signature(thing)
    parameters = [_bare(one) for one in found.parameters.values() if one.name not in {"self", "cls"}]
    bare = found.replace(parameters=parameters, return_annotation=_bare_annotation(found.return_annotation))
    if inspect.isclass(thing):
        bare = bare.replace(return_annotation=inspect.Signature.empty)
    text = _steady(str(bare))
    if len(name + text) <= LINE:
        return name + text
    arrow = text[text.rindex(" -> ") :] if bare.return_annotation is not inspect.Signature.empty else ""
    return name + _one_a_line(parameters, arrow)


def _one_a_line(parameters: list[inspect.Parameter], arrow: str) -> str:
    lines: list[str] = []
    kinds = [one.kind for one in parameters]
    for one in parameters:
        named = one.kind is inspect.Parameter.KEYWORD_ONLY
        if named and inspect.Parameter.VAR_POSITIONAL not in kinds and "*" not in lines:
            lines.append("*")
        lines.append(_steady(str(one)))
    return "(\n" + "".join(f"    {line},\n" for line in lines) + f"){arrow}"


def _steady(text: str) -> str:
    """Takes out what changes from run to run (addresses) and what tells a reader nothing (a factory)."""
    return re.sub(r" at 0x[0-9a-f]+", "", text).replace("<factory>", "...")


def _bare(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(annotation=_bare_annotation(parameter.annotation))


def _bare_annotation(annotation: Any) -> Any:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def summary(thing: Any) -> str:
    """Returns the first line of a docstring."""
    return (inspect.getdoc(thing) or "").split("\n", 1)[0]


def body(docstring: str) -> str:
    """Returns a Google docstring as Markdown."""
    pieces = re.split(rf"^({'|'.join(SECTIONS)}):[ ]*\n", docstring.strip() + "\n", flags=re.MULTILINE)
    text = pieces[0].strip()
    for heading, rest in zip(pieces[1::2], pieces[2::2], strict=True):
        inside = re.match(r"((?:[ ]+.*\n|\n)*)", rest)
        block = inside.group(1) if inside else ""
        after = rest[len(block) :].strip()
        text += f"\n\n**{heading}**\n\n{section(heading, textwrap.dedent(block).strip())}"
        if after:
            text += f"\n\n{after}"
    return text.strip()


def section(heading: str, block: str) -> str:
    """Returns one section: a list of names, an example, or prose."""
    if heading.startswith("Example") and ">>>" in block:
        return f"```pycon\n{block}\n```"
    if heading not in {"Args", "Attributes", "Raises"}:
        return block
    rows: list[str] = []
    for line in block.split("\n"):
        item = re.match(r"(\*{0,2}[\w.`, ]+?)(?: \(([^)]*)\))?: (.*)", line)
        if item and not line.startswith(" "):
            kind = f" ({item[2]})" if item[2] else ""
            rows.append(f"- `{item[1].strip('`')}`{kind}: {item[3]}")
        else:
            rows.append(f"  {line.strip()}".rstrip())
    return "\n".join(rows)


def commands() -> str:
    """Returns the page of the commands, from their own help."""
    text = "# Commands\n\nEvery command explains itself with `--help`.\n"
    for name, line in sorted(cli.COMMANDS.items()):
        command = cli.load(name)
        help_text = inspect.cleandoc(command.help or line)
        text += f"\n## dure {name}\n\n{body(help_text)}\n\n"
        for option in command.params:
            names = ", ".join(f"`{word}`" for word in (*option.opts, *option.secondary_opts))
            words = getattr(option, "help", None) or ""
            default = option.default
            shown = "" if default in (None, False, ()) or callable(default) else f" (default `{default}`)"
            text += f"- {names}{shown}: {words}\n"
    return text


def main() -> None:
    """Writes the pages, and takes away those of names that are no more."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = pages()
    for old in FOLDER.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    typer.echo(f"{len(made)} pages in {FOLDER.relative_to(FOLDER.parent.parent)}")


if __name__ == "__main__":
    main()
