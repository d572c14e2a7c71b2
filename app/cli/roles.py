"""`perdure roles`: rights in the database."""

from __future__ import annotations

import typer

from app.storage.roles import script


def roles() -> None:
    """Print SQL that makes database roles with no more rights than they need.

    Run it after each `perdure migrate`, as the role that migrates: perdure roles | psql "$DATABASE_URL". It makes
    perdure_app for the service, perdure_read for people, and perdure_payloads for those who may also see arguments and
    results; grant them to roles that can log in.
    """
    typer.echo(script(), nl=False)
