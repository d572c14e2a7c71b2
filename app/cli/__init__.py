"""The command line, one file a command. `perdure --help` lists them."""

from __future__ import annotations

import asyncio
import errno
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from app.errors import PerdureError
from app.version import __version__

COMMANDS = (
    "serve", "worker", "dev", "call", "migrate", "roles", "tasks", "workers", "tools", "check", "healthcheck", "demo",
    "keys",
)  # fmt: skip
"""Each is what the module of its name calls so. In the order of `--help`."""

LEAN = "healthcheck"
"""A container runs it every few seconds: it does without all that others load."""

UNWRITTEN = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""How writing to stdout fails."""


class Commands(TyperGroup):
    """The commands, each loaded when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them, or None."""
        if cmd_name not in COMMANDS:
            return None
        found = getattr(import_module(f"{__name__}.{cmd_name}"), cmd_name)
        if isinstance(found, typer.Typer):
            command: Any = get_group(found)
        else:
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            alone.command(cmd_name)(found)
            command = get_command(alone)
        command.name = cmd_name
        return command


cli = typer.Typer(
    name="perdure",
    cls=Commands,
    help="Runs long MCP tool calls durably: every task in PostgreSQL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run a command. What it cannot do is told in one line, with exit code 2; `PERDURE_LOG_LEVEL=debug` tells more."""
    if sys.argv[1:2] != [LEAN]:
        from app.telemetry import logs

        logs.configure()
    code = _exit_code()
    try:
        print(end="", flush=True)
    except OSError as fault:
        code = _unwritten(fault)
    raise SystemExit(code)


def _exit_code() -> Any:
    try:
        cli()
    except SystemExit as end:
        return end.code
    except PerdureError as error:
        import structlog

        structlog.get_logger(__name__).debug("the command failed", exc_info=error)
        print(f"perdure: {error}", file=sys.stderr)
        return 2
    except OSError as fault:
        if fault.errno not in UNWRITTEN:
            raise
        return _unwritten(fault)
    except (KeyboardInterrupt, asyncio.CancelledError):  # stopped while it was starting
        return 130
    return 0


def _unwritten(fault: OSError) -> int:
    from app.cli.output import give_up_printing

    return 2 if give_up_printing(fault) else 1


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"perdure {__version__}")
        raise typer.Exit


@cli.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Settings come from the environment: DATABASE_URL and PERDURE_…; the README lists them."""
