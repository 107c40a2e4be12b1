"""The command `dure run`: starts the workers of a script on this machine and others, and watches them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dure.errors import SpecError
from dure.launch.run import run as launch
from dure.launch.station import Options

__all__ = ["CONTEXT", "run"]

CONTEXT = {"allow_interspersed_args": False}
"""What stands behind the script is the script's."""


def run(
    *,
    command: Annotated[
        list[str],
        typer.Argument(metavar="SCRIPT [ARGS]...", help="The script, and what it is given.", show_default=False),
    ],
    workers: Annotated[int, typer.Option(help="Worker processes on this machine.")] = 1,
    ps: Annotated[int, typer.Option(help="Parameter servers.", hidden=True)] = 0,
    is_module: Annotated[bool, typer.Option("-m", "--module", help="SCRIPT is the name of a module.")] = False,
    max_restarts: Annotated[int, typer.Option(help="How often to start the group again after a fault.")] = 0,
    step_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a worker may be stuck before it is named.")
    ] = 60.0,
    nodes: Annotated[int, typer.Option(help="Machines; start the command on each.")] = 1,
    node_rank: Annotated[int, typer.Option(help="Number of this machine, from 0.")] = 0,
    master: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where machine 0 listens.")] = "",
    token_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="File with the machines' token. [default: DURE_TOKEN]")
    ] = None,
    trusted_network: Annotated[
        bool, typer.Option("--trusted-network", help="The machines may talk without encryption.")
    ] = False,
    start_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long the machines wait for one another.")
    ] = 120.0,
) -> None:
    """Run a script as several workers; name who is stuck or dead, and end all.

    Each worker runs the whole script and finds the others by itself (`dure.strategy_from_env()`).
    """
    if ps:
        raise SpecError(
            f"asked for --ps {ps}; this version of Dure has no parameter servers. Leave it out: workers keep the "
            "weights themselves"
        )
    options = Options(
        command=(*(("-m",) if is_module else ()), *command),
        workers=workers,
        max_restarts=max_restarts,
        step_timeout_s=step_timeout,
        nodes=nodes,
        node_rank=node_rank,
        master=master,
        start_timeout_s=start_timeout,
    )
    raise typer.Exit(launch(options, token_file=token_file, is_network_trusted=trusted_network))
