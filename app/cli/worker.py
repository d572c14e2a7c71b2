"""`perdure worker`: runs tasks."""

from __future__ import annotations

from app import bootstrap
from app.cli.common import ToolModules, read_settings


def worker(tools: ToolModules) -> None:
    """Run tasks of these tools, and bring them into the catalogue."""
    bootstrap.run(bootstrap.worker(read_settings(), tools))
