"""Names of devices: what is said, what is left open, how two names join, and which device a name fits.

A *full* name says everything: `/job:worker/task:1/device:gpu:0`. A *partial* name is a filter: `/gpu:1`,
`/job:ps`, `/job:ps/task:3/cpu:0`, `/device:gpu:*`. A wildcard (`*`) says the same as leaving the part out;
the empty name and `/` say nothing at all. Letter case of the words `job`, `task`, `device` and of the kind,
the order of the parts and a slash at the end never matter: whatever form a name is given in, it has one
canonical form, `str(name)`.

Nothing here knows which devices exist.

Source: the grammar and the merge are those of TensorFlow's device names (`DeviceNameUtils`, `DeviceSpec`), so
    that a
name copied from a TensorFlow program means the same; the kind is written in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from dure.errors import SpecError, hint

__all__ = [
    "KINDS",
    "MAX_LENGTH",
    "DeviceName",
    "Kind",
    "format",
    "matches",
    "meet",
    "merge",
    "one",
    "parse",
    "select",
]

Kind = Literal["cpu", "gpu", "tpu"]

KINDS: tuple[Kind, ...] = get_args(Kind)
"""The kinds of device that there are."""

MAX_LENGTH = 256
"""The longest name, in characters."""

_JOB = re.compile(r"[a-z][a-z0-9_]{0,62}")
_INDEX = re.compile(r"[0-9]{1,9}")
_ANY = "*"
_FORM = 'as "/job:worker/task:1/device:gpu:0", "/job:ps" or "/gpu:1"'


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A name of a device, whole or in part; what is None is left open.

    Args:
        job: name of the job, lower-case letters, digits and `_`, from a letter on, at most 63 characters.
        task: index of the task in its job, from 0.
        kind: `cpu`, `gpu` or `tpu`.
        index: index of the device among those of its kind in its task, from 0.

    Raises:
        SpecError: a part is not of that form.

    Example:
        >>> str(DeviceName(job="ps", task=0, kind="cpu", index=0))
        '/job:ps/task:0/device:cpu:0'
        >>> str(DeviceName(kind="gpu"))
        '/device:gpu:*'
    """

    job: str | None = None
    task: int | None = None
    kind: Kind | None = None
    index: int | None = None

    def __post_init__(self) -> None:
        if self.job is not None and not _JOB.fullmatch(str(self.job)):
            raise SpecError(_job_message(self.job))
        if self.kind is not None and self.kind not in KINDS:
            raise SpecError(
                f"asked for the device kind {_shown(self.kind)}, which is none. {hint(str(self.kind), KINDS)}"
            )
        for part, number in (("task", self.task), ("device index", self.index)):
            # A bool is an int to Python and never a place to anybody.
            if number is not None and (type(number) is not int or not 0 <= number <= 999_999_999):
                raise SpecError(
                    f"asked for {part} {_shown(number)}; it is a whole number from 0 on. Write one, or None"
                )

    @property
    def is_one(self) -> bool:
        """Whether kind and index are said, so that it means one device of a task."""
        return self.kind is not None and self.index is not None

    @property
    def is_full(self) -> bool:
        """Whether everything is said, so that it means one device of a cluster."""
        return self.is_one and self.job is not None and self.task is not None

    @property
    def sort_key(self) -> tuple[str, int, str, int]:
        """Sorts names as people count (`gpu:2` before `gpu:10`), what is left open first."""
        task = -1 if self.task is None else self.task
        index = -1 if self.index is None else self.index
        return (self.job or "", task, self.kind or "", index)

    def __str__(self) -> str:
        return format(self)


