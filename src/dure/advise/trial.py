"""The program of a child process: one training run, or one measuring run.

`dure.advise.child` runs it as `python -m dure.advise.trial`. The first line of standard input is the request;
events go to standard output, a line of JSON each. The end of standard input is the end of the parent: then this process
ends too. What the caller's own code prints goes to standard error, so that it never mixes with the events.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import os
import platform
import resource
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from dure.advise.cause import replicas
from dure.advise.curve import thinned
from dure.advise.inputs import Rows, make_model, read_data, shaped
from dure.advise.probe import step_seconds
from dure.errors import DureError, StepError
from dure.strategy.mirrored import Mirrored, SingleDevice
from dure.train.trainer import Trainer

__all__ = ["main"]

Request = Mapping[str, Any]
Send = Callable[[dict[str, Any]], None]

PACKAGES = ("dure", "jax", "jaxlib", "keras", "numpy", "optax")
"""Whose versions a report names."""


def main() -> None:
    """Reads one request, does it, sends one `result` or `error`, and ends the process."""
    send = _sender()
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
        send({"event": "error", "stage": stages[-1], **_told(error, stages[-1]).to_dict()})
        os._exit(1)  # threads of the caller's own, or of a loader, must not keep the process
    sys.stderr.flush()
    os._exit(0)


def answer(request: Request, send: Send, enter: Callable[[str], None]) -> None:
    """Does what a request asks.

    Args:
        request: What `dure.advise.bench` wrote.
        send: Takes events; the last one is the result.
        enter: Told the part of the work that begins: `data`, `model`, `strategy`, `training`.
    """
    enter("data")
    rows = read_data(request)
    enter("model")
    model = make_model(request, rows)
    rows = shaped(rows, model, seeded=request["model"]["kind"] == "seed")
    send({"event": "facts", "facts": dataclasses.asdict(rows.facts()), "versions": _versions()})
    enter("strategy")
    with contextlib.ExitStack() as stack:
        strategies = _strategies(request)
        for strategy in strategies:
            stack.enter_context(strategy)
        enter("training")
        if "measure_s" in request:
            send({"event": "result", "step_s": _measured(request, model, strategies, rows)})
        else:
            send({"event": "result", "trial": _trained(request, model, strategies[0], rows)})


def _told(error: Exception, stage: str) -> DureError:
    """An error as one of Dure's, which can travel."""
    if isinstance(error, DureError):
        return error
    return StepError(f"{stage} was under way and raised {type(error).__name__}: {error}; its last lines say where")


def _strategies(request: Request) -> list[SingleDevice | Mirrored]:
    """What trains: one strategy, or, for n devices without the exchange, n mirrors of one device each."""
    name = str(request["strategy"])
    if name == "single":
        return [SingleDevice()]
    every = request["sync_every"]
    if request.get("exchange", True):
        return [Mirrored(replicas(name), sync_every=every)]
    names = [device.name for device in Mirrored(replicas(name)).devices]
    return [Mirrored(devices=[device], sync_every=every) for device in names]


def _trained(request: Request, model: object, strategy: SingleDevice | Mirrored, rows: Rows) -> dict[str, Any]:
    """Trains as a user would, and says how it went."""
    trainer = Trainer(model, strategy, seed=request["seed"])
    history = trainer.fit(
        rows.x,
        rows.y,
        epochs=request["epochs"],
        batch_size=request["batch_size"],
        seed=request["seed"],
        verbose=0,
    )
    metrics: dict[str, float] = {}
    if rows.x_test is not None:
        metrics = trainer.evaluate(rows.x_test, rows.y_test)
    devices = strategy.devices
    steps_per_epoch = math.ceil(len(jax.tree.leaves(rows.x)[0]) / request["batch_size"])
    return {
        "seconds": history.seconds,
        "steps": history.steps,
        "step_s": 1 / history.steps_per_s,
        "first_step_s": history.first_step_s,
        "peak_bytes": peak_bytes(),
        "devices": len(devices),
        "kind": devices[0].kind,
        "virtual": any(device.virtual for device in devices),
        "metrics": {name: value for name, value in metrics.items() if math.isfinite(value)},
        "curve": [point for point in thinned(history.curve, steps_per_epoch) if math.isfinite(point[2])],
    }


def _measured(request: Request, model: object, strategies: Sequence[SingleDevice | Mirrored], rows: Rows) -> float:
    """Measures a step, the meetings of the replicas spread over the steps between them."""
    batch_size, every = request["batch_size"], request["sync_every"]
    sync_steps = None
    if request["exchange"] and isinstance(strategies[0], Mirrored) and every == "epoch":
        sync_steps = math.ceil(len(jax.tree.leaves(rows.x)[0]) / batch_size)
    return step_seconds(
        model,
        strategies,
        rows.x,
        rows.y,
        batch_size=-(-batch_size // len(strategies)),
        sync_steps=sync_steps,
        measure_s=request["measure_s"],
    )


def peak_bytes() -> int:
    """The most resident memory that this process has had so far.

    Linux's own counter: `getrusage` there also counts what the parent had when it started this process.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def _sender() -> Send:
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


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        if package in sys.modules:
            try:
                found[package] = metadata.version(package)
            except metadata.PackageNotFoundError:  # run from its source folder
                found[package] = str(getattr(sys.modules[package], "__version__", "?"))
    return found


if __name__ == "__main__":
    main()
