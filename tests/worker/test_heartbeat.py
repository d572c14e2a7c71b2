"""The lease: kept alive beside a busy loop, fenced before it ends, and a new identity when the row is gone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg

from app.domain.task import Status
from app.tools.context import ToolContext
from app.tools.registry import tool
from app.worker.heartbeat import Heartbeat
from app.worker.maintenance.rescue import rescue
from tests.storage.conftest import connection, database, store
from tests.support.waiting import eventually
from tests.support.worker import working

__all__ = ["connection", "database", "store"]

LEASE = 2.0


class Told:
    """What a heartbeat said."""

    def __init__(self) -> None:
        self.fenced = threading.Event()
        self.lost: list[UUID] = []


@asynccontextmanager
async def beating(db_url: str, lease_seconds: float = LEASE) -> AsyncIterator[tuple[Heartbeat, Told]]:
    """A heartbeat that has registered."""
    told = Told()
    heartbeat = Heartbeat(
        db_url,
        tools=["t"],
        slots=3,
        lease_seconds=lease_seconds,
        version="1",
        on_fence=told.fenced.set,
        on_lost=told.lost.append,
    )
    heartbeat.start()
    try:
        await heartbeat.registered()
        yield heartbeat, told
    finally:
        await asyncio.to_thread(heartbeat.stop)


async def test_the_row_is_there_while_it_beats_and_gone_after(db_url: str, connection: asyncpg.Connection[Any]) -> None:
    async with beating(db_url) as (heartbeat, _):
        row = await connection.fetchrow("SELECT worker_id, tools, slots, lease_ms FROM perdure.workers")
        assert row is not None
        assert tuple(row) == (heartbeat.worker_id, ["t"], 3, 2000)
        assert heartbeat.alive
        assert not heartbeat.trusted
    assert await connection.fetchval("SELECT count(*) FROM perdure.workers") == 0


async def test_a_blocked_loop_does_not_lose_the_lease(db_url: str, connection: asyncpg.Connection[Any]) -> None:
    async with beating(db_url, 1.0) as (heartbeat, told):
        time.sleep(2.5)  # noqa: ASYNC251  the loop is blocked for more than two leases: that is what is tested
        assert heartbeat.alive
        late = await connection.fetchval("SELECT clock_timestamp() - beat_at > interval '1 s' FROM perdure.workers")
        assert late is False
        assert not told.fenced.is_set()


async def test_a_lease_that_cannot_be_renewed_fences_before_it_ends(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    async with beating(db_url) as (heartbeat, told):
        await connection.execute("BEGIN")
        await connection.execute("LOCK TABLE perdure.workers IN ACCESS EXCLUSIVE MODE")
        assert await asyncio.to_thread(told.fenced.wait, 4 * LEASE)
        beat_at = await connection.fetchval("SELECT max(beat_at) FROM perdure.workers")
        assert not heartbeat.alive
        over = await connection.fetchval("SELECT clock_timestamp() - $1 > make_interval(secs => $2)", beat_at, LEASE)
        assert over is False
        await connection.execute("ROLLBACK")

        async def alive_again() -> bool:
            return heartbeat.alive

        await eventually(alive_again)
        assert not heartbeat.trusted


async def test_a_row_that_is_gone_makes_it_go_on_under_a_new_id(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    async with beating(db_url) as (heartbeat, told):
        before = heartbeat.worker_id
        await connection.execute("DELETE FROM perdure.workers")

        async def under_the_new_id() -> bool:  # it is told before the row is committed
            row = await connection.fetchval("SELECT worker_id FROM perdure.workers")
            return told.lost == [heartbeat.worker_id] == [row]

        await eventually(under_the_new_id)
        assert heartbeat.worker_id != before


async def test_nobody_is_rescued_before_the_own_beats_have_held_for_a_lease(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    probe = asyncio.Event()

    @tool
    async def t(ctx: ToolContext) -> str:
        """Hang in the first attempt."""
        if ctx.attempt == 1:
            probe.set()
            await asyncio.Event().wait()
        return f"attempt {ctx.attempt}"

    async with working(db_url, t, slots=1) as (tasks, _):
        task_id = await tasks.start(t)
        await probe.wait()
        # As if that worker were dead: its tasks belong to one that nobody hears of.
        await connection.execute("UPDATE perdure.tasks SET worker_id = gen_random_uuid()")
        async with beating(db_url) as (heartbeat, _):
            assert not heartbeat.trusted
            assert await rescue(tasks.store, heartbeat) == 0

            async def trusted() -> bool:
                return heartbeat.trusted

            await eventually(trusted)
            await rescue(tasks.store, heartbeat)
        done = await tasks.reaches(task_id, Status.COMPLETED)
        assert "attempt 2" in str(done.result)
    lost = await connection.fetchrow("SELECT ended, epoch FROM perdure.task_attempts")
    assert lost is not None
    assert tuple(lost) == ("lost", 1)
    assert await connection.fetchval("SELECT losses FROM perdure.tasks") == 1


async def test_a_worker_that_lost_its_row_abandons_what_it_ran(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    ended: list[int] = []
    probe = asyncio.Event()

    @tool
    async def t(ctx: ToolContext) -> str:
        """Hang in the first attempt."""
        if ctx.attempt == 1:
            probe.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(ctx.attempt)
        return f"attempt {ctx.attempt}"

    async with working(db_url, t, lease_seconds=1.0) as (tasks, _):
        task_id = await tasks.start(t)
        await probe.wait()
        await connection.execute("DELETE FROM perdure.workers")
        done = await tasks.reaches(task_id, Status.COMPLETED)
        assert "attempt 2" in str(done.result)
    assert ended == [1]
