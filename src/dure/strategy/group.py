"""The processes that train one model together: what they agree on between two dispatches."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections import defaultdict
from typing import Any, Protocol, final

from dure import _jax
from dure.errors import DeadlineError, SpecError

__all__ = ["ALONE", "Alone", "Group", "Processes", "Waiting", "check_alike"]

_KEPT = 4096
"""How many of its last messages a process leaves readable. No other one can be so many dispatches behind."""


class Group(Protocol):
    """The processes of a strategy, each of which makes the same calls in the same order, from one thread.

    Attributes:
        rank: number of this process.
        size: how many there are.
    """

    rank: int
    size: int

    def lead(self, what: str, value: Any) -> Any:
        """What the chief (rank 0) says: its `value`, on every process.

        Args:
            what: the name of the question. Questions of one name are answered in order; those of another name may be
                asked by another thread.
            value: plain values, as JSON takes them. Only the chief's counts.
        """
        ...

    def each(self, what: str, value: Any) -> list[Any]:
        """What every process says, by rank.

        Args:
            what: the name of the question, as for `lead`.
            value: this process's plain value.
        """
        ...

    def wish(self, what: str, value: Any) -> None:
        """Asks the chief for something, without waiting."""
        ...

    def wished(self, what: str) -> Any:
        """What the chief was asked for last, or None; only the chief need know."""
        ...

    def turn(self) -> int:
        """A number that no earlier call gave, the same on every process."""
        ...


class Waiting(Protocol):
    """Is told while a process waits for the others."""

    def waiting(self) -> contextlib.AbstractContextManager[None]:
        """The calling thread waits until the end of the `with`."""
        ...


@final
class Alone:
    """One process by itself: it agrees with itself."""

    rank = 0
    size = 1

    def __init__(self) -> None:
        self._turns = itertools.count()

    def lead(self, what: str, value: Any) -> Any:
        """The value."""
        del what
        return value

    def each(self, what: str, value: Any) -> list[Any]:
        """The value alone."""
        del what
        return [value]

    def wish(self, what: str, value: Any) -> None:
        """Nothing: who is alone decides."""

    def wished(self, what: str) -> Any:
        """Nothing."""
        del what

    def turn(self) -> int:
        """The next number."""
        return next(self._turns)


ALONE = Alone()


@final
class Processes:
    """The processes that JAX's distributed runtime has joined; they talk through the chief's key-value service.

    A message costs some tenths of a millisecond, and none is sent inside a dispatch.

    Args:
        rank: number of this process.
        size: how many there are.
        name: tells the messages of one strategy from another's.
        timeout_s: how long an answer may take, seconds.
        watch: is told while an answer is waited for; None where nobody looks.
    """

    def __init__(self, rank: int, size: int, *, name: str, timeout_s: float, watch: Waiting | None = None) -> None:
        self.rank = rank
        self.size = size
        self._name = name
        self._timeout_s = timeout_s
        self._watch = watch
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._turns = itertools.count()

    def lead(self, what: str, value: Any) -> Any:
        """The chief's value; a `DeadlineError` names the chief when it does not come."""
        number = self._number(what)
        key = f"{self._name}/lead/{what}/"
        if self.rank == 0:
            text = json.dumps(value)
            _jax.tell(f"{key}{number}", text)
            if number >= _KEPT:
                _jax.forget(f"{key}{number - _KEPT}")
            return json.loads(text)
        return json.loads(self._ask(f"{key}{number}", 0, what))

    def each(self, what: str, value: Any) -> list[Any]:
        """Every process's value; a `DeadlineError` names the first that does not come."""
        number = self._number(what)
        key = f"{self._name}/each/{what}/"
        _jax.tell(f"{key}{number}/{self.rank}", json.dumps(value))
        if number >= _KEPT:
            _jax.forget(f"{key}{number - _KEPT}/{self.rank}")
        return [json.loads(self._ask(f"{key}{number}/{rank}", rank, what)) for rank in range(self.size)]

    def wish(self, what: str, value: Any) -> None:
        """Leaves it with the chief."""
        _jax.tell(f"{self._name}/wish/{what}", json.dumps(value))

    def wished(self, what: str) -> Any:
        """Looks whether one was left."""
        text = None if self.rank else _jax.peek(f"{self._name}/wish/{what}")
        return None if text is None else json.loads(text)

    def turn(self) -> int:
        """The next number."""
        return next(self._turns)

    def _number(self, what: str) -> int:
        number = self._counts[what]
        self._counts[what] += 1
        return number

    def _ask(self, key: str, rank: int, what: str) -> str:
        began = time.monotonic()
        text = None
        with self._watch.waiting() if self._watch else contextlib.nullcontext():
            # In parts, so that Ctrl-C is heard while waiting.
            while text is None and time.monotonic() - began < self._timeout_s:
                text = _jax.ask(key, timeout_s=min(1.0, self._timeout_s))
        if text is None:
            raise DeadlineError(
                f"worker:{self.rank} waited {self._timeout_s:g} s for worker:{rank} to agree on {what}, and it did not "
                "come. Every process makes the same calls of the trainer in the same order: look for a call that only "
                "one of them makes, or for what holds that worker up",
                task=f"worker:{rank}",
            )
        return text


def check_alike(group: Group, what: str, mine: dict[str, Any]) -> None:
    """Refuses what differs between the processes.

    Args:
        group: the processes.
        what: what is compared, in words.
        mine: this process's plain values by name.

    Raises:
        SpecError: a process has another value than worker 0, with the first name that differs and both values.
    """
    if group.size == 1:
        return
    told = group.each(what, mine)
    for rank, theirs in enumerate(told):
        for name in dict.fromkeys([*told[0], *theirs]):
            first, other = told[0].get(name), theirs.get(name)
            if first != other:
                raise SpecError(
                    f"{what}: worker:{rank} has {name} = {_short(other)}, and worker:0 has {_short(first)}. Every "
                    "process is given the same data and options, and takes its own rows of each batch",
                    task=f"worker:{rank}",
                )


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
