"""`perdure worker`: runs tasks."""

from __future__ import annotations

from app import bootstrap
from app.cli.common import ToolModules, process_settings
from app.process import run


def worker(tools: ToolModules) -> None:
    """Run tasks of these tools, and bring them into the catalogue."""
    run(bootstrap.worker(process_settings(), tools))
