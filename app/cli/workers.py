"""`perdure workers`: who runs what."""

from __future__ import annotations

from typing import Annotated

import typer

from app import bootstrap
from app.cli.common import read_settings
from app.cli.output import Cell, say, show_json, show_table
from app.process import run
from app.storage.inspection import WorkerRow


def workers(as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one worker a line.")] = False) -> None:
    """List worker processes: whether they are alive, what they may run and how much they do.

    Exits with 1 if there is none.
    """
    found = run(_workers())
    if as_json:
        for row in found:
            show_json(row)
    else:
        headers = "WORKER", "STATE", "HOST", "PID", "VERSION", "RUNNING", "SLOTS", "STARTED", "LAST BEAT", "TOOLS"
        show_table(headers, [_cells(row) for row in found], elastic=("HOST", "TOOLS"))
    if not found:
        say("No worker is known: start one with `perdure worker`.")
        raise typer.Exit(1)


async def _workers() -> list[WorkerRow]:
    async with bootstrap.operator(read_settings()) as operator:
        return await operator.workers()


def _cells(row: WorkerRow) -> list[Cell]:
    process: list[Cell] = [row.worker_id, row.state, row.host, row.pid, row.version, row.running, row.slots]
    return [*process, row.started_at, row.since_beat, ", ".join(row.tools)]
