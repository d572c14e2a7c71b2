"""What an operator asks about tasks and does with them, anybody's, over SQL alone.

Everything is bounded: lists come by pages, payloads are cut, and what is done to many tasks is done a batch at a time,
each batch a transaction of its own, told to other processes like any other change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from app.domain.lifecycle import LIVE
from app.domain.task import TERMINAL, Json, NewTask, Policy, Status, Task, TaskState, new_task_id
from app.storage import inspection, listing, rows, steering
from app.storage.database import Database
from app.storage.inspection import COLUMNS, OpenQuestion, TaskDetails, TaskRow, ToolRow, WorkerRow
from app.storage.listing import TaskFilter
from app.storage.notifier import Notifier
from app.storage.store import Store

BATCH = 200
"""So many tasks are changed in one transaction."""

PAGE = 10_000
"""So many ids of tasks that a filter means are read at once."""

RETRIES_AT_ONCE = 4
PAYLOAD_CHARACTERS = 16_384
QUESTIONS_OF_A_TASK = 100
MOST_ROWS = 10_000
"""Of workers and of tools no more are listed."""

Which = TaskFilter | Sequence[UUID]
"""Tasks by what is true of them, or by their ids."""


@dataclass(frozen=True, slots=True)
class Retried:
    """A task that had ended, and the new one that does the same again."""

    old: UUID
    new: Task


class Operator:
    """Sees and steers the tasks of all owners.

    Args:
        database: where the statements go.
        notifier: tells other processes of changes; each batch waits until it was sent. None where nobody listens.
    """

    def __init__(self, database: Database, notifier: Notifier | None = None) -> None:
        self._db = database
        self._notifier = notifier
        self._store = Store(database, notifier)

    # -- looking ----------------------------------------------------------------------------------------------------

    async def tasks(self, which: TaskFilter, *, limit: int, after: UUID | None = None) -> list[TaskRow]:
        """A page of tasks, newest first.

        Args:
            after: the last task of the page before.
        """
        statement, args = listing.page(which, COLUMNS, limit, after)
        return [TaskRow.of(row) for row in await self._db.fetch(statement, *args)]

    async def count(self, which: TaskFilter, at_most: int) -> int:
        """How many tasks there are, counted no further than this."""
        statement, args = listing.count(which, at_most)
        row = await self._db.fetchrow(statement, *args)
        return 0 if row is None else int(row["found"])

    async def show(self, task_id: UUID, *, characters: int = PAYLOAD_CHARACTERS) -> TaskDetails | None:
        """Everything about a task; None if it is unknown.

        Args:
            characters: of each payload no more are read.
        """
        row = await self._db.fetchrow(inspection.SHOW, task_id, characters, inspection.MOST)
        return None if row is None else inspection.details(row)

    async def state(self, task_id: UUID) -> TaskState | None:
        """A task as its owner's client sees it; None if it is unknown."""
        owner = await self._owner(task_id)
        return None if owner is None else await self._store.get(owner, task_id)

    async def questions(self, *, limit: int, after: UUID | None = None) -> list[OpenQuestion]:
        """The open questions of so many tasks that wait for answers, the oldest task first.

        Args:
            after: the last task of the page before.
        """
        found = await self._db.fetch(inspection.QUESTIONS, limit, after, PAYLOAD_CHARACTERS, QUESTIONS_OF_A_TASK)
        return [inspection.open_question(row) for row in found]

    async def workers(self) -> list[WorkerRow]:
        """The worker processes that are known, the oldest first."""
        return [inspection.worker(row) for row in await self._db.fetch(inspection.WORKERS, MOST_ROWS)]

    async def tools(self) -> list[ToolRow]:
        """The tools of the catalogue, and others that have live tasks, by name."""
        return [inspection.tool(row) for row in await self._db.fetch(inspection.TOOLS, MOST_ROWS)]

    # -- doing ------------------------------------------------------------------------------------------------------

    async def answer(self, task_id: UUID, responses: Mapping[str, Json]) -> Task | None:
        """Record answers, as `Store.answer` does for the task's owner. None if none was recorded.

        Whether a response has the shape that its question asks for is for the caller to see to.
        """
        owner = await self._owner(task_id)
        task = None if owner is None else await self._store.answer(owner, task_id, responses)
        await self._tell()
        return task

    async def cancel(self, which: Which) -> AsyncIterator[list[Task]]:
        """Cancel tasks: those that run are marked for their workers, the others end.

        Yields:
            Of each batch the rows after it; tasks that are unknown or have ended are not among them.
        """
        async for batch in self._batches(which, LIVE):
            tasks = [rows.task(row) for row in await self._db.fetch(steering.CANCEL_MANY, batch)]
            if self._notifier is not None:
                for task in tasks:
                    self._notifier.changed(task)
            await self._tell()
            yield tasks

    async def retry(self, which: Which) -> AsyncIterator[list[Retried]]:
        """For tasks that have ended, make new ones from the same requests; the old ones stay as they are.

        The new ones belong to the same owners, and their callers are answered with handles.

        Yields:
            Of each batch the new tasks; tasks that are unknown or live have none.
        """
        async for batch in self._batches(which, TERMINAL):
            requests = await self._db.fetch(steering.ENDED_REQUESTS, batch)
            made: list[Retried] = []
            for start in range(0, len(requests), RETRIES_AT_ONCE):
                few = requests[start : start + RETRIES_AT_ONCE]
                made += await asyncio.gather(*(self._again(request) for request in few))
            await self._tell()
            yield made

    async def purge(self, which: Which) -> AsyncIterator[list[UUID]]:
        """Delete tasks that have ended, with all that belongs to them, before their time.

        Yields:
            Of each batch what was deleted; tasks that are unknown or live are not among them.
        """
        async for batch in self._batches(which, TERMINAL):
            gone = [row["task_id"] for row in await self._db.fetch(steering.PURGE_ENDED, batch)]
            if self._notifier is not None:
                self._notifier.these_changed(gone)
            await self._tell()
            yield gone

    # -- within -----------------------------------------------------------------------------------------------------

    async def _batches(self, which: Which, states: Collection[Status]) -> AsyncIterator[list[UUID]]:
        """The ids, a batch at a time; of a filter those of tasks in these states, from the newest down."""
        if not isinstance(which, TaskFilter):
            for start in range(0, len(which), BATCH):
                yield list(which[start : start + BATCH])
            return
        within, after = which.within(states), None
        while within is not None:
            statement, args = listing.ids(within, PAGE, after)
            found = [row["task_id"] for row in await self._db.fetch(statement, *args)]
            for start in range(0, len(found), BATCH):
                yield found[start : start + BATCH]
            if len(found) < PAGE:
                return
            after = found[-1]

    async def _again(self, request: asyncpg.Record) -> Retried:
        policy = Policy(
            priority=request["priority"],
            retention_ms=request["retention_ms"],
            answer_within_ms=request["answer_within_ms"],
            losses=request["loss_limit"],
            timeout_ms=request["timeout_ms"],
            ttl_ms=request["ttl_ms"],
            poll_interval_ms=request["poll_interval_ms"],
        )
        new = NewTask(
            task_id=new_task_id(),
            owner=request["owner"],
            tool=request["tool"],
            params=request["params"],
            capabilities=request["capabilities"],
            policy=policy,
            method=request["method"],
            revision=request["revision"],
            trace_context=request["trace_context"],
        )
        return Retried(request["task_id"], await self._store.create(new))

    async def _owner(self, task_id: UUID) -> str | None:
        row = await self._db.fetchrow(steering.OWNERS, [task_id])
        return None if row is None else str(row["owner"])

    async def _tell(self) -> None:
        if self._notifier is not None:
            await self._notifier.send()
