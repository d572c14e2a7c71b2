"""`perdure tasks`: sees and steers tasks, anybody's, over SQL alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated
from uuid import UUID

import typer

from app import bootstrap
from app.cli.common import read_settings
from app.cli.output import Cell, document, say, show_json, show_table
from app.cli.task_actions import CANCEL, PURGE, RETRY, Action, act, agreed, find
from app.cli.task_display import show_details
from app.cli.task_filters import Doing, read_id, with_filter
from app.domain.task import Status
from app.process import run
from app.storage.inspection import TaskDetails, TaskRow
from app.storage.listing import Activity, TaskFilter

MOST = 10_000
UNCUT = 2**31 - 1

tasks = typer.Typer(no_args_is_help=True, help="See tasks and steer them: list, show, cancel, retry, purge.")

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line, with names that stay.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this, what options mean is only shown.")]
Id = typer.Argument(metavar="ID", parser=read_id, show_default=False, help="A task's id.")
Ids = Annotated[list[UUID], typer.Argument(metavar="[ID]...", parser=read_id, show_default=False, help="Tasks by id.")]


@tasks.command("list")
@with_filter
def list_(
    which: TaskFilter,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MOST, help="The most that are shown.")] = 50,
    after: Annotated[
        UUID | None, typer.Option("--after", metavar="ID", parser=read_id, help="Go on below this task.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List tasks, the newest first: all, or those for which all of the options are true.

    Exits with 1 if there is none.
    """
    found = run(_list(which, limit + 1, after))
    shown = found[:limit]
    if as_json:
        for row in shown:
            show_json(row)
    else:
        _table(shown)
    if len(found) > limit:
        say(f"There are more: --after {shown[-1].task_id}")
    if not shown:
        say("No task is like that.")
        raise typer.Exit(1)


@tasks.command()
def show(
    task_id: Annotated[UUID, Id],
    full: Annotated[bool, typer.Option("--full", help="Show payloads to their end, however long.")] = False,
    as_json: Json = False,
) -> None:
    """Show all that there is of a task: request, questions, steps, attempts, errors, outcome, and what happened when.

    Exits with 1 if it is unknown, or purged.
    """
    details = run(_show(task_id, UNCUT if full or as_json else None))
    if details is None:
        say("There is no such task; it may have been purged.")
        raise typer.Exit(1)
    if as_json:
        show_json(document(details) | {"timeline": details.timeline})
    else:
        show_details(details)


@tasks.command()
@with_filter
def cancel(which: TaskFilter, ids: Ids = [], yes: Yes = False, as_json: Json = False) -> None:  # noqa: B006
    """Cancel tasks: those that run are told to stop, the others end at once. What has ended stays as it is.

    By id at once; by options only with --yes, or when you agree at the terminal. Exits with 1 if there is none.
    """
    _act(CANCEL, which, ids, yes, as_json)


@tasks.command()
@with_filter
def retry(which: TaskFilter, ids: Ids = [], yes: Yes = False, as_json: Json = False) -> None:  # noqa: B006
    """For tasks that have ended, make new ones from the same requests. By options: failed ones, unless --status says.

    By id at once; by options only with --yes, or when you agree at the terminal. Exits with 1 if there is none.
    """
    if which and not (which.status or which.activity):
        which = replace(which, status=(Status.FAILED,))
    _act(RETRY, which, ids, yes, as_json)


@tasks.command()
@with_filter
def purge(which: TaskFilter, ids: Ids = [], yes: Yes = False, as_json: Json = False) -> None:  # noqa: B006
    """Delete tasks that have ended, with all that belongs to them, before they expire.

    By id at once; by options only with --yes, or when you agree at the terminal. Exits with 1 if there is none.
    """
    _act(PURGE, which, ids, yes, as_json)


def _act(action: Action, which: TaskFilter, ids: Sequence[UUID], yes: bool, as_json: bool) -> None:
    if bool(ids) is bool(which):
        raise typer.BadParameter("give ids, or options that say which tasks; not both, and not neither")
    settings = read_settings()
    if not (ids or yes) and not agreed(action, run(find(settings, action, which)), as_json=as_json):
        raise typer.Exit
    raise typer.Exit(run(act(settings, action, ids or which, as_json=as_json)))


async def _list(which: TaskFilter, limit: int, after: UUID | None) -> list[TaskRow]:
    async with bootstrap.operator(read_settings()) as operator:
        return await operator.tasks(which, limit=limit, after=after)


async def _show(task_id: UUID, characters: int | None) -> TaskDetails | None:
    async with bootstrap.operator(read_settings()) as operator:
        if characters is None:
            return await operator.show(task_id)
        return await operator.show(task_id, characters=characters)


def _table(rows: Sequence[TaskRow]) -> None:
    """In a pipe all that a list has; on a terminal what fits there."""
    if not sys.stdout.isatty():
        show_table(
            (), [(*_which(r), r.status, r.activity, r.attempts, r.created_at, r.age, r.status_message) for r in rows]
        )
        return
    headers = "TASK", "TOOL", "OWNER", "STATE", "TRIES", "AGE", "MESSAGE"
    cells = [(*_which(r), _state(r), r.attempts, r.age, r.status_message) for r in rows]
    show_table(headers, cells, elastic=("TOOL", "OWNER", "MESSAGE"))


def _which(row: TaskRow) -> tuple[Cell, ...]:
    return row.task_id, row.tool, row.owner


def _state(row: TaskRow) -> str:
    """What it does, or how it ended, in a word."""
    return row.status if row.activity is Activity.ENDED else Doing[row.activity.name]
