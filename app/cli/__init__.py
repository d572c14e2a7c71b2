"""The command line, one file a command. `perdure --help` lists them."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import structlog
import typer

from app.cli import call, check, demo, dev, healthcheck, keys, migrate, roles, serve, tasks, tools, worker, workers
from app.errors import PerdureError
from app.telemetry import logs
from app.version import __version__

log = structlog.get_logger(__name__)

cli = typer.Typer(
    name="perdure",
    help="Runs long MCP tool calls durably: every task in PostgreSQL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
cli.command("serve")(serve.serve)
cli.command("worker")(worker.worker)
cli.command("dev")(dev.dev)
cli.command("call")(call.call)
cli.command("migrate")(migrate.migrate)
cli.command("roles")(roles.roles)
cli.add_typer(tasks.tasks, name="tasks")
cli.command("workers")(workers.workers)
cli.command("tools")(tools.tools)
cli.command("check")(check.check)
cli.command("healthcheck")(healthcheck.healthcheck)
cli.command("demo")(demo.demo)
cli.add_typer(keys.keys, name="keys")


def main() -> None:
    """Run a command. What it cannot do is told in one line, with exit code 2; `PERDURE_LOG_LEVEL=debug` tells more."""
    logs.configure()
    try:
        cli()
    except PerdureError as error:
        log.debug("the command failed", exc_info=error)
        print(f"perdure: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except (KeyboardInterrupt, asyncio.CancelledError):  # stopped while it was starting
        raise SystemExit(130) from None


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
