"""Letting two transactions meet exactly where they can hurt each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import asyncpg

from app.domain.task import Claim, Task
from app.errors import StaleAttempt
from app.storage import statements as sql
from app.storage.database import Database
from app.storage.store import EXPIRED, LOST, OVERDUE, TIMED_OUT, UNANSWERED, Store
from tests.storage.scene import Scene
from tests.support.waiting import eventually

R = TypeVar("R")

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"""

_LOOKED = {
    sql.CLAIM: "FROM urgent AS h\n    JOIN perdure.tasks",
    sql.RESCUE: "FROM perdure.tasks AS t\n    JOIN unnest",
    sql.EXPIRE: "FROM perdure.tasks AS t\n    WHERE t.task_id",
}

OURS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'perdure'"
RUNNING_SLEEP = f"{OURS} AND state = 'active' AND query LIKE '%pg_sleep%'"
_OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
_KILL = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid()"""


async def kill_connections(connection: asyncpg.Connection[Any], name: str = "perdure") -> None:
    """Let the server end all connections of this application, of which there are some."""
    assert await connection.fetchval(_KILL, name) > 0


async def seen(connection: asyncpg.Connection[Any], query: str, count: int) -> None:
    """Wait until a query counts so many."""

    async def look() -> bool:
        return int(await connection.fetchval(query)) == count

    await eventually(look)


async def look_for_deadlocks_soon(connection: asyncpg.Connection[Any]) -> None:
    """Let those who connect from now on look for deadlocks after a tenth of a second, where we may say so."""
    name = await connection.fetchval("SELECT current_database()")
    with suppress(asyncpg.InsufficientPrivilegeError):
        await connection.execute(f"ALTER DATABASE {name} SET deadlock_timeout = '100ms'")


async def deadlocks(connection: asyncpg.Connection[Any]) -> int:
    """How many there were, once all others have gone: a connection may count them only when it ends."""
    await seen(connection, _OTHERS, 0)
    return int(await connection.fetchval(_DEADLOCKS))


class Borrowed(Database):
    """A connection of somebody else's, and so within their transaction."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        super().__init__("postgresql://", patience_seconds=0.01)
        self._borrowed = connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        yield self._borrowed


class Interrupted(Borrowed):
    """Between its first statement and the next one, somebody does something."""

    def __init__(self, connection: asyncpg.Connection[Any], meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(connection)
        self._meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    async def fetch(self, statement: str, *args: object) -> list[asyncpg.Record]:
        found = await super().fetch(statement, *args)
        if self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            await meanwhile()
        return found


def rescue_of(claim: Claim) -> tuple[str, *tuple[object, ...]]:
    """The statement that rescues an attempt, once it was found lost."""
    return sql.RESCUE, [claim.task_id], [claim.epoch], [claim.worker_id], *LOST


def expiry_of(task: Task | Claim) -> tuple[str, *tuple[object, ...]]:
    """The statement that ends a task, once it was found overdue."""
    return sql.EXPIRE, [task.task_id], OVERDUE, *EXPIRED, *UNANSWERED, *TIMED_OUT


class Race:
    """Two connections beside the store's: one that holds what others want, and one that watches them wait.

    `other` is the store of another process, whose calls are committed when the race says so.
    """

    def __init__(self, scene: Scene, holder: asyncpg.Connection[Any]) -> None:
        self._watcher = scene.connection
        self._holder = holder
        self.other = Store(Borrowed(holder))

    async def waiting(self, count: int) -> None:
        """Wait until so many connections wait for a lock."""

        await seen(self._watcher, WAITING, count)

    async def at_once(self, task: Task | Claim, *calls: Coroutine[Any, Any, Any]) -> list[Any]:
        """Let these calls all wait for the task's row, then run on in this order; what they returned or raised."""
        async with self._holder.transaction():
            await self._holder.execute("SELECT FROM perdure.tasks WHERE task_id = $1 FOR UPDATE", task.task_id)
            running = []
            for call in calls:
                running.append(asyncio.create_task(call))
                await self.waiting(len(running))
        return await asyncio.gather(*running, return_exceptions=True)

    @asynccontextmanager
    async def in_flight(self, call: Coroutine[Any, Any, R]) -> AsyncIterator[R]:
        """A call of `other` is made, and committed at the end."""
        async with self._holder.transaction():
            yield await call

    async def waits_for(self, first: Coroutine[Any, Any, object], then: Awaitable[R]) -> R | Exception:
        """A call of `other` is made, and committed once this other one waits for it; what that returned or raised."""
        async with self.in_flight(first):
            running = asyncio.ensure_future(then)
            await self.waiting(1)
        try:
            return await running
        except StaleAttempt as refused:
            return refused

    async def uncommitted(self, statement: str, *args: object, then: Coroutine[Any, Any, R]) -> R:
        """Run a statement of another process, let this call wait for it, then commit; what the call returned."""
        async with self._holder.transaction():
            await self._holder.fetch(statement, *args)
            running = asyncio.create_task(then)
            await self.waiting(1)
        return await running

    async def between_looking_and_moving(
        self, verb: Callable[[Store], Awaitable[R]], *, meanwhile: Callable[[], Awaitable[object]]
    ) -> R:
        """Stop maintenance after it has found what is due, and do something meanwhile; what it returned."""
        return await verb(Store(Interrupted(self._holder, meanwhile)))

    async def between(
        self, statement: str, *args: object, meanwhile: Callable[[], Awaitable[object]]
    ) -> list[asyncpg.Record]:
        """Stop a statement after it has looked and before it locks, and do something meanwhile; what it returned."""
        pause = "FROM (SELECT pg_advisory_xact_lock(7)) AS pause CROSS JOIN"
        looked = _LOOKED[statement]
        assert statement.count(looked) == 1
        paused = statement.replace(looked, looked.replace("FROM", pause))
        await self._watcher.execute("SELECT pg_advisory_lock(7)")
        running = asyncio.create_task(self._holder.fetch(paused, *args))
        await self.waiting(1)
        await meanwhile()
        await self._watcher.execute("SELECT pg_advisory_unlock(7)")
        return await running
