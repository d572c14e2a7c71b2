"""`perdure dev`: everything in one process, for people who write tools."""

from __future__ import annotations

import typer

from app import bootstrap
from app.cli.common import Host, Port, ToolModules, process_settings
from app.process import run


def dev(tools: ToolModules, host: Host = None, port: Port = None) -> None:
    """Run API and worker in one process, on a PostgreSQL of its own unless DATABASE_URL is set."""
    run(bootstrap.dev(process_settings(host=host, port=port), tools, _announce))


def _announce(started: bootstrap.Started) -> None:
    """Say where everything is. The password of our own PostgreSQL is shown, that of DATABASE_URL is not."""
    if started.data_dir is None:
        place, dsn = "the database at DATABASE_URL", '"$DATABASE_URL"'
    else:
        place, dsn = f"PostgreSQL in {started.data_dir}", started.database_url
    typer.echo(f"Perdure answers on {started.url}")
    typer.echo(f"  tools  {', '.join(started.tools)}")
    typer.echo(f"  data   {place}")
    typer.echo(f"  SQL    psql {dsn}")
    typer.echo("         SELECT * FROM perdure.task_overview;")
    typer.echo("Ctrl-C stops it; the data stays.")
