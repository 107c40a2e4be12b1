"""A trial in several processes of this machine: started by the launcher, watched, and ended together."""

from __future__ import annotations

import contextlib
import json
import queue
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dure.advise import child
from dure.advise.child import TAIL, Ended, Event
from dure.cluster.spec import ClusterSpec
from dure.devices import accelerators, host
from dure.devices.nvidia import Gpu
from dure.launch import share
from dure.launch.group import Group, Order
from dure.launch.keeper import Keeper
from dure.launch.output import Pump
from dure.launch.ports import Ports
from dure.launch.verdict import Fault, Limits, Wait, judge

__all__ = ["environments_for", "run"]

HOST = "127.0.0.1"
"""The processes meet where no other machine reaches them."""

VISIBLE = ("CUDA_VISIBLE_DEVICES", "JAX_CUDA_VISIBLE_DEVICES")
"""The variables that say which GPUs a process may use."""

TICK_S = 0.1
"""How often the processes are looked at, in seconds."""

PORT_TRIES = 3
"""How often the group is started again when something else takes the port that was free a moment ago."""


def run(
    request: Mapping[str, Any],
    *,
    workers: int,
    timeout_s: float,
    on_event: Callable[[Event], None],
) -> Ended:
    """Runs one request in several processes with a share of the cores, or of the GPUs, each.

    Ctrl-C reaches only the caller, who ends them; if the caller is killed, the launcher's guard does.

    Args:
        request: What each of them reads, as plain values.
        workers: How many.
        timeout_s: Their deadline, seconds; then they are ended.
        on_event: Called with each event on the way, in this thread.

    Returns:
        The first one's result, its memory that of all of them; or why there is none, and which process is to blame.
        Whatever is raised meanwhile (Ctrl-C) ends all of them first.

    Raises:
        SpecError: There are GPUs, and fewer than processes.
    """
    deadline_s = time.monotonic() + timeout_s
    environ, gpus = child.environment_for(1), accelerators.survey().gpus
    environments = environments_for(workers, environ, cores=host.cores(), gpus=gpus)
    with contextlib.closing(Keeper()) as keeper, tempfile.TemporaryDirectory(prefix="dure-trial-") as folder:
        keeper.folder(Path(folder))
        path = Path(folder) / "request.json"
        path.write_text(json.dumps(request), encoding="utf-8")
        for _ in range(PORT_TRIES):
            attempt = _Attempt(workers, deadline_s, timeout_s, on_event)
            attempt.run(("-m", "dure.advise.member", str(path)), environments, keeper)
            if not attempt.is_port_taken:
                break
    return attempt.ended()


def environments_for(
    workers: int, environ: Mapping[str, str], *, cores: int, gpus: Sequence[Gpu]
) -> list[dict[str, str]]:
    """The variables of each process.

    Args:
        workers: How many.
        environ: What all of them inherit.
        cores: Cores of this machine, which they share.
        gpus: The GPUs that the caller's variables leave, which they share too.

    Raises:
        SpecError: There are GPUs, and fewer than processes.
    """
    if gpus:  # each must see others than its neighbour, so what says that all are to be seen goes
        environ = {name: value for name, value in environ.items() if name not in VISIBLE}
    return [share.variables(worker, workers, environ, cores=cores, gpus=gpus) for worker in range(workers)]


@dataclass(slots=True)
class _Attempt:
    """One start of the processes.

    Args:
        workers: how many.
        deadline_s: when they are to be done, seconds of the monotonic clock.
        timeout_s: how long that is from the start.
        on_event: called with each event on the way.
    """

    workers: int
    deadline_s: float
    timeout_s: float
    on_event: Callable[[Event], None]
    lines: queue.SimpleQueue[bytes] = field(default_factory=queue.SimpleQueue)
    last: list[Event] = field(default_factory=list)
    error: Event | None = None
    fault: Fault | None = None
    tail: tuple[str, ...] = ()
    where: str = ""
    is_late: bool = False

    def run(self, command: tuple[str, ...], environments: list[dict[str, str]], keeper: Keeper) -> None:
        """Starts them, and leaves none."""
        with contextlib.closing(Ports(HOST, self.workers)) as ports:
            spec = ClusterSpec({"worker": [f"{HOST}:{port}" for port in ports.numbers]})
            pump = Pump(self.lines.put, _drop, is_prefixed=False)
            group = Group(Order(command, spec, 0, environments), pump, keeper)
            try:
                self._watch(group, pump)
            finally:
                # Nobody waits for an orderly end, in which JAX has each wait for the others: all is said by now.
                group.end(grace_s=0.0)
            self._take(0.0)

    def _watch(self, group: Group, pump: Pump) -> None:
        """Looks at the processes until all have said what they have to, one is at fault, or their time is over."""
        while True:
            self._take(TICK_S)
            if len(self.last) == self.workers:
                return
            verdict = judge(group.look(), Limits())
            if verdict is Wait.DONE:
                return
            if isinstance(verdict, Fault):
                self.fault = verdict
                self.where, self.tail = group.describe(verdict)
                return
            if time.monotonic() > self.deadline_s:
                self.is_late, self.tail = True, tuple(pump.tail("worker:0"))
                return

    def _take(self, timeout_s: float) -> None:
        """Takes the events that have come, waiting a moment for the first."""
        while True:
            try:
                line = self.lines.get(timeout=timeout_s) if timeout_s else self.lines.get_nowait()
            except queue.Empty:
                return
            timeout_s = 0.0
            event = child.event_of(line.decode("utf-8", "replace"))
            if event is None:
                continue
            if event["event"] in ("result", "done"):
                self.last.append(event)
            elif event["event"] == "error":
                self.error = self.error or event
            else:
                self.on_event(event)

    @property
    def is_port_taken(self) -> bool:
        """Whether JAX could not listen where it was to."""
        raised = None if self.fault is None else self.fault.seen.raised
        return raised is not None and raised.is_port_taken

    def ended(self) -> Ended:
        """How it ended."""
        result = next((event for event in self.last if event["event"] == "result"), None)
        if result is not None:
            if "trial" in result:
                others = sum(int(event.get("peak_bytes", 0)) for event in self.last if event["event"] == "done")
                result = {**result, "trial": {**result["trial"], "peak_bytes": result["trial"]["peak_bytes"] + others}}
            return Ended(result=result)
        lines = [line for line in self.tail if line.strip() and child.event_of(line) is None]
        if self.is_late:
            reason = f"it was not done after {self.timeout_s:g} s and was ended"
        elif self.fault is not None:
            reason = self.fault.line(self.where)
        else:
            reason = "its processes ended and sent no result"
        return Ended(error=self.error, reason=reason, tail=tuple(lines[-TAIL:]))


def _drop(line: bytes) -> None:
    """Takes what the processes write to stderr: the launcher keeps the last lines of each itself."""
