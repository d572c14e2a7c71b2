"""What the pages show that change by themselves: each is read in one place, for the page and for its stream.

A look has a digest of what it found, in which times that only pass do not count.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from aiohttp import web
from multidict import MultiMapping

from app.domain.task import Status
from app.http.ui.desk import LOOK_SECONDS
from app.http.ui.filters import Filters
from app.http.ui.questions import Asking
from app.storage.inspection import TaskRow, ToolRow, WorkerRow
from app.storage.listing import TaskFilter
from app.storage.operator import Operator

PAGE = 50
INBOX_TASKS = 25
RECENT = 10
COUNTED = 1000
"""Failures are counted no further."""

FAILED_WITHIN = timedelta(hours=24)
BEAT_SECONDS = 15
"""The overview is new so often in any case: it tells how long something is silent, or waits."""

NO_TIME = timedelta(0)

Query = MultiMapping[str]


@dataclass(frozen=True, slots=True)
class Look:
    """What a page shows.

    Attributes:
        template: makes the page.
        values: for it.
        facts: those of them that are worth a new look when they change.
        task_id: the one task that it is all about; None where it is about many.
    """

    template: str
    values: Mapping[str, Any]
    facts: tuple[object, ...]
    task_id: UUID | None = None

    @property
    def digest(self) -> str:
        """The same as long as there is nothing new to see."""
        return hashlib.sha256(repr(self.facts).encode("utf-8", "backslashreplace")).hexdigest()[:16]


async def look(operator: Operator, place: str, query: Query) -> Look:
    """Read what the page at this place shows: the path below the root of the pages.

    Raises:
        web.HTTPNotFound: there is no such page, or no such task.
        TimeoutError: the database takes too long.
    """
    async with asyncio.timeout(LOOK_SECONDS):
        match place.strip("/").split("/"):
            case [""]:
                return await _overview(operator)
            case ["tasks"]:
                return await _tasks(operator, query)
            case ["tasks", text]:
                return await _task(operator, read_id(text))
            case ["inbox"]:
                return await _inbox(operator, query)
            case _:
                raise web.HTTPNotFound


def read_id(text: str) -> UUID:
    """A task's id, as it stands in a path.

    Raises:
        web.HTTPNotFound: it is none.
    """
    try:
        return UUID(text)
    except ValueError:
        raise web.HTTPNotFound from None


async def _overview(operator: Operator) -> Look:
    failed = TaskFilter(status=(Status.FAILED,), finished_since=datetime.now(UTC) - FAILED_WITHIN)
    tools, workers = await operator.tools(), await operator.workers()
    failures, count = await operator.tasks(failed, limit=RECENT), await operator.count(failed, COUNTED)
    values = {
        "tools": tools,
        "workers": workers,
        "failures": failures,
        "failed": count,
        "counted": COUNTED,
        "sums": {
            "running": sum(tool.running for tool in tools),
            "queued": sum(tool.queued for tool in tools),
            "scheduled": sum(tool.scheduled for tool in tools),
            "waiting": sum(tool.waiting_for_answers for tool in tools),
        },
        "stuck": [tool for tool in tools if tool.queued and not tool.workers],
        "lost": [worker for worker in workers if worker.state == "lost"],
    }
    facts = (
        *map(_of_tool, tools),
        *map(_of_worker, workers),
        *map(_of_row, failures),
        count,
        int(time.time() // BEAT_SECONDS),
    )
    return Look("overview.html", values, facts)


async def _tasks(operator: Operator, query: Query) -> Look:
    filters = Filters.read(query)
    rows = await operator.tasks(filters.which(), limit=PAGE + 1, after=filters.after)
    shown, more = rows[:PAGE], len(rows) > PAGE
    older = filters.query(after=shown[-1].task_id) if more else None
    values = {"tasks": shown, "filters": filters, "older": older, "newest": filters.query() if filters.after else None}
    return Look("tasks.html", values, (*map(_of_row, shown), more))


async def _task(operator: Operator, task_id: UUID) -> Look:
    details = await operator.show(task_id)
    if details is None:
        raise web.HTTPNotFound
    facts = replace(details, row=replace(details.row, age=NO_TIME))
    return Look("task.html", {"task": details, "row": details.row}, (facts,), task_id)


async def _inbox(operator: Operator, query: Query) -> Look:
    after = Filters.read(query).after
    found = await operator.questions(limit=INBOX_TASKS, after=after)
    tasks = list(dict.fromkeys(question.task_id for question in found))
    asked = [(question, Asking.glimpse(question.request.text)) for question in found]
    more = tasks[-1] if len(tasks) == INBOX_TASKS else None
    return Look("inbox.html", {"asked": asked, "more": more, "after": after}, (*found, more))


def _of_row(row: TaskRow) -> TaskRow:
    return replace(row, age=NO_TIME)


def _of_tool(tool: ToolRow) -> ToolRow:
    return replace(tool, oldest_wait=None, seen_at=None)


def _of_worker(worker: WorkerRow) -> WorkerRow:
    return replace(worker, beat_at=worker.started_at, since_beat=NO_TIME)
