"""The program of a child process that measures a machine: what products, updates and exchanges take.

`dure.advise.calibrate` runs it as `python -m dure.advise.gauge`. It times loops in the form of the engine's: one
program over all devices, many steps a dispatch, a gradient made by a product, an update of Adam's form, the exchange
in between. What an exchange adds is the difference to the same loop without it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from dure import _jax
from dure.advise import readings
from dure.advise.probe import lower_quartile
from dure.advise.readings import APART, ARRAYS, MANY, PRODUCT, SIZES, STREAM
from dure.advise.serve import Enter, Request, Send, serve
from dure.devices import configuration
from dure.devices.inventory import backing, choose
from dure.launch.ports import Ports
from dure.strategy.exchange import Exchange
from dure.strategy.layout import AXIS

__all__ = ["main"]

ROWS = 32
"""Rows of the product that makes a gradient: so many that XLA writes the gradient out, as it does in a network."""

WINDOW_S = 0.008
TURNS, FEW_TURNS = 6, 2
"""How often each loop is timed again; and those whose steps are long."""

LEAST_STEPS = 3
"""A dispatch has at least so many: each takes fresh memory for its gradients, which is no cost of a step."""

SECOND_TIMEOUT_S = 30.0

Run = Callable[[int], None]
"""Runs so many steps and waits for them."""

Agree = Callable[[float], float]
"""Makes of each process's number the largest; all wait for it."""


class Loop(NamedTuple):
    """A loop to be timed.

    Attributes:
        name: what it measures.
        run: runs it.
    """

    name: str
    run: Run


Maker = Callable[[], Loop]
"""Compiles a loop."""


def main() -> None:
    """Answers one request and ends the process."""
    serve(answer)


def answer(request: Request, send: Send, enter: Enter) -> None:
    """Measures what a request asks for: the `devices` of this process, or a `pair` of processes.

    Args:
        request: `gauge`, and `devices` (how many) or the `port` and `rank` of the second process of a pair.
        send: takes the result: seconds a step, by what was measured.
        enter: told the part of the work that begins.
    """
    enter("calibration")
    if request["gauge"] == "devices":
        send({"event": "result", **_devices(int(request["devices"]))})
    elif request["gauge"] == "pair":
        send({"event": "result", **_pair()})
    else:
        _second(int(request["port"]))
        send({"event": "result"})


def _devices(number: int) -> dict[str, Any]:
    """What one device does by itself, and what several do at the same time."""
    places = [backing(device) for device in choose(number, strategy="the calibration").devices]
    alone, group = _mesh(places[:1]), _mesh(places)
    loops: list[Maker] = _alone(alone) if number <= 2 else []
    if number > 1:
        loops += [*_together(group, SIZES, "sum")]
        loops += [functools.partial(_update, group, SIZES[0], MANY, how) for how in ("together", "sum")]
    if number == 2:
        loops += [functools.partial(_update, group, SIZES[-1], ARRAYS, "branch")]
    kind = places[0].platform
    found: dict[str, Any] = {"kind": "cpu" if kind == "cpu" else "gpu", "times": _time_all(loops)}
    if number <= 2:
        found["dispatch_s"] = _dispatch_s(places[0])
    return found


def _pair() -> dict[str, Any]:
    """What a process with its own share of the cores does by itself, and what two of them do and exchange."""
    began = time.perf_counter()
    configuration.apply()
    with contextlib.closing(Ports("127.0.0.1", 1)) as ports, _started(ports.numbers[0]):
        port = ports.numbers[0]
        _jax.join(f"127.0.0.1:{port}", 2, 0, bind=f"127.0.0.1:{port}", timeout_s=SECOND_TIMEOUT_S)
        places = [_own_device(rank) for rank in range(2)]
        start_s = time.perf_counter() - began
        alone = _mesh(places[:1])
        times = _time_all(_alone(alone))
        times |= _time_together(_mesh(places))
    return {"kind": places[0].platform, "start_s": start_s, "times": times}


def _second(port: int) -> None:
    """The second process of a pair: takes part, and says nothing."""
    configuration.apply()
    _jax.join(f"127.0.0.1:{port}", 2, 1, bind="", timeout_s=SECOND_TIMEOUT_S)
    _time_together(_mesh([_own_device(rank) for rank in range(2)]))
    jax.distributed.shutdown()


def _own_device(rank: int) -> jax.Device:
    """The first device of a process."""
    return next(device for device in jax.devices() if device.process_index == rank)


