"""The program of one of several processes that train together for a comparison.

`dure.advise.together` starts them by the launcher as `-m dure.advise.member request.json`. Each reads the same request.
The first sends what it is and what came out, as a trial by itself does; the others that they are done.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dure import _jax
from dure.advise.child import Event
from dure.advise.inputs import Rows
from dure.advise.record import Control
from dure.advise.serve import Enter, Request, Send, sender, told
from dure.advise.work import controls_of, measured, peak_bytes, prepared, trained
from dure.strategy.group import ALONE, Group, Processes
from dure.strategy.mirrored import Mirrored
from dure.strategy.multi_worker import MultiWorkerMirrored

__all__ = ["main"]

MEET_TIMEOUT_S = 600.0
"""How long the processes wait for one another before a measuring run."""


def main(path: Path) -> None:
    """Answers the request of a file; what is raised ends the process, and the launcher tells of it.

    Args:
        path: the file.
    """
    send, stages = sender(), ["strategy"]
    try:
        answer(json.loads(path.read_text(encoding="utf-8")), send, stages.append)
    except Exception as error:
        # The launcher names the process; this says whether model or data are to blame, and so every strategy.
        send({"event": "error", "stage": stages[-1], **told(error, stages[-1]).to_dict()})
        raise


def answer(request: Request, send: Send, enter: Enter) -> None:
    """Does this process's part of what a request asks.

    Args:
        request: What `dure.advise.bench` wrote.
        send: Takes events; the last one is the `result`, or `done` of those that have none.
        enter: Told the part of the work that begins: `strategy`, `data`, `model`, `training`.
    """
    # Before anything else, since JAX joins processes only as long as it has not opened its devices.
    with MultiWorkerMirrored(1, sync_every=request["sync_every"], timeout_s=MEET_TIMEOUT_S) as strategy:
        model, rows = prepared(request, send if strategy.is_chief else _keep_silent, enter)
        enter("training")
        if "controls" in request:
            steps_s = [_measured(request, model, rows, control, strategy) for control in controls_of(request)]
            result: Event = {"event": "result", "steps_s": steps_s}
        else:
            result = {"event": "result", "trial": trained(request, model, strategy, rows)}
        send(result if strategy.is_chief else {"event": "done", "peak_bytes": peak_bytes()})


def _measured(request: Request, model: object, rows: Rows, control: Control, strategy: MultiWorkerMirrored) -> float:
    """Measures a control: the strategy, or one mirror in each process, all at work at the same time."""
    if control.exchange:
        return measured(request, model, [strategy], rows, control)
    _meeting().each("begin", None)
    with Mirrored(1, sync_every=request["sync_every"]) as alone:
        return measured(request, model, [alone], rows, control)


def _meeting() -> Group:
    """The processes, to begin a measuring run together."""
    joined = _jax.joined()
    if joined is None:
        return ALONE
    return Processes(*joined, name="dure/comparison", timeout_s=MEET_TIMEOUT_S)


def _keep_silent(event: dict[str, object]) -> None:
    """Takes what the first process sends already."""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
