"""Writes constraints.txt: the version of each distribution that `dure[dev]` needs, as installed here.

Run: .venv/bin/python scripts/constraints.py
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# The versions that Dure is tested with, for every extra that development needs; `make .venv` installs these.
# Written by scripts/constraints.py from an environment in which all tests pass.
"""


def closure(name: str, extras: frozenset[str], found: dict[str, str], seen: set[tuple[str, frozenset[str]]]) -> None:
    """Adds to `found` what the distribution requires with these extras, and what those require in turn."""
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    try:
        have = distribution(name)
    except PackageNotFoundError:
        # Needed on another system or under another Python only; its requirement's marker decides that below.
        return
    found[name] = have.version
    for line in have.requires or ():
        need = Requirement(line)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras | {""}):
            closure(canonicalize_name(need.name), frozenset(need.extras), found, seen)


def main() -> None:
    """Writes the file."""
    found: dict[str, str] = {}
    closure("dure", frozenset({"dev"}), found, set())
    del found["dure"]
    lines = [f"{name}=={version}\n" for name, version in sorted(found.items())]
    (ROOT / "constraints.txt").write_text(HEADER + "".join(lines))


if __name__ == "__main__":
    main()
