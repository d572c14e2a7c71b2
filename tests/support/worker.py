"""A worker in the test's own event loop, and tasks for it to run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.domain.task import Json, NewTask, Reply, Status, TaskState, new_task_id
from app.storage.database import Database
from app.storage.notifier import Notifier
from app.storage.store import Store
from app.tools.registry import Registry, Tool
from app.wire.envelope import dumps
from app.worker.runner import Runner
from tests.support.waiting import eventually

OWNER = "somebody"
WAIT_SECONDS = 20.0


@dataclass(frozen=True)
class Tasks:
    """Makes tasks of a registry's tools and watches them."""

    store: Store
    registry: Registry

    async def start(
        self,
        tool: Tool,
        /,
        *,
        capabilities: dict[str, Any] | None = None,
        revision: str | None = None,
        reply: Reply = Reply.TASK,
        **arguments: Any,
    ) -> UUID:
        """Create a task of this tool."""
        new = NewTask(
            task_id=new_task_id(),
            owner=OWNER,
            tool=tool.name,
            params=dumps({"name": tool.name, "arguments": arguments}),
            capabilities=dumps(capabilities or {}),
            policy=tool.options.to_policy(),
            reply=reply,
            revision=revision,
        )
        return (await self.store.create(new)).task_id

    async def read(self, task_id: UUID) -> TaskState:
        """The task as its owner sees it."""
        state = await self.store.get(OWNER, task_id)
        assert state is not None
        return state

    async def reaches(self, task_id: UUID, *states: Status) -> TaskState:
        """Wait until the task is in one of these states."""

        async def look() -> TaskState | None:
            state = await self.read(task_id)
            assert not state.task.status.terminal or state.task.status in states, (
                state.task,
                state.error,
                state.result,
            )
            return state if state.task.status in states else None

        return await eventually(look)

    async def answer(self, task_id: UUID, **contents: dict[str, Any]) -> None:
        """Accept questions with these contents, by key."""
        responses = {key: dumps({"action": "accept", "content": content}) for key, content in contents.items()}
        await self.respond(task_id, responses)

    async def respond(self, task_id: UUID, responses: dict[str, Json]) -> None:
        """Give responses as they are, by key."""
        assert await self.store.answer(OWNER, task_id, responses) is not None


@asynccontextmanager
async def notifying(database: Database, notifies: bool) -> AsyncIterator[Notifier | None]:
    """A notifier that sends; or none."""
    if not notifies:
        yield None
        return
    notifier = Notifier(database)
    running = asyncio.create_task(notifier.run())
    try:
        yield notifier
    finally:
        running.cancel()
        await asyncio.wait({running})


@asynccontextmanager
async def working(
    db_url: str, *tools: Tool, notifies: bool = False, **options: Any
) -> AsyncIterator[tuple[Tasks, Runner]]:
    """Run a worker with these tools, which tells others of changes or not; at the end it is stopped without grace."""
    registry = Registry(tools)
    options = {"slots": 4, "lease_seconds": 4.0, "grace_seconds": 0.0, "poll_seconds": 0.05} | options
    async with Database(db_url, connections=5) as database, notifying(database, notifies) as notifier:
        store = Store(database, notifier)
        runner = Runner(store, database, registry, **options)
        running = asyncio.create_task(runner.run())
        try:
            yield Tasks(store, registry), runner
        finally:
            runner.stop()
            await asyncio.wait_for(running, WAIT_SECONDS)
