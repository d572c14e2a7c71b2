"""Tasks in the state that a test wants them in, and all that the database holds of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from app.domain.task import Claim, Json, NewTask, Policy, Question, Reply, Task, TaskState, new_task_id
from app.storage import fleet
from app.storage.store import OVERDUE, Store
from tests.support.database import age_task

OWNER = "alice"
TOOL = "weigh"
RESULT = Json('{"content":[],"resultType":"complete"}')
ERROR = Json('{"code":-32603,"message":"It broke"}')
LEASE_MS = 20_000

CHILDREN = (
    "task_requests",
    "task_outcomes",
    "task_input_requests",
    "task_input_responses",
    "task_steps",
    "task_attempts",
    "idempotency_keys",
)


def new_task(tool: str = TOOL, *, owner: str = OWNER, reply: Reply = Reply.TASK, **policy: Any) -> NewTask:
    """A task to create; what is not named here is policy."""
    return NewTask(
        task_id=new_task_id(),
        owner=owner,
        tool=tool,
        params=Json(json.dumps({"name": tool, "arguments": {}})),
        capabilities=Json("{}"),
        policy=replace(Policy(), **policy),
        reply=reply,
    )


def question(key: str) -> Question:
    """A question under this key, with a request that tells it from others."""
    return Question(key, Json(f'{{"method":"elicitation/create","params":{{"message":"{key}?"}}}}'))


def response(word: str = "yes") -> Json:
    """An accepted answer with this content."""
    return Json(f'{{"action":"accept","content":{{"word":"{word}"}}}}')


def attempt_of(claim: Claim) -> list[tuple[UUID, int]]:
    """The claim's attempt, as release takes it."""
    return [(claim.task_id, claim.epoch)]


@dataclass
class Scene:
    """Makes tasks with one store, as one worker, and looks at them beside it."""

    store: Store
    connection: asyncpg.Connection[Any]
    worker_id: UUID = field(default_factory=uuid4)
    _tools: count[int] = field(default_factory=count)

    # -- tasks ----------------------------------------------------------------------------------------------------

    async def queued(self, tool: str = TOOL, **kind: Any) -> Task:
        """A task that waits for a worker."""
        return await self.store.create(new_task(tool, **kind))

    async def running(self, *, worker_id: UUID | None = None, **kind: Any) -> Claim:
        """A task that a worker runs: this scene's, whose beat is fresh, unless another is named."""
        if worker_id is None:
            worker_id = self.worker_id
            await self.enlist(worker_id)
        task = await self.queued(f"{TOOL}-{next(self._tools)}", **kind)
        return await self.claim(task, worker_id)

    async def claim(self, task: Task, worker_id: UUID | None = None) -> Claim:
        """Claim this task, which waits and is the only one of its tool that does."""
        (claim,) = await self.store.claim(worker_id or self.worker_id, [task.tool], 1)
        assert claim.task_id == task.task_id
        return claim

    async def stopping(self, **kind: Any) -> Claim:
        """A task that runs, and that somebody wants cancelled."""
        claim = await self.running(**kind)
        await self.store.cancel(claim.task.owner, claim.task_id)
        return claim

    async def parked(self, *keys: str, **kind: Any) -> Claim:
        """A task that waits for answers under these keys, by default one. The claim has ended."""
        claim = await self.running(**kind)
        await self.store.ask(claim, [question(key) for key in keys or ("colour",)])
        return claim

    async def completed(self, **kind: Any) -> Claim:
        """A task that has completed."""
        claim = await self.running(**kind)
        await self.store.finish(claim, RESULT)
        return claim

    async def failed(self, **kind: Any) -> Claim:
        """A task that has failed."""
        claim = await self.running(**kind)
        await self.store.fail(claim, ERROR, "It broke")
        return claim

    async def cancelled(self, **kind: Any) -> Claim:
        """A task that ran and was cancelled."""
        claim = await self.stopping(**kind)
        await self.store.release(claim.worker_id, attempt_of(claim))
        return claim

    # -- time -----------------------------------------------------------------------------------------------------

    async def age(self, task: Task | Claim, seconds: float) -> None:
        """Let a task be older than it is."""
        await age_task(self.connection, task.task_id, seconds)

    async def overrun(self, task: Task | Claim) -> None:
        """Let a task's deadline be so long over that not even its worker has a say any more."""
        await self.connection.execute(
            "UPDATE perdure.tasks SET deadline_at = clock_timestamp() - $2::interval - interval '1 second' "
            "WHERE task_id = $1",
            task.task_id,
            OVERDUE,
        )

    # -- workers --------------------------------------------------------------------------------------------------

    async def enlist(self, worker_id: UUID, *, lease_ms: int = LEASE_MS, silent_ms: int = 0) -> UUID:
        """A worker's row; its last beat was so long ago."""
        await self.connection.execute(fleet.REGISTER, worker_id, "here", 1, "0", [TOOL], 4, lease_ms)
        await self.connection.execute(
            "UPDATE perdure.workers SET beat_at = clock_timestamp() - $2 * interval '1 ms' WHERE worker_id = $1",
            worker_id,
            silent_ms,
        )
        return worker_id

    async def silence(self, worker_id: UUID) -> None:
        """Let a worker's last beat be older than its lease."""
        await self.enlist(worker_id, silent_ms=LEASE_MS + 1)

    # -- looking --------------------------------------------------------------------------------------------------

    async def state(self, task: Task | Claim, owner: str = OWNER) -> TaskState:
        """The task as its owner sees it."""
        state = await self.store.get(owner, task.task_id)
        assert state is not None
        return state

    async def row(self, task: Task | Claim) -> dict[str, Any]:
        """The task's row."""
        row = await self.connection.fetchrow("SELECT * FROM perdure.tasks WHERE task_id = $1", task.task_id)
        assert row is not None
        return dict(row)

    async def children(self, task: Task | Claim, table: str) -> list[dict[str, Any]]:
        """The task's rows in one of the child tables."""
        query = f"SELECT c.* FROM perdure.{table} AS c WHERE task_id = $1 ORDER BY c::text"
        return [dict(row) for row in await self.connection.fetch(query, task.task_id)]

    async def everything(self, task: Task | Claim) -> dict[str, Sequence[Any]]:
        """All rows of the task, to see that nothing of it has changed."""
        return {"tasks": [await self.row(task)]} | {t: await self.children(task, t) for t in CHILDREN}