@contextlib.contextmanager
def _started(port: int) -> Iterator[None]:
    """The second process, which ends with this one."""
    request = json.dumps({"gauge": "second", "port": port}).encode() + b"\n"
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "dure.advise.gauge"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=os.environ,
    )
    assert process.stdin is not None
    try:
        process.stdin.write(request)
        process.stdin.flush()
        yield
        # Both leave JAX's service together: the first to go would be taken for dead by the other.
        jax.distributed.shutdown()
        process.wait(SECOND_TIMEOUT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdin.close()


def _mesh(places: list[jax.Device]) -> Mesh:
    return Mesh(np.array(places), (AXIS,), axis_types=(AxisType.Auto,))


def _time_all(makers: list[Maker]) -> dict[str, float]:
    """Seconds a step of each loop, once all are compiled: what compiles must not disturb what is timed."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        loops = list(pool.map(lambda make: make(), makers))
    return _step_seconds(loops, _alone_in_this)


def _step_seconds(loops: list[Loop], agree: Agree) -> dict[str, float]:
    """The lower quartile of short windows of each loop.

    The loops take turns: what is subtracted from one another has seen the same of whatever else the machine did.

    Args:
        loops: compiled; several processes that run one of them together give the same ones in the same order.
        agree: makes of this process's number the largest of all, so that all run the same number of steps.
    """
    counts, windows = [], []
    for loop in loops:
        loop.run(1)
        count, seconds = LEAST_STEPS, agree(_seconds(loop.run, LEAST_STEPS))
        while seconds < WINDOW_S / 2:
            count = max(count * 2, int(count * WINDOW_S / max(seconds, 1e-6)))
            seconds = agree(_seconds(loop.run, count))
        counts.append(count)
        windows.append([seconds / count])
    for turn in range(TURNS):
        for loop, count, times in zip(loops, counts, windows, strict=True):
            # Long steps vary little: a few windows tell.
            if turn < FEW_TURNS or count > LEAST_STEPS:
                agree(0.0)
                times.append(_seconds(loop.run, count) / count)
    return {loop.name: lower_quartile(times) for loop, times in zip(loops, windows, strict=True)}


def _alone_in_this(number: float) -> float:
    """Of one process its own number is the largest."""
    return number


def _seconds(run: Run, count: int) -> float:
    began = time.perf_counter()
    run(count)
    return time.perf_counter() - began


def _time_together(mesh: Mesh) -> dict[str, float]:
    """The same in two processes: both run the same number of steps, which the exchange itself keeps in time."""
    # Compiled one after the other: each program joins the processes in the order in which it is made.
    return _step_seconds([make() for make in _together(mesh, APART, "flat")], _meeting(mesh))


def _alone(mesh: Mesh) -> list[Maker]:
    """What one device does by itself."""
    updates = [functools.partial(_update, mesh, size, ARRAYS, "alone") for size in SIZES[1:]]
    return [functools.partial(_product, mesh, "alone"), functools.partial(_stream, mesh), *updates]


def _together(mesh: Mesh, sizes: Sequence[int], exchange: str) -> list[Maker]:
    """What several do at the same time, and what they exchange."""
    loops: list[Maker] = [functools.partial(_product, mesh, "together")]
    for size in sizes:
        loops += [functools.partial(_update, mesh, size, ARRAYS, how) for how in ("together", exchange)]
    return loops


def _meeting(mesh: Mesh) -> Agree:
    """The largest of the numbers that both processes bring; both wait for it."""
    together = jax.jit(
        jax.shard_map(lambda x: jax.lax.pmax(x[0], AXIS), mesh=mesh, in_specs=P(AXIS), out_specs=P(), check_vma=False)
    )
    apart = NamedSharding(mesh, P(AXIS))

    def meet(number: float) -> float:
        mine = jax.make_array_from_process_local_data(apart, np.array([number], np.float32))
        return float(together(mine).addressable_data(0))

    return meet


def _placed(tree: Any, mesh: Mesh) -> Any:
    everywhere = NamedSharding(mesh, P())
    if everywhere.is_fully_addressable:
        return jax.device_put(tree, everywhere)
    return jax.tree.map(lambda leaf: jax.make_array_from_callback(leaf.shape, everywhere, lambda at: leaf[at]), tree)


def _looped(name: str, mesh: Mesh, step: Callable[[Any, Any, Any], Any], carry: Any, constant: Any) -> Loop:
    """A compiled loop of `step(i, carry, constant)` on every device of a mesh."""

    def inner(carry: Any, count: Any, constant: Any) -> Any:
        return jax.lax.fori_loop(0, count, lambda i, c: step(i, c, constant), carry)

    program = jax.shard_map(inner, mesh=mesh, in_specs=(P(), P(), P()), out_specs=P(), check_vma=False)
    box = [_placed(carry, mesh)]
    constant = _placed(constant, mesh)
    compiled = jax.jit(program, donate_argnums=0).lower(box[0], np.int32(1), constant).compile()

    def run(count: int) -> None:
        box[0] = jax.block_until_ready(compiled(box[0], np.int32(count), constant))

    return Loop(name, run)


def _product(mesh: Mesh, how: str) -> Loop:
    """A chain of square products."""

    def step(_: Any, value: Any, factor: Any) -> Any:
        return (value @ factor) * np.float32(1 / PRODUCT)

    ones = np.ones((PRODUCT, PRODUCT), np.float32)
    return _looped(readings.product(how), mesh, step, ones, ones)


def _stream(mesh: Mesh) -> Loop:
    """Adam's update of some weights with gradients that cost nothing: all of it moves through memory."""
    shape = _shape(SIZES[-1], ARRAYS)

    def step(_: Any, carry: Any, row: Any) -> Any:
        return _adam(carry, [jnp.broadcast_to(row, shape)] * ARRAYS)

    return _looped(STREAM, mesh, step, _fresh(shape, ARRAYS), np.full(shape[1], 1e-2, np.float32))


def _shape(size_bytes: int, arrays: int) -> tuple[int, int]:
    """About square, and no power of two: rows a power of two apart fall on one another in the cache."""
    numbers = size_bytes // 4 // arrays
    wide = int(0.98 * numbers**0.5)
    return numbers // wide, wide


def _fresh(shape: tuple[int, int], arrays: int) -> Any:
    """Weights and their two moments."""
    return tuple([np.full(shape, 1e-2, np.float32) for _ in range(arrays)] for _ in range(3))


def _update(mesh: Mesh, size_bytes: int, arrays: int, how: str) -> Loop:
    """A step that is nearly all update: gradients of weights from a few rows, exchanged or not, and Adam.

    Args:
        mesh: the devices.
        size_bytes: of the weights; their two moments are as large each.
        arrays: into how many they are cut.
        how: `alone` and `together` (nothing is exchanged), `sum` (each array), `flat` (all in one), or `branch`: the
            new state goes through a choice that is never taken, as local SGD has one around its average. XLA copies it.
    """
    shape, number = _shape(size_bytes, arrays), len(mesh.devices.flat)

    def step(i: Any, carry: Any, rows: Any) -> Any:
        scale = 1 + i * np.float32(1e-9)  # so that no gradient is the same twice, and made only once
        grads = [(x * scale).T @ y for x, y in zip(*rows, strict=True)]
        if how in ("sum", "flat"):
            grads = Exchange(is_flat=how == "flat").sum_all(grads)
        moved = _adam(carry, grads)
        if how == "branch":
            return jax.lax.cond(i * number > 2**30, lambda c: jax.lax.psum(c, AXIS), lambda c: c, moved)
        return moved

    rows = tuple([np.full((ROWS, side), 1e-2, np.float32) for _ in range(arrays)] for side in shape)
    return _looped(readings.update(how, arrays, size_bytes), mesh, step, _fresh(shape, arrays), rows)


def _adam(carry: Any, grads: list[Any]) -> Any:
    """One step of Adam, but for its correction of the start."""
    weights, means, squares = carry
    means = [0.9 * m + 0.1 * g for m, g in zip(means, grads, strict=True)]
    squares = [0.999 * v + 0.001 * g * g for v, g in zip(squares, grads, strict=True)]
    moved = zip(weights, means, squares, strict=True)
    return [w - 1e-3 * m / (jnp.sqrt(v) + 1e-8) for w, m, v in moved], means, squares


def _dispatch_s(place: jax.Device) -> float:
    """Seconds from calling a compiled program that does nothing until its result is there."""
    number = jax.device_put(np.float32(0), place)
    program = jax.jit(lambda x: x + 1)

    def run(count: int) -> None:
        for _ in range(count):
            jax.block_until_ready(program(number))

    return _step_seconds([Loop("dispatch", run)], _alone_in_this)["dispatch"]


if __name__ == "__main__":
    main()