def parse(text: str | DeviceName) -> DeviceName:
    """Reads a name of a device, full or partial.

    Args:
        text: the name in any of its forms; a `DeviceName` is returned as it is.

    Returns:
        What the name says. `parse(str(name)) == name` for every name.

    Raises:
        SpecError: it is no name: an unknown part, a part said twice, no number where one must be, more than
            256 characters, characters outside ASCII.

    Example:
        >>> parse("/job:worker/task:1/GPU:0")
        DeviceName(job='worker', task=1, kind='gpu', index=0)
        >>> parse("cpu:0") == parse("/CPU:0/") == parse("/device:cpu:0")
        True
        >>> parse("/gpu:*")
        DeviceName(job=None, task=None, kind='gpu', index=None)
    """
    if isinstance(text, DeviceName):
        return text
    if not isinstance(text, str):
        raise SpecError(f"asked for the device {_shown(text)}, which is no text. Write a name {_FORM}")
    if len(text) > MAX_LENGTH:
        raise SpecError(
            f"asked for a device by a name of {len(text)} characters, which starts {_shown(text)}; a name "
            f"has at most {MAX_LENGTH}. Write it {_FORM}"
        )
    if not text.isascii() or not text.isprintable():
        raise SpecError(
            f"asked for the device {_shown(text)}, which holds a character that is not printable ASCII. "
            f"Write it {_FORM}"
        )
    said: dict[str, str] = {}
    # A slash at either end carries nothing; one in excess in the middle is a typing error.
    parts = text.removeprefix("/").removesuffix("/").split("/") if text not in ("", "/") else ()
    for part in parts:
        for key, value in _read_part(part, text):
            if key in said:
                raise SpecError(
                    f"asked for the device {_shown(text)}, which says its {_WORDS[key]} twice ({said[key]} "
                    f"and {value}). Leave one of them out"
                )
            said[key] = value
    return _build(said, text)


def format(name: DeviceName) -> str:  # noqa: A001 - the pair of `parse`
    """Returns the canonical form of a name: parts in one order, lower case, `*` for an open index.

    Example:
        >>> format(parse("/CPU:0/task:2/job:ps/"))
        '/job:ps/task:2/device:cpu:0'
        >>> format(parse("/")), format(parse("gpu"))
        ('', '/device:gpu:*')
    """
    parts = []
    if name.job is not None:
        parts.append(f"/job:{name.job}")
    if name.task is not None:
        parts.append(f"/task:{name.task}")
    if name.kind is not None or name.index is not None:
        kind = _ANY if name.kind is None else name.kind
        parts.append(f"/device:{kind}:{_ANY if name.index is None else name.index}")
    return "".join(parts)


def merge(outer: DeviceName, inner: DeviceName) -> DeviceName:
    """Returns what a request means inside another: part by part, what the inner one says wins.

    It is associative, and the empty name changes nothing. As in TensorFlow each part stands alone: `/cpu`
    inside `/gpu:1` is `/device:cpu:1`, so say the index with the kind.

    Args:
        outer: the request around.
        inner: the request inside.

    Example:
        >>> str(merge(parse("/job:ps/gpu:0"), parse("/task:1/cpu:0")))
        '/job:ps/task:1/device:cpu:0'

    Source: `DeviceSpec.make_merged_spec` of TensorFlow.
    """
    return DeviceName(
        job=outer.job if inner.job is None else inner.job,
        task=outer.task if inner.task is None else inner.task,
        kind=outer.kind if inner.kind is None else inner.kind,
        index=outer.index if inner.index is None else inner.index,
    )


def meet(first: DeviceName, second: DeviceName) -> DeviceName:
    """Returns the filter that fits exactly the devices which both filters fit.

    Args:
        first: a filter.
        second: another.

    Raises:
        SpecError: they contradict each other, so that no device fits both.

    Example:
        >>> str(meet(parse("/job:ps"), parse("/cpu:0")))
        '/job:ps/device:cpu:0'
        >>> meet(parse("/gpu:0"), parse("/gpu:1"))
        Traceback (most recent call last):
        dure.errors.SpecError: asked for a device that is both `/device:gpu:0` and `/device:gpu:1`; they
        differ in the \
device index (0 and 1), so none is. Change one of the two requests
    """
    for key, word in _WORDS.items():
        one_side, other_side = getattr(first, key), getattr(second, key)
        if one_side is not None and other_side is not None and one_side != other_side:
            raise SpecError(
                f"asked for a device that is both `{first}` and `{second}`; they differ in the {word} "
                f"({one_side} and {other_side}), so none is. Change one of the two requests"
            )
    return merge(first, second)


