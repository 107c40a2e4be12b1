"""The command `dure`: one module a command, each loaded only when it is called.

A command is a function of the same name as its module, with Typer's annotations: `dure.cli.devices.devices`.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, final

import typer
from typer.core import TyperCommand, TyperGroup

import dure
from dure.errors import DureError, hint

__all__ = ["COMMANDS", "load", "main"]

# What `dure --help` says of each command, kept here so that help comes at once: a command's own module may
# take JAX.
COMMANDS = {
    "advise": "Say what several devices would give, before any of them trains.",
    "compare": "Train one model under several strategies; say what pays, and why.",
    "devices": "List the devices of this machine, and what is missing to use one.",
    "run": "Run a script as several workers; name who is stuck or dead, and end all.",
}

# The exit codes of a shell: 2 for a request that cannot be met, 128 + the number of the signal (SIGINT is 2).
EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130


@final
class _Commands(TyperGroup):
    """The group of all commands: knows their names and lines of help, and loads the one that is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, line in COMMANDS.items():
            self.add_command(TyperCommand(name, help=line))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name not in self.commands:
            ctx.fail(f"No such command `{name}`. {hint(name, self.commands)}")
        return name, load(name), args[1:]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DureError as error:
            if ctx.params.get("traceback"):
                traceback.print_exception(error)
            else:
                typer.echo(f"{type(error).__name__}: {error.message}", err=True)
            raise typer.Exit(EXIT_REFUSED) from error
        except KeyboardInterrupt as error:
            typer.echo("\nInterrupted.", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from error


def load(name: str) -> Any:
    """Imports a command and returns it as Typer runs it.

    Args:
        name: one of `COMMANDS`.
    """
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    module = importlib.import_module(f"dure.cli.{name}")
    single.command(name, context_settings=getattr(module, "CONTEXT", None))(getattr(module, name))
    return typer.main.get_command(single)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dure {dure.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave."),
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option("--traceback", envvar="DURE_TRACEBACK", help="Show where in the code an error arose."),
    ] = False,
) -> None:
    """Spread a network's training over many devices, and see what pays."""


def main(args: Sequence[str] | None = None) -> None:
    """Runs one command of `dure` and ends the process.

    An error of Dure becomes one message on stderr and exit code 2, Ctrl-C becomes exit code 130.
    `--traceback`, or `DURE_TRACEBACK=1`, shows the whole way of an error.

    Args:
        args: the words after `dure`; by default those that the process was started with.

    Raises:
        SystemExit: always, with the exit code.
    """
    app = typer.Typer(
        cls=_Commands,
        callback=_options,
        no_args_is_help=True,
        # A traceback with the values of local variables could show a secret.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    typer.main.get_command(app)(args=args if args is None else list(args), prog_name="dure")
