"""What a process does for a comparison once it knows what to train with: a training run, or some measuring runs.

`dure.advise.trial` is the program of one process by itself, `dure.advise.member` that of one of several.
"""

from __future__ import annotations

import dataclasses
import math
import platform
import resource
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import psutil

from dure.advise.curve import thinned
from dure.advise.inputs import Rows, make_model, read_data, shaped
from dure.advise.probe import step_seconds
from dure.advise.record import Control
from dure.advise.serve import Enter, Request, Send
from dure.strategy.mirrored import Mirrored, SingleDevice
from dure.strategy.multi_worker import MultiWorkerMirrored
from dure.train.trainer import Trainer

__all__ = ["Trains", "controls_of", "measured", "peak_bytes", "prepared", "trained"]

Trains = SingleDevice | Mirrored | MultiWorkerMirrored
"""The strategies that a comparison knows."""

PACKAGES = ("dure", "jax", "jaxlib", "keras", "numpy", "optax")
"""Whose versions a report names."""


def prepared(request: Request, send: Send, enter: Enter) -> tuple[object, Rows]:
    """The model and the data of a request; what is known of them is sent.

    Args:
        request: what `dure.advise.bench` wrote.
        send: takes the `facts`.
        enter: told the part of the work that begins: `data`, `model`.
    """
    enter("data")
    rows = read_data(request)
    enter("model")
    model = make_model(request, rows)
    rows = shaped(rows, model, seeded=request["model"]["kind"] == "seed")
    send({"event": "facts", "facts": dataclasses.asdict(rows.facts()), "versions": _versions()})
    return model, rows


def trained(request: Request, model: object, strategy: Trains, rows: Rows) -> dict[str, Any]:
    """Trains as a user would, and says how it went.

    Args:
        request: `epochs`, `batch_size` and `seed`.
        model: what is trained.
        strategy: what trains it; closed by the caller.
        rows: the data.

    Returns:
        What `dure.advise.record.Trial` holds but for strategy and repeat, as plain values.
    """
    trainer = Trainer(model, strategy, seed=request["seed"])
    ready_s = time.time() - psutil.Process().create_time()
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
        "ready_s": max(0.0, ready_s),
        "peak_bytes": peak_bytes(),
        "devices": strategy.num_replicas,
        "kind": devices[0].kind,
        "virtual": any(device.virtual for device in devices) or _share_cores(strategy),
        "metrics": {name: value for name, value in metrics.items() if math.isfinite(value)},
        "curve": [point for point in thinned(history.curve, steps_per_epoch) if math.isfinite(point[2])],
    }


def _share_cores(strategy: Trains) -> bool:
    """Whether processes of one machine train on its one processor."""
    several = isinstance(strategy, MultiWorkerMirrored) and strategy.num_workers > 1
    return several and strategy.devices[0].kind == "cpu"


def controls_of(request: Request) -> list[Control]:
    """The measuring runs that a request asks for."""
    return [Control(**values) for values in request["controls"]]


def measured(request: Request, model: object, strategies: Sequence[Trains], rows: Rows, control: Control) -> float:
    """Measures a step, the meetings of the replicas spread over the steps between them.

    Args:
        request: `sync_every`, and `measure_s`: how long to measure, seconds.
        model: what is trained.
        strategies: what trains it: one, or those of this process that exchange nothing.
        rows: the data.
        control: what is measured.

    Returns:
        Seconds a step.
    """
    sync_steps = None
    if control.exchange and control.kind != "single" and request["sync_every"] == "epoch":
        sync_steps = math.ceil(len(jax.tree.leaves(rows.x)[0]) / control.batch_size)
    replicas = 1 if control.exchange else control.devices
    return step_seconds(
        model,
        strategies,
        rows.x,
        rows.y,
        batch_size=-(-control.batch_size // replicas),
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


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        if package in sys.modules:
            try:
                found[package] = metadata.version(package)
            except metadata.PackageNotFoundError:  # run from its source folder
                found[package] = str(getattr(sys.modules[package], "__version__", "?"))
    return found
