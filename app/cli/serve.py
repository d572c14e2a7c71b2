"""`perdure serve`: the API."""

from __future__ import annotations

from app import bootstrap
from app.cli.common import Host, Port, ToolModules, read_settings


def serve(tools: ToolModules = [], host: Host = None, port: Port = None) -> None:  # noqa: B006
    """Serve the API on /mcp. The workers' tools are found in the database.

    --tools is for tools that are never tasks (task="never"): they run in this process.
    """
    bootstrap.run(bootstrap.serve(read_settings(host=host, port=port), tools))
