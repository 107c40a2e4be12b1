"""What is seen of a worker as plain values, and back: what the launchers of several machines tell each other. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dure.errors import SecurityError
from dure.launch.board import Phase
from dure.launch.verdict import Raised, Seen

__all__ = ["pack", "unpack"]

_LONGEST = 4000
_KINDS: dict[str, tuple[type, ...]] = {
    "task": (str,),
    "host": (str,),
    "pid": (int,),
    "step": (int,),
    "quiet_s": (int, float),
    "code": (int, type(None)),
    "ended_s": (int, float),
    "stopped_s": (int, float, type(None)),
    "by_peers": (bool,),
}


def pack(seen: Seen) -> dict[str, Any]:
    """Returns what is seen as JSON takes it; a traceback stays on its machine.

    Example:
        >>> seen = Seen("worker:1", "host", 7, Phase.DATA, 3, 0.5)
        >>> unpack(pack(seen)) == seen
        True
    """
    plain = {name: getattr(seen, name) for name in _KINDS}
    raised = None if seen.raised is None else [seen.raised.kind[:_LONGEST], seen.raised.message[:_LONGEST]]
    return {**plain, "phase": seen.phase.value, "raised": raised}


def unpack(plain: Mapping[str, Any]) -> Seen:
    """Makes of plain values what was seen.

    Raises:
        SecurityError: they are not of that form.
    """
    values: dict[str, Any] = {}
    for name, kinds in _KINDS.items():
        value = plain.get(name)
        is_bool = isinstance(value, bool) and bool not in kinds  # which is an int to Python
        if not isinstance(value, kinds) or is_bool or (isinstance(value, str) and len(value) > 256):
            raise _wrong(name, value)
        values[name] = value
    try:
        values["phase"] = Phase(plain.get("phase"))
    except ValueError as error:
        raise _wrong("phase", plain.get("phase")) from error
    raised = plain.get("raised")
    if raised is not None:
        if not isinstance(raised, list) or len(raised) != 2 or not all(isinstance(part, str) for part in raised):
            raise _wrong("raised", raised)
        values["raised"] = Raised(*raised)
    assert values.keys() <= {field.name for field in fields(Seen)}
    return Seen(**values)


def _wrong(name: str, value: object) -> SecurityError:
    return SecurityError(
        f"a launcher tells of a worker {name}={ascii(value)[:80]}, which cannot be. Use one version on all nodes"
    )