def matches(wanted: DeviceName, device: DeviceName) -> bool:
    """Returns whether a device has everything that the filter says; the empty filter fits all.

    Args:
        wanted: the filter.
        device: name of a device; what it leaves open fits no filter that says it.

    Example:
        >>> matches(parse("/gpu:*"), parse("/job:worker/task:1/device:gpu:3"))
        True
        >>> matches(parse("/job:ps"), parse("/gpu:0"))
        False
    """
    asked = (getattr(wanted, key) for key in _WORDS)
    there = (getattr(device, key) for key in _WORDS)
    return all(want is None or want == have for want, have in zip(asked, there, strict=True))


def select(wanted: DeviceName, devices: Iterable[DeviceName]) -> tuple[DeviceName, ...]:
    """Returns the devices that a filter fits, sorted by name.

    Example:
        >>> [str(name) for name in select(parse("/gpu"), map(parse, ["gpu:10", "gpu:2", "cpu:0"]))]
        ['/device:gpu:2', '/device:gpu:10']
    """
    return tuple(sorted((name for name in devices if matches(wanted, name)), key=lambda name: name.sort_key))


def one(text: str | DeviceName) -> DeviceName:
    """Reads a name where one device must be meant: kind and index are both said.

    Args:
        text: the name.

    Raises:
        SpecError: it is no name, or a wildcard or a gap leaves open which device is meant.

    Example:
        >>> one("/gpu:1").index
        1
    """
    name = parse(text)
    if not name.is_one:
        raise SpecError(
            f"asked for the one device {_shown(text if isinstance(text, str) else str(text))}, which leaves "
            "its "
            f"{'kind' if name.kind is None else 'index'} open. Say both kind and index, as "
            f'"/{name.kind or "cpu"}:0"'
        )
    return name


_WORDS = {"job": "job", "task": "task", "kind": "device kind", "index": "device index"}


def _read_part(part: str, text: str) -> list[tuple[str, str]]:
    """Takes one part between slashes apart; a kind and an index may come of it, whatever their value."""
    fields = part.split(":")
    key = fields[0].lower()
    if key in ("job", "task", "replica"):
        if len(fields) != 2 or not fields[1]:
            raise SpecError(f'asked for the device {_shown(text)}, where "{part}" has no value. Write "/{key}:VALUE"')
        if key != "replica":
            return [(key, fields[1])]
        # TensorFlow prints it in every full name and gives it no other value.
        if fields[1] in ("0", _ANY):
            return []
        raise SpecError(
            f'asked for the device {_shown(text)}, with "{part}"; a job here has tasks and no replicas but '
            '0. Say the task, as "/task:1"'
        )
    if key == "device":
        fields = fields[1:]
    if not fields or len(fields) > 2 or not all(fields) or (key != "device" and fields[0] == _ANY):
        raise SpecError(f'asked for the device {_shown(text)}, where "{part}" is no part of a name. Write it {_FORM}')
    kind = fields[0].lower()
    if kind != _ANY and kind not in KINDS:
        raise SpecError(
            f'asked for the device {_shown(text)}, where "{part}" names no part and no kind of device. '
            f"{hint(kind, ['job', 'task', 'device', *KINDS])}"
        )
    return [("kind", kind), ("index", fields[1] if len(fields) == 2 else _ANY)]


def _build(said: dict[str, str], text: str) -> DeviceName:
    def number(key: str) -> int | None:
        value = said.get(key, _ANY)
        if value == _ANY:
            return None
        if not _INDEX.fullmatch(value):
            raise SpecError(
                f'asked for the device {_shown(text)}, whose {_WORDS[key]} is "{value}"; it is a whole '
                "number of 1 to 9 "
                f"digits. Write one, or {_ANY} for any"
            )
        return int(value)

    job = said.get("job", _ANY)
    if job != _ANY and not _JOB.fullmatch(job):
        raise SpecError(_job_message(job))
    kind = next((kind for kind in KINDS if kind == said.get("kind")), None)
    return DeviceName(job=None if job == _ANY else job, task=number("task"), kind=kind, index=number("index"))


def _job_message(job: object) -> str:
    return (
        f"asked for the job {_shown(job)}; a job's name is lower-case letters, digits and _, starts with a "
        "letter and "
        'has at most 63 characters. Write one, as "worker"'
    )


def _shown(value: object) -> str:
    """The value as typed, escaped, cut where it would drown the message."""
    shown = ascii(value)
    return shown if len(shown) <= 80 else f"{shown[:60]}... ({len(shown)} characters)"
