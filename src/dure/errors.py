"""Every exception of Dure: one class per answer that the caller can give.

```
DureError
├── SpecError (also ValueError)  the request is wrong as written: mend the call
├── TraceError                   the function cannot be traced as it is: mend the function
├── PlaceError                   a node cannot run where it asks to: mend the request or allow soft placement
├── CompileError                 XLA refused the program: mend the program or choose another device
├── StepError                    a step failed while it ran: look at node, device, task and step
│   ├── LostError                a task went away: restart it, restore, or go on without it
│   ├── DeadlineError            a deadline passed: give more time or look at what is missing
│   └── CancelledError           somebody ended it on purpose: nothing to mend
├── StateError                   a name exists with another shape, is missing, or is uninitialised
├── QueueClosedError             the queue ended: leave the loop
├── ClosedError                  the session, server or strategy is closed: open a new one
├── BusyError                    a limit is reached: wait and try again, or raise the limit
├── CheckpointError              a checkpoint is missing, damaged or of another model: use another one
├── DataError                    the data are missing, damaged or of the wrong form: mend the data
├── SecurityError                no token, a wrong one, or no TLS where it is needed: mend the credentials
└── InternalError                Dure itself is wrong: report it
```

A message has three parts: what was asked, what is so, what to do. Where it happened is held by the attributes
`node`, `device`, `task` and `step`, which survive copying and `to_dict`/`from_dict` (and so a wire), because
a program can act on an attribute where a person reads the message.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

__all__ = [
    "BusyError",
    "CancelledError",
    "CheckpointError",
    "ClosedError",
    "CompileError",
    "DataError",
    "DeadlineError",
    "DureError",
    "InternalError",
    "LostError",
    "PlaceError",
    "QueueClosedError",
    "SecurityError",
    "SpecError",
    "StateError",
    "StepError",
    "TraceError",
    "from_dict",
    "hint",
    "near",
]


class DureError(Exception):
    """The root of the tree: catch it to catch whatever Dure raises on purpose.

    Args:
        message: what was asked, what is so, what to do.
        node: name of the node of the graph that failed, as `loss/sum`.
        device: full name of the device, as `/job:worker/task:1/device:gpu:0`.
        task: name of the task, as `/job:ps/task:0`.
        step: number of the step, from 0.

    Example:
        >>> error = DureError("asked for 4 replicas, there are 2 devices; ask for 2", device="/cpu:0", step=7)
        >>> error.device, error.step, error.node
        ('/cpu:0', 7, None)
    """

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        device: str | None = None,
        task: str | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(message)
        self.node = node
        self.device = device
        self.task = task
        self.step = step

    @property
    def message(self) -> str:
        """The text of the error, as it was given."""
        return str(self.args[0])

    def to_dict(self) -> dict[str, str | int | None]:
        """Returns the error as plain values (strings, int, None) that any encoding can carry.

        Example:
            >>> DataError("file x has 3 bytes, expected 4; fetch it again", step=2).to_dict()["error"]
            'DataError'
        """
        return {
            "error": type(self).__name__,
            "message": self.message,
            "node": self.node,
            "device": self.device,
            "task": self.task,
            "step": self.step,
        }


class SpecError(DureError, ValueError):
    """A request is wrong as written (a name, a number, a shape, an option): mend the call."""


class TraceError(DureError):
    """A function cannot be traced as it is written: mend the function."""


class PlaceError(DureError):
    """A node cannot run on the device that it asks for: mend the request, or allow soft placement."""


class CompileError(DureError):
    """XLA refused the program: mend the program, or choose another device."""


class StepError(DureError):
    """A step failed while it ran: look at `node`, `device`, `task` and `step`, then run it again or stop."""


class LostError(StepError):
    """A task went away: start it again and restore its state, or go on without it."""


class DeadlineError(StepError):
    """A deadline passed: give more time, or look at the task, device or node that is missing."""


class CancelledError(StepError):
    """The step was ended on purpose, by a caller or because another part failed: nothing to mend here."""


class StateError(DureError):
    """A name has another shape, is missing, or is uninitialised: initialise it, or use another name."""


class QueueClosedError(DureError):
    """The queue is closed and gives nothing more: leave the loop, the data have ended."""


class ClosedError(DureError):
    """The session, server, strategy or trainer is closed: open a new one."""


class BusyError(DureError):
    """A limit (memory, sessions, requests in flight) is reached: wait and try again, or raise the limit."""


class CheckpointError(DureError):
    """A checkpoint is missing, damaged, or of another model: restore another one."""


class DataError(DureError):
    """Data are missing, damaged, or not of the form that the model takes: mend or fetch the data."""


class SecurityError(DureError):
    """A token is missing or wrong, or TLS is needed and absent: mend the credentials."""


class InternalError(DureError):
    """Dure itself did something that it never should: report it with the message and what led to it."""


def from_dict(record: Mapping[str, object]) -> DureError:
    """Makes the error again that `DureError.to_dict` took apart.

    A class that this version does not know (a newer peer sent it) becomes a `StepError` whose message starts
    with that class's name, so that nothing of it is lost.

    Args:
        record: what `to_dict` returned: `error`, `message` and the four attributes.

    Returns:
        An error of the same class, message and attributes.

    Example:
        >>> from_dict(LostError("task /job:ps/task:0 ended with code 9; start it again", step=3).to_dict())
        LostError('task /job:ps/task:0 ended with code 9; start it again')
    """
    name, message = str(record.get("error")), str(record.get("message"))
    kind = _tree(DureError).get(name)
    if kind is None:
        kind, message = StepError, f"{name}: {message}"

    def text(field: str) -> str | None:
        value = record.get(field)
        return None if value is None else str(value)

    step = record.get("step")
    return kind(
        message,
        node=text("node"),
        device=text("device"),
        task=text("task"),
        step=step if isinstance(step, int) else None,
    )


def near(asked: str, existing: Iterable[str], *, limit: int = 3) -> list[str]:
    """Returns the names that somebody who typed `asked` may have meant, the likeliest first.

    Args:
        asked: what was typed.
        existing: the names that there are.
        limit: the most names to return.

    Example:
        >>> near("fashion-mnst", ["digits", "mnist", "fashion_mnist"])
        ['fashion_mnist']
        >>> near("Mirorred", ["single", "mirrored"])
        ['mirrored']
    """
    by_form: dict[str, str] = {}
    for name in existing:
        by_form.setdefault(_form(name), name)
    forms = difflib.get_close_matches(_form(asked), by_form, n=limit, cutoff=0.55)
    return [by_form[form] for form in forms]


def hint(asked: str, existing: Iterable[str], *, limit: int = 24) -> str:
    """Returns the sentence for a wrong name: near misses first, then what there is.

    Args:
        asked: what was typed.
        existing: the names that there are, in any order.
        limit: the most names to list; the rest is counted.

    Example:
        >>> hint("digit", ["mnist", "digits"])
        'Did you mean `digits`? There are: digits, mnist.'
        >>> hint("cifar", ["mnist", "digits"])
        'There are: digits, mnist.'
        >>> hint("x", [])
        'There are none.'
    """
    names = sorted(set(existing))
    if not names:
        return "There are none."
    close = near(asked, names)
    question = f"Did you mean {' or '.join(f'`{name}`' for name in close)}? " if close else ""
    rest = len(names) - limit
    more = f" and {rest} more" if rest > 0 else ""
    return f"{question}There are: {', '.join(names[:limit])}{more}."


def _form(name: str) -> str:
    """Letter case and the choice of dash or underscore are never what was meant to differ."""
    return name.lower().replace("-", "_")


def _tree(root: type[DureError]) -> dict[str, type[DureError]]:
    found = {root.__name__: root}
    for kind in root.__subclasses__():
        found.update(_tree(kind))
    return found
