"""What every child process of this package does: one request in, events out, an end with its parent.

The first line of standard input is the request; events go to standard output, a line of JSON each. The end of standard
input is the end of the parent: then this process ends too. What the caller's own code prints goes to standard error,
so that it never mixes with the events.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from dure.errors import DureError, StepError

__all__ = ["Enter", "Request", "Send", "sender", "serve", "told"]

Request = Mapping[str, Any]
Send = Callable[[dict[str, Any]], None]
Enter = Callable[[str], None]


def serve(answer: Callable[[Request, Send, Enter], None]) -> None:
    """Reads one request, has it answered, and ends the process.

    Args:
        answer: takes the request, a function that sends events, the last of which is the `result`, and one that is
            told which part of the work begins. What it raises is sent as an `error`.
    """
    send = sender()
    line = sys.stdin.readline()
    if not line:
        return
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    stages = ["data"]
    try:
        answer(json.loads(line), send, stages.append)
    except Exception as error:  # noqa: BLE001  # whatever the caller's code raises becomes an answer
        traceback.print_exception(error)
        sys.stderr.flush()
        send({"event": "error", "stage": stages[-1], **told(error, stages[-1]).to_dict()})
        os._exit(1)  # threads of the caller's own, or of a loader, must not keep the process
    sys.stderr.flush()
    os._exit(0)


def told(error: Exception, stage: str) -> DureError:
    """An error as one of Dure's, which can travel."""
    if isinstance(error, DureError):
        return error
    return StepError(f"{stage} was under way and raised {type(error).__name__}: {error}; its last lines say where")


def sender() -> Send:
    """Keeps standard output for events, and sends whatever else is written there to standard error."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a process that dies must not take its last words with it

    def send(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    return send


def _end_with_parent() -> None:
    """Ends this process when standard input ends: nobody is left to read what it sends."""
    while sys.stdin.buffer.read(1):
        pass
    os._exit(1)
