"""`dure run`: starts the workers of a script, watches them, and ends them together."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dure.cluster.text import check_address
from dure.devices import accelerators, host
from dure.errors import DureError, SecurityError, SpecError
from dure.launch.follow import Follower
from dure.launch.lead import Leader
from dure.launch.nodes import Hub, Join, Link
from dure.launch.ports import Ports
from dure.launch.signals import Signals
from dure.launch.station import Options, Station
from dure.launch.wire import read_token

__all__ = ["MAX_WORKERS", "check", "run"]

MAX_WORKERS = 256
"""The most workers of one machine."""


def run(
    options: Options,
    *,
    token_file: Path | None = None,
    is_network_trusted: bool = False,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Runs a script as a group of processes.

    Args:
        options: what was asked for.
        token_file: the file with the token of several machines; else `DURE_TOKEN` holds it.
        is_network_trusted: several machines may talk without encryption.
        environ: the variables that the workers inherit; None takes this process's.

    Returns:
        The exit code: 0 when all workers ended in order, the culprit's own or 1 after a fault, 130 after Ctrl-C, 143
        after SIGTERM.

    Raises:
        SpecError: what is asked for cannot be.
        SecurityError: there is no token that several machines can use.
        DeadlineError: not all machines came.
    """
    environ = os.environ if environ is None else environ
    options = check(options, is_network_trusted=is_network_trusted)
    token = b"" if options.nodes == 1 else read_token(environ, token_file)
    gpus = accelerators.survey().gpus
    station = Station(options, environ, cores=host.cores(), gpus=gpus)
    try:
        if options.nodes == 1:
            with Signals() as signals:
                code = Leader(options, station, signals, None, [_join(options, ())]).run()
        else:
            code = _follow(options, station, token) if options.node_rank else _lead(options, station, token)
    finally:
        station.close()
    _let_go_of_stdout()
    return code


def check(options: Options, *, is_network_trusted: bool) -> Options:
    """Returns the options in their one form.

    Args:
        options: what was asked for.
        is_network_trusted: several machines may talk without encryption.

    Raises:
        SpecError: one of them cannot be.
        SecurityError: node 0 is on a network, and nobody has said that it is to be trusted.
    """
    _check_numbers(options)
    _check_command(options.command)
    if options.nodes == 1:
        if options.master or options.node_rank:
            raise SpecError(
                f"asked for --node-rank {options.node_rank} and --master {options.master or 'nothing'} with one node; "
                "these are for several. Add `--nodes 2`, or leave them out"
            )
        return options
    if not options.master:
        raise SpecError(
            f"asked for {options.nodes} nodes, and nothing says where node 0 is. Give all of them the same "
            "`--master host:port`, an address of node 0 and a free port there"
        )
    address = check_address(options.master, "--master")
    checked = replace(options, master=address)
    if not is_network_trusted and not _is_loopback(checked.host):
        raise SecurityError(
            f"asked for node 0 at {address}, which other machines reach. JAX's coordinator and Gloo, by which the "
            "workers talk there, have neither password nor encryption: whoever reaches their ports can read and change "
            "what is trained. Use a network that only you reach (a private one, a VPN), and say so with "
            "`--trusted-network`"
        )
    return checked


def _check_numbers(options: Options) -> None:
    limits = {
        "--workers": (options.workers, 1, MAX_WORKERS),
        "--nodes": (options.nodes, 1, 1000),
        "--node-rank": (options.node_rank, 0, options.nodes - 1),
        "--max-restarts": (options.max_restarts, 0, 1000),
    }
    for name, (value, least, most) in limits.items():
        if not least <= value <= most:
            raise SpecError(f"asked for {name} {value}; it is a whole number from {least} to {most}. Write one")
    for name, seconds in (("--step-timeout", options.step_timeout_s), ("--start-timeout", options.start_timeout_s)):
        if not 0 < seconds < 1e9:
            raise SpecError(f"asked for {name} {seconds:g}; it is a number of seconds above 0. Write one, as 60")


def _check_command(command: tuple[str, ...]) -> None:
    if command[:1] == ("-m",):
        if len(command) < 2:
            raise SpecError(
                f"asked for a module with {command[0]}, and none is named. Write `dure run -m package.module`"
            )
        return
    if not command:
        raise SpecError("asked to run nothing. Name a script: `dure run --workers 2 script.py`")
    if not Path(command[0]).exists():
        there = Path(command[0]).parent
        raise SpecError(
            f"asked for the script {command[0]}, which is not in {there.resolve()}. Name one that is there, or a "
            "module with `-m`"
        )


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return name == "localhost"


def _join(options: Options, ports: tuple[int, ...]) -> Join:
    return Join(options.node_rank, options.nodes, options.workers, socket.gethostname(), ports)


def _lead(options: Options, station: Station, token: bytes) -> int:
    hub = Hub(options.host, options.port, token, _join(options, ()))
    try:
        joins = hub.meet(options.start_timeout_s)
        with Signals() as signals:
            return Leader(options, station, signals, hub, joins).run()
    except DureError as error:
        hub.tell({"say": "refuse", "error": error.to_dict()})
        raise
    finally:
        hub.close()


def _follow(options: Options, station: Station, token: bytes) -> int:
    ports = Ports("127.0.0.1" if _is_loopback(options.host) else socket.gethostname(), options.workers)
    try:
        join = _join(options, tuple(ports.numbers))
        link = Link(options.host, options.port, token, join, timeout_s=options.start_timeout_s)
        try:
            with Signals() as signals:
                return Follower(options, station, signals, link).run()
        finally:
            link.close()
    finally:
        ports.close()


def _let_go_of_stdout() -> None:
    """Keeps Python from complaining at its end of a reader that is gone."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
