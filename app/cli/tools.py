"""`perdure tools`: what can be called, and how much of it waits."""

from __future__ import annotations

from typing import Annotated

import typer

from app import bootstrap
from app.cli.common import read_settings
from app.cli.output import Cell, say, show_json, show_table
from app.process import run
from app.storage.inspection import ToolRow


def tools(as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one tool a line.")] = False) -> None:
    """List tools that run as tasks: how much of each waits and runs, and how many workers have it.

    Exits with 1 if there is none.
    """
    found = run(_tools())
    if as_json:
        for row in found:
            show_json(row)
    else:
        headers = "TOOL", "WORKERS", "QUEUED", "OLDEST WAIT", "SCHEDULED", "RUNNING", "WAITING", "LAST SEEN"
        show_table(headers, [_cells(row) for row in found], elastic=("TOOL",))
    if not found:
        say("No tool is known: a worker brings its tools when it starts.")
        raise typer.Exit(1)


async def _tools() -> list[ToolRow]:
    async with bootstrap.operator(read_settings()) as operator:
        return await operator.tools()


def _cells(row: ToolRow) -> list[Cell]:
    waits: list[Cell] = [row.workers, row.queued, row.oldest_wait, row.scheduled]
    return [row.tool, *waits, row.running, row.waiting_for_answers, row.seen_at]
