"""`perdure serve`: the API."""

from __future__ import annotations

from typing import Annotated

import typer

from app import bootstrap
from app.cli.common import Host, Port, ToolModules, process_settings
from app.cli.processes import serve_processes
from app.errors import SettingsError
from app.process import run

Processes = Annotated[
    int, typer.Option("--processes", metavar="N", min=1, max=256, help="How many of them, on the same port.")
]


def serve(tools: ToolModules = [], host: Host = None, port: Port = None, processes: Processes = 1) -> None:  # noqa: B006
    """Serve the API on /mcp. The workers' tools are found in the database.

    --tools is for tools that are never tasks (task="never"): they run in this process.
    --processes starts several, for a machine with several cores; for operators each has a port of its own, from
    PERDURE_OPS_PORT on.
    """
    settings = process_settings(host=host, port=port)
    if processes == 1:
        run(bootstrap.serve(settings, tools))
        return
    if settings.port == 0:
        raise SettingsError("--processes needs a port that all of them can listen on: give it with --port")
    options = [word for module in tools for word in ("--tools", module)]
    serve_processes(processes, [*options, "--host", settings.host, "--port", str(settings.port)], settings.ops_port)
