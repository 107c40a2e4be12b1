"""A fresh process with a deadline: takes one request, sends events as JSON, never outlives its parent."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from dure.devices import configuration

__all__ = ["INSIDE", "TAIL", "Ended", "Event", "environment_for", "event_of", "run"]

INSIDE = "DURE_TRIAL"
"""The environment variable that says to a process that it is such a child."""

TAIL = 12
"""How many of a child's last lines are kept to show when it fails."""

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended.

    Attributes:
        result: What it sent as its result, or None.
        error: The error it sent, as `DureError.to_dict` writes it with the `stage` it came from, or None.
        reason: Why there is no result, in words; empty where there is one.
        tail: The last lines that it wrote.
    """

    result: Event | None = None
    error: Event | None = None
    reason: str = ""
    tail: tuple[str, ...] = ()


def environment_for(cpu_devices: int, *, threads: int | None = None) -> dict[str, str]:
    """The caller's environment and import path for a child with its own number of CPU devices.

    Args:
        cpu_devices: Devices to rehearse with where there is no accelerator.
        threads: Threads of XLA's CPU pool; None leaves what the caller has configured.
    """
    settings = replace(configuration.settings(), cpu_devices=cpu_devices, virtual_gpus=None)
    if threads is not None:
        settings = replace(settings, intra_op_threads=threads)
    environment = configuration.child_environment(settings, os.environ)
    environment[INSIDE] = "1"
    environment.setdefault("KERAS_BACKEND", "jax")
    # The parent's own import path, in its order: with -P nothing is put before it.
    environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return environment


@dataclass(slots=True)
class _Lines:
    """Bytes of one pipe, cut into lines."""

    take: Callable[[str], None]
    rest: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> None:
        self.rest += data
        *lines, last = self.rest.split(b"\n")
        self.rest = bytearray(last[-65536:])  # a line without end must not fill the memory
        for line in lines:
            self.take(line.decode("utf-8", "replace").rstrip())

    def end(self) -> None:
        if self.rest:
            self.take(self.rest.decode("utf-8", "replace").rstrip())


def run(
    request: Mapping[str, Any],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    on_event: Callable[[Event], None],
    module: str = "dure.advise.trial",
) -> Ended:
    """Runs a module of this package as a program with one request.

    The child has a session of its own, so that Ctrl-C reaches only the caller, who ends it; it watches its
    standard input, so that it also ends when the caller is killed.

    Args:
        request: What the child reads, as plain values.
        environment: Its environment variables; `environment_for` makes them.
        timeout_s: Its deadline, seconds; then it is ended.
        on_event: Called with each event on the way, in this thread.
        module: The program, which answers by `dure.advise.serve`.

    Returns:
        Its result, or why there is none. Whatever is raised meanwhile (Ctrl-C) ends the child first.
    """
    deadline = time.monotonic() + timeout_s
    process = subprocess.Popen(  # noqa: S603 - this Python and a module of this package
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
        start_new_session=True,
    )
    try:
        return _follow(process, request, deadline, timeout_s, on_event)
    finally:
        _end(process)


def _follow(
    process: subprocess.Popen[bytes],
    request: Mapping[str, Any],
    deadline: float,
    timeout_s: float,
    on_event: Callable[[Event], None],
) -> Ended:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    tail: deque[str] = deque(maxlen=TAIL)
    final: dict[str, Event] = {}

    def take(line: str) -> None:
        event = event_of(line)
        if event is None:
            tail.append(line)
        elif event["event"] in ("result", "error"):
            final[event["event"]] = event
        else:
            on_event(event)

    pipes = {process.stdout: _Lines(take), process.stderr: _Lines(lambda line: tail.append(line[:400]))}
    with contextlib.suppress(BrokenPipeError):  # it died at once: its last lines say why
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
    in_time = _read(process, pipes, deadline)
    lines = tuple(line for line in tail if line.strip())
    if not in_time:
        return Ended(reason=f"it was not done after {timeout_s:g} s and was ended", tail=lines)
    if "result" in final:
        return Ended(result=final["result"])
    if "error" in final:
        return Ended(error=final["error"], reason=str(final["error"].get("message")), tail=lines)
    return Ended(reason=_death(process.returncode), tail=lines)


def _read(process: subprocess.Popen[bytes], pipes: Mapping[IO[bytes], _Lines], deadline: float) -> bool:
    """Reads both pipes until the process is gone; returns whether that was before the deadline."""
    with selectors.DefaultSelector() as selector:
        for pipe, lines in pipes.items():
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, lines)
        gone = False
        while True:
            # Seen before the pipes are read, so that what a dead process left in them is still read. The end
            # of a pipe is no sign of its death: what it started may hold the pipe, and is ended with it.
            if not gone and process.poll() is not None:
                gone = True
                _kill_group(process)
            ready = selector.select(0.0 if gone else min(0.2, max(0.0, deadline - time.monotonic())))
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                if data:
                    key.data.feed(data)
                else:
                    selector.unregister(key.fileobj)
            if (gone and not ready) or time.monotonic() > deadline:
                break
    for lines in pipes.values():
        lines.end()
    return gone


def event_of(line: str) -> Event | None:
    """The event that a line holds, or None where something else wrote it."""
    if not line.startswith("{"):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            killed = " (often: out of memory)" if -code == signal.SIGKILL else ""
            return f"its process was ended by {signal.Signals(-code).name}{killed}"
        return f"its process was ended by signal {-code}"
    return f"its process ended with code {code} and sent no result"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the child with everything that it started, and closes the pipes."""
    if process.poll() is None:
        _kill_group(process)
    process.wait()
    for end in (process.stdin, process.stdout, process.stderr):
        if end is not None:
            with contextlib.suppress(BrokenPipeError):
                end.close()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
