"""One machine of a run: its share of the workers, its outputs, its guard; the group that runs on it now."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from dure.cluster.spec import ClusterSpec
from dure.devices.nvidia import Gpu
from dure.launch import share
from dure.launch.group import Group, Order
from dure.launch.keeper import Keeper
from dure.launch.output import Pump
from dure.launch.start import RUN
from dure.launch.wire import TOKEN_VARIABLE

__all__ = ["Options", "Station", "say"]


@dataclass(frozen=True, slots=True)
class Options:
    """What `dure run` was asked for.

    Args:
        command: the script, or `-m` and a module, and its arguments.
        workers: how many workers on this machine.
        max_restarts: how often the group may be started again.
        step_timeout_s: the step deadline, in seconds.
        nodes: how many machines.
        node_rank: the number of this one.
        master: address of node 0, `host:port`; empty with one machine.
        start_timeout_s: how long the machines wait for one another, in seconds.
    """

    command: tuple[str, ...]
    workers: int
    max_restarts: int = 0
    step_timeout_s: float = 60.0
    nodes: int = 1
    node_rank: int = 0
    master: str = ""
    start_timeout_s: float = 120.0

    @property
    def host(self) -> str:
        """The host of node 0; this machine alone where there is no other."""
        return self.master.rpartition(":")[0] or "127.0.0.1"

    @property
    def port(self) -> int:
        """The port of node 0."""
        return int(self.master.rpartition(":")[2] or 0)


@final
class Station:
    """Starts groups on this machine, one after the other.

    Args:
        options: what was asked for.
        environ: the environment that the workers inherit.
        cores: processor cores here.
        gpus: GPUs here that JAX can use.

    Raises:
        SpecError: there are GPUs, and fewer than workers.
    """

    def __init__(self, options: Options, environ: Mapping[str, str], *, cores: int, gpus: Sequence[Gpu]) -> None:
        # A worker runs the user's code, which has no business with the token.
        inherited = {name: value for name, value in environ.items() if name != TOKEN_VARIABLE}
        # Of several machines the chief's counts, which alone writes and reads checkpoints.
        inherited[RUN] = secrets.token_hex(8)
        self._environments = [
            share.variables(worker, options.workers, inherited, cores=cores, gpus=gpus)
            for worker in range(options.workers)
        ]
        self._options = options
        self._is_prefixed = options.workers * options.nodes > 1
        self._keeper = Keeper()

    def start(self, spec: ClusterSpec, first: int, restart: int) -> Group:
        """Starts the workers of this machine.

        Args:
            spec: the cluster.
            first: number of the first of them.
            restart: how often the group was started before.
        """
        order = Order(self._options.command, spec, first, self._environments, restart)
        return Group(order, Pump(_out, _err, is_prefixed=self._is_prefixed), self._keeper)

    def close(self) -> None:
        """Lets the guard go; twice is fine."""
        self._keeper.close()


def say(*lines: str) -> None:
    """Writes lines to stderr."""
    text = "".join(f"{line}\n" for line in lines)
    _err(text.encode("utf-8", "backslashreplace"))


def _out(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _err(line: bytes) -> None:
    # Not through a buffer: what is written here is the last of a process, and its reader may be gone.
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(sys.stderr.fileno(), rest) :]
