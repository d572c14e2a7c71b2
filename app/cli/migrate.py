"""`perdure migrate`: the schema."""

from __future__ import annotations

import typer

from app.cli.common import read_settings
from app.process import run
from app.storage.migrate import upgrade


def migrate() -> None:
    """Bring the database at DATABASE_URL to the schema of this release, before processes of this release start."""
    settings = read_settings()
    url = settings.require_database_url()
    url = settings.direct(url) or url
    typer.echo(f"The database is at revision {run(upgrade(url))}.")
