"""The life of a task: one method a transition, one transaction each, named by its verb, returning the row after it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from app.domain.task import EVER, Claim, Claims, Idempotency, Json, NewTask, Question, Reply, Task, TaskState
from app.errors import KeyConflict, StaleAttempt, StoreUnavailable
from app.storage import callers, due, fleet, rows
from app.storage import statements as sql
from app.storage.batching import LANES, Batches
from app.storage.database import Database
from app.storage.rows import CatalogueRow, Holding, Newer
from app.telemetry import metrics

if TYPE_CHECKING:
    from app.storage.notifier import Notifier

LOST = (
    Json('{"code":-32603,"message":"The task lost too many workers and was given up"}'),
    "The task was given up: the process that ran it died too often",
)
EXPIRED = (
    Json('{"code":-32603,"message":"The task has expired"}'),
    "The task was stopped: its time to live is over",
)
UNANSWERED = (
    Json('{"code":-32603,"message":"A question of the task was not answered in time"}'),
    "The task was given up: a question was not answered in time",
)
TIMED_OUT = (
    Json('{"code":-32603,"message":"The task ran out of time"}'),
    "The task was stopped: it ran longer than its tool allows",
)

STILL_KNOWN = timedelta(hours=1)
"""For so long after its expiry a task is told apart from one that never was."""

LISTED = timedelta(hours=24)
"""A tool is listed for so long after its last worker."""

FORGOTTEN = timedelta(hours=1)
"""A worker's row is kept for so long after its last beat."""

OVERDUE = timedelta(seconds=10)
"""How long a worker gets to end an attempt that has run out of time, before it is ended without it."""

KEY_CONSTRAINT = "idempotency_keys_pkey"
KEY_TRIES = 5
"""So often a call with an idempotency key looks again whose it is."""

OMITTED_BYTES = 65_536
"""A larger outcome is not read together with those of other tasks."""

TOGETHER_BYTES = 1024 * 1024
ROW_BYTES = 4096
"""What goes together into one statement makes about so many bytes; a row counts for these and its payload."""

CLAIMS_IN_VAIN = 3
"""So often in a row a claim is repeated that saw tasks and won none: others took them, or hold on to them."""


