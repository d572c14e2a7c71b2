"""`perdure healthcheck`: for a container's HEALTHCHECK, whose image has no curl."""

from __future__ import annotations

from typing import Annotated

import typer

SECONDS = 5.0
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104
"""Where a process is asked that listens on every address."""


def healthcheck(
    host: Annotated[
        str, typer.Option("--host", envvar="PERDURE_OPS_HOST", help="The address that it serves operators on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", envvar="PERDURE_OPS_PORT", min=1, max=65535, help="Its operations port.")
    ] = 8766,
) -> None:
    """Ask the process on this machine whether it is ready: 0 if it is, 1 if not, or if it does not answer in 5 s."""
    import http.client

    connection = http.client.HTTPConnection(ANY.get(host, host), port, timeout=SECONDS)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        says = response.read(500).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        typer.echo(f"Nothing answers on port {port}.", err=True)
        raise typer.Exit(1) from None
    finally:
        connection.close()
    if response.status != http.client.OK:
        typer.echo(f"Not ready: {says.encode('unicode_escape').decode()}", err=True)
        raise typer.Exit(1)
