"""The program of a child process: one training run, or some measuring runs one after the other.

`dure.advise.child` runs it as `python -m dure.advise.trial`; `dure.advise.serve` says how it is asked and answers.
"""

from __future__ import annotations

import contextlib
from typing import Any

from dure.advise.cause import replicas
from dure.advise.inputs import Rows
from dure.advise.profile import profile
from dure.advise.record import Control
from dure.advise.serve import Enter, Request, Send, serve
from dure.advise.work import controls_of, measured, prepared, trained
from dure.strategy.mirrored import Mirrored, SingleDevice

__all__ = ["main"]


def main() -> None:
    """Answers one request and ends the process."""
    serve(answer)


def answer(request: Request, send: Send, enter: Enter) -> None:
    """Does what a request asks.

    Args:
        request: What `dure.advise.bench` wrote.
        send: Takes events; the last one is the result.
        enter: Told the part of the work that begins: `data`, `model`, `strategy`, `training`.
    """
    model, rows = prepared(request, send, enter)
    if "controls" in request:
        steps_s = [_measured(request, model, rows, control, enter) for control in controls_of(request)]
        send({"event": "result", "steps_s": steps_s})
        return
    enter("strategy")
    with _strategy(request) as strategy:
        enter("training")
        if "profile_rows" in request:
            send({"event": "result", "profile": _profiled(request, model, strategy, rows)})
        else:
            send({"event": "result", "trial": trained(request, model, strategy, rows)})


def _strategy(request: Request) -> SingleDevice | Mirrored:
    """What trains."""
    name = str(request["strategy"])
    return SingleDevice() if name == "single" else Mirrored(replicas(name), sync_every=request["sync_every"])


def _measured(request: Request, model: object, rows: Rows, control: Control, enter: Enter) -> float:
    """Measures a control: one strategy, or, for n devices without the exchange, n mirrors of one device each."""
    enter("strategy")
    every = request["sync_every"]
    with contextlib.ExitStack() as stack:
        strategies: list[SingleDevice | Mirrored]
        if control.kind == "single":
            strategies = [SingleDevice()]
        elif control.exchange:
            strategies = [Mirrored(control.devices, sync_every=every)]
        else:
            names = [device.name for device in Mirrored(control.devices).devices]
            strategies = [Mirrored(devices=[name], sync_every=every) for name in names]
        for strategy in strategies:
            stack.enter_context(strategy)
        enter("training")
        return measured(request, model, strategies, rows, control)


def _profiled(request: Request, model: object, strategy: SingleDevice | Mirrored, rows: Rows) -> dict[str, Any]:
    """Measures one device at several numbers of rows."""
    return profile(
        model,
        strategy,
        rows.x,
        rows.y,
        rows=request["profile_rows"],
        measure_s=request["measure_s"],
        counted=request["counted"],
    )


if __name__ == "__main__":
    main()