class Store:
    """The tasks, as the rest of Perdure sees them.

    Every method is safe to repeat: one that committed, but whose acknowledgement was lost, does its work once.

    Args:
        database: where the statements go.
        notifier: told of each change after its commit; None where nobody listens.
    """

    def __init__(self, database: Database, notifier: Notifier | None = None) -> None:
        self._db = database
        self._notifier = notifier
        self._creates = Batches(self._insert_all, most=TOGETHER_BYTES, size=lambda new: _size(new.params), lanes=LANES)
        self._ends = Batches(self._finish_all, most=TOGETHER_BYTES, size=lambda end: _size(end[1]), lanes=LANES)
        self._says = Batches(self._status_all, lanes=LANES)
        self._reads = Batches(self._read_all, wanted_only=True)

    # -- for callers --------------------------------------------------------------------------------------------

    async def create(self, new: NewTask) -> Task:
        """Commit a new task, waiting for a worker. Where its key stands for a task that can still be read, that one.

        Without a key it is created even if the caller is cancelled meanwhile.

        Raises:
            KeyConflict: the key stands for another request.
        """
        if new.idempotency is None:
            return await self._creates.put(new)
        for _ in range(KEY_TRIES):  # others may take the key, or free it, between two statements
            task = await self._keyed(new, new.idempotency)
            if task is not None:
                return task
            try:
                return await self._insert(new)
            except asyncpg.UniqueViolationError as taken:
                if taken.constraint_name != KEY_CONSTRAINT:
                    raise
        raise StoreUnavailable("Calls with this idempotency key get in each other's way. Try again later.")

    async def _keyed(self, new: NewTask, idempotency: Idempotency) -> Task | None:
        """The task that the key stands for; None if it is free."""
        key = new.owner, new.tool, idempotency.key_hash
        found = await self._db.fetchrow(callers.KEYED, *key)
        if found is None:
            return None
        if found["expired"]:
            await self._db.fetch(callers.FREE_KEY, *key, found["task_id"])
            return None
        if found["fingerprint"] != idempotency.fingerprint:
            raise KeyConflict("The idempotency key was used for another request. Give each request its own.")
        state = await self.get(new.owner, found["task_id"])
        return None if state is None else state.task

    async def _insert(self, new: NewTask) -> Task:
        (made,) = await self._insert_all([new])
        if isinstance(made, Exception):
            raise made
        return made

    async def _insert_all(self, new: Sequence[NewTask]) -> list[Task | Exception]:
        """Commit them together."""
        found = await self._db.fetch(callers.CREATE, *rows.columns(new))
        asked = {it.task_id: it for it in new}
        made = {row["task_id"]: rows.created(row, asked[row["task_id"]]) for row in found}
        for task in made.values():
            metrics.created(task.tool)
        lost = [(it.owner, it.task_id) for it in new if it.task_id not in made]
        for known in await self._read_all(lost) if lost else ():  # an earlier try had committed
            if known is not None:
                made[known.state.task.task_id] = known.state.task
        return [self._made(made.get(it.task_id)) for it in new]

    def _made(self, task: Task | None) -> Task | Exception:
        if task is None:
            return AssertionError("a task that exists belongs to another owner")
        if self._notifier is not None:
            self._notifier.created(task)
        return task

    async def count_live(self, owner: str, limit: int) -> int:
        """How many live tasks an owner has, counted no further than the limit."""
        row = await self._db.fetchrow(callers.LIVE, owner, limit)
        return 0 if row is None else int(row["live"])

    async def get(self, owner: str, task_id: UUID) -> TaskState | None:
        """Read a task, its open questions and its outcome as of one moment. None: unknown, or another owner's."""
        read = await self._reads.put((owner, task_id))
        if read is not None and read.omitted:
            (row,) = await self._db.fetch(callers.GET, [task_id], [owner], [-1], None) or (None,)
            return None if row is None else rows.newer(row).state
        return None if read is None else read.state

    async def _read_all(self, wanted: Sequence[tuple[str, UUID]]) -> list[Newer | None]:
        """Read them as of one moment; a task that several ask for once."""
        owners, ids = zip(*dict.fromkeys(wanted), strict=True)
        found = map(rows.newer, await self._db.fetch(callers.GET, ids, owners, [-1] * len(ids), OMITTED_BYTES))
        read = {(it.state.task.owner, it.state.task.task_id): it for it in found}
        return [read.get(it) for it in wanted]

    async def readable(self, owner: str, task_ids: Sequence[UUID]) -> set[UUID]:
        """Those of these tasks that are the owner's and have not expired."""
        return {row["task_id"] for row in await self._db.fetch(callers.READABLE, owner, task_ids)}

    async def newer(self, known: Mapping[tuple[str, UUID], int]) -> list[Newer]:
        """Read those of these tasks, by owner and id, that have a higher version than the one that is known.

        Each is read as `get` would; all of them as of one moment. Expired ones are passed over.
        """
        ids, owners = [task_id for _, task_id in known], [owner for owner, _ in known]
        found = await self._db.fetch(callers.NEWER, ids, owners, list(known.values()), OMITTED_BYTES)
        return [rows.newer(row) for row in found]

    async def answer(
        self, owner: str, task_id: UUID, responses: Mapping[str, Json], *, capabilities: Json | None = None
    ) -> Task | None:
        """Record answers; when none is open any more, the task waits for a worker again.

        The first answer to a key stands. Keys that were never asked or are answered are passed over.

        Args:
            capabilities: what the client of this request declares, for the attempts to come; recorded whenever the
                task waits for answers, also without any. None leaves it at what an earlier request declared.

        Returns:
            The row after it, or None if no answer was recorded.
        """
        keys, given = list(responses), list(responses.values())
        row = await self._db.fetchrow(sql.ANSWER, task_id, owner, keys, given, capabilities)
        if row is None:
            return None
        task = rows.task(row)
        return self._changed(task, ready=not task.status.terminal)

    async def cancel(self, owner: str, task_id: UUID, *, reply: Reply | None = None) -> Task | None:
        """End a task that no worker runs, or mark it for the worker that does.

        Args:
            reply: cancel it only while its caller is answered like this.

        Returns:
            The row after it, or None if there was nothing to cancel.
        """
        row = await self._db.fetchrow(sql.CANCEL, task_id, owner, reply)
        return None if row is None else self._changed(rows.task(row))

    async def detach_for(self, owner: str, task_id: UUID) -> Task | None:
        """Let a task outlive the request that waits for it, because its caller is told how to come back to it.

        Returns:
            The row after it, or None if there is no live task that a request waits for.
        """
        row = await self._db.fetchrow(sql.DETACH_FOR, task_id, owner)
        return None if row is None else self._changed(rows.task(row))

    # -- for the worker that holds a task -------------------------------------------------------------------------

    async def claim(self, worker_id: UUID, tools: Sequence[str], limit: int, *, since: datetime = EVER) -> Claims:
        """Take up to `limit` tasks that wait, of these tools only, the most urgent ones first.

        Others' locks are stepped over. If that left too few though more were seen, it tries again at once.

        Args:
            since: pass over those that wait for longer.
        """
        taken: list[asyncpg.Record] = []
        oldest, more, in_vain = None, True, 0
        while more and len(taken) < limit and in_vain < CLAIMS_IN_VAIN:
            found = await self._db.fetch(sql.CLAIM, worker_id, tools, limit - len(taken), since)
            oldest = oldest or found[0]["oldest"]
            won = [row for row in found if row["task_id"] is not None]
            taken += won
            more, in_vain = found[0]["seen"] > len(won), 0 if won else in_vain + 1
        history = await self._history([row["task_id"] for row in taken if row["epoch"] > 1])
        claims = Claims(rows.claim(row, worker_id, history[row["task_id"]]) for row in taken)
        claims.more, claims.oldest = more, oldest or since  # a limit of 0 looks at nothing
        return claims

    async def ask(self, claim: Claim, questions: Sequence[Question]) -> Task:
        """Park the task until all these questions are answered. With a cancel pending it is cancelled instead.

        Raises:
            StaleAttempt: the task is no longer this attempt's.
        """
        keys, requests = [q.key for q in questions], [q.request for q in questions]
        return await self._fenced(claim, sql.ASK, keys, requests, own=sql.OWN_QUESTION)

    async def step(self, claim: Claim, name: str, value: Json) -> Json:
        """Record what a step returned.

        Returns:
            The value that stands.

        Raises:
            StaleAttempt: the task is no longer this attempt's.
        """
        row = await self._db.fetchrow(sql.STEP, *_fence(claim), name, value)
        if row is None:
            row = await self._db.fetchrow(sql.OWN_STEP, claim.task_id, claim.epoch, name)
        if row is None:
            metrics.STALE.inc()
            raise StaleAttempt("The attempt no longer holds its task; the step was not recorded.")
        stands: Json = row["value"]
        return stands

    async def status(
        self, claim: Claim, message: str, progress: float | None = None, total: float | None = None
    ) -> Task:
        """Set what clients are told while the task works.

        Args:
            progress: how much is done; None leaves progress and total as they are.
            total: how much there is to do; None where that is not known.

        Raises:
            StaleAttempt: the task is no longer this attempt's.
        """
        told = await self._says.put((claim, message, progress, total))
        return told or await self._fenced(claim, sql.STATUS, message, progress, total)

    async def detach(self, claim: Claim) -> Task:
        """Let the task outlive the request that started it: its caller is given the handle.

        Raises:
            StaleAttempt: the task is no longer this attempt's.
        """
        return await self._fenced(claim, sql.DETACH)

    async def finish(self, claim: Claim, result: Json) -> Task:
        """End the task as completed, with its result.

        Raises:
            StaleAttempt: the task is no longer this attempt's; whatever ended it first stands.
        """
        return await self._fenced(claim, sql.FINISH, result, own=sql.OWN_OUTCOME)

    def finish_soon(self, claim: Claim, result: Json, tell: Callable[[bool | Exception], object]) -> None:
        """As `finish`, together with others, for one who does not wait.

        Args:
            tell: called with True once it has ended, or with what went wrong. False: somebody has locked the row, or it
                is no longer this attempt's; `finish` waits, and finds out which.
        """
        self._ends.put_soon((claim, result), tell)

    async def fail(self, claim: Claim, error: Json, message: str, *, internal: str | None = None) -> Task:
        """End the task as failed, with a JSON-RPC error.

        Args:
            message: what clients are told as statusMessage.
            internal: what operators are told, with the traceback; None where there is no more to say.

        Raises:
            StaleAttempt: the task is no longer this attempt's; whatever ended it first stands.
        """
        return await self._fenced(claim, sql.FAIL, error, message, internal, own=sql.OWN_OUTCOME)

    async def retry(self, claim: Claim, pause_ms: int, message: str, internal: str) -> Task:
        """Give the task back after a failed attempt, to be tried again after a pause. A pending cancel ends it instead.

        Args:
            message: what clients are told meanwhile.
            internal: what operators are told, with the traceback.

        Raises:
            StaleAttempt: the task is no longer this attempt's; whatever ended it first stands.
        """
        return await self._fenced(claim, sql.RETRY, pause_ms, message, internal, own=sql.OWN_RETRY)

    async def release(self, worker_id: UUID, attempts: Sequence[tuple[UUID, int]]) -> list[Task]:
        """Hand attempts (task, epoch) back to the queue, with nothing used up; a pending cancel ends the task.

        Attempts that this worker no longer holds are passed over.
        """
        ids, epochs = [task_id for task_id, _ in attempts], [epoch for _, epoch in attempts]
        released = await self._db.fetch(sql.RELEASE, ids, epochs, worker_id)
        return [self._changed(rows.task(row), ready=True) for row in released]

    async def holdings(self, worker_id: UUID, *, of: Sequence[UUID] | None = None) -> list[Holding]:
        """What the database thinks this worker is running.

        Args:
            of: only these tasks, which is the cheaper question.
        """
        asked = (fleet.HOLDINGS, worker_id) if of is None else (fleet.HOLDINGS_OF, worker_id, of)
        return [rows.holding(row) for row in await self._db.fetch(*asked)]

    # -- for maintenance ------------------------------------------------------------------------------------------

    # Each moves a batch. A task that cannot be moved is told to operators and passed over; with the same set given as
    # `broken`, the next batches pass over it too.

    async def rescue(self, limit: int = 100, *, broken: set[UUID] | None = None) -> list[Task]:
        """Return tasks whose worker is lost to the queue, and end those that have lost too many."""
        moved = await self._move("rescue", (due.LOST,), (sql.RESCUE, *LOST), limit, broken)
        return [self._changed(rows.task(row), ready=True) for row in moved]

    async def expire(self, limit: int = 100, *, broken: set[UUID] | None = None) -> list[Task]:
        """End tasks that are past their deadline and that no worker ends."""
        act = sql.EXPIRE, OVERDUE, *EXPIRED, *UNANSWERED, *TIMED_OUT
        moved = await self._move("expire", (due.OVERDUE, OVERDUE), act, limit, broken)
        return [self._changed(rows.task(row)) for row in moved]

    async def purge(self, limit: int = 500, *, broken: set[UUID] | None = None) -> int:
        """Delete tasks that have long expired, with all that belongs to them. Returns how many."""
        return len(await self._move("purge", (due.SPENT, STILL_KNOWN), (due.PURGE, STILL_KNOWN), limit, broken))

    # -- workers and their tools ----------------------------------------------------------------------------------

    async def publish_tools(self, tools: Sequence[CatalogueRow]) -> None:
        """Bring tools into the catalogue, or say that they are still here."""
        await self._db.fetch(
            fleet.PUBLISH_TOOLS,
            [tool.name for tool in tools],
            [tool.definition for tool in tools],
            [tool.options for tool in tools],
            [tool.digest for tool in tools],
        )

    async def read_tools(self) -> list[CatalogueRow]:
        """The catalogue, by name: every tool that a worker has brought in the last day."""
        return [rows.catalogue(row) for row in await self._db.fetch(fleet.READ_TOOLS, LISTED)]

    async def forget_workers(self) -> None:
        """Delete the rows of workers that are long gone and hold nothing."""
        await self._db.fetch(fleet.FORGET_WORKERS, FORGOTTEN)

    # -- within -----------------------------------------------------------------------------------------------------

    async def _fenced(self, claim: Claim, statement: str, *args: object, own: str | None = None) -> Task:
        """Run a fenced write. One that finds nothing looks whether it is its own lost acknowledgement."""
        row = await self._db.fetchrow(statement, *_fence(claim), *args)
        if row is None and own is not None:
            row = await self._db.fetchrow(own, claim.task_id, claim.epoch)
        if row is None:
            metrics.STALE.inc()
            raise StaleAttempt("The attempt no longer holds its task; nothing was written.")
        return self._changed(rows.task(row))

    # Of the writes that go together, those that found nothing go on alone: a row that somebody else has locked is
    # waited for by its own writer only, and a lost acknowledgement is looked up as ever.

    async def _finish_all(self, ends: Sequence[tuple[Claim, Json]]) -> list[bool]:
        fences = zip(*(_fence(claim) for claim, _ in ends), strict=True)
        ended = {row["task_id"] for row in await self._db.fetch(sql.FINISH_MANY, *fences, [it for _, it in ends])}
        if self._notifier is not None:
            self._notifier.these_changed(ended)
        return [claim.task_id in ended for claim, _ in ends]

    async def _status_all(self, said: Sequence[tuple[Claim, str, float | None, float | None]]) -> list[Task | None]:
        claims, *columns = zip(*said, strict=True)
        fences = zip(*map(_fence, claims), strict=True)
        tasks = map(rows.task, await self._db.fetch(sql.STATUS_MANY, *fences, *columns))
        changed = {task.task_id: self._changed(task) for task in tasks}
        return [changed.get(claim.task_id) for claim in claims]

    async def _move(
        self, verb: str, look: due.Statement, act: due.Statement, limit: int, broken: set[UUID] | None
    ) -> due.Found:
        return await due.move(self._db, verb, look, act, limit=limit, broken=set() if broken is None else broken)

    async def _history(self, task_ids: list[UUID]) -> Mapping[UUID, list[asyncpg.Record]]:
        history: defaultdict[UUID, list[asyncpg.Record]] = defaultdict(list)
        for row in await self._db.fetch(sql.HISTORY, task_ids) if task_ids else ():
            history[row["task_id"]].append(row)
        return history

    def _changed(self, task: Task, *, ready: bool = False) -> Task:
        if self._notifier is not None:
            self._notifier.changed(task, ready=ready)
        return task


def _fence(claim: Claim) -> tuple[UUID, int, UUID]:
    return claim.task_id, claim.epoch, claim.worker_id


def _size(payload: Json) -> int:
    return ROW_BYTES + len(payload)
