"""What reaches subscribers, and when: with notifications, in their gaps and without, and beside slow readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from app.domain.task import Json
from app.storage import watches
from app.storage.database import Database
from app.storage.store import Store
from app.storage.watches import HEARING_SECONDS
from tests.support.cable import cable_to
from tests.support.service import DONE, Service, serving
from tests.support.subscriber import Subscriber, subscribed
from tests.support.waiting import eventually

AT_ONCE = 0.6 * HEARING_SECONDS
"""Less than a poll takes: what comes within it was heard of."""


@asynccontextmanager
async def silent_store(db_url: str) -> AsyncIterator[Store]:
    """A store whose changes nobody is told of."""
    async with Database(db_url, connections=1) as database:
        yield Store(database)


async def cut_listeners(connection: asyncpg.Connection[Any]) -> int:
    """Kill the connections of all listeners; how many there were."""
    ended: int = await connection.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE application_name = 'perdure listener' AND datname = current_database()"
    )
    return ended


@asynccontextmanager
async def listening_to_one(service: Service) -> AsyncIterator[tuple[Subscriber, str]]:
    """A subscriber that has seen the state of its one task."""
    task_id = await service.start_task()
    async with subscribed(service.client, task_id) as subscriber:
        await subscriber.next()
        yield subscriber, task_id


async def test_a_change_anywhere_is_sent_at_once(db_url: str) -> None:
    async with (
        serving(db_url, listens=True) as service,
        serving(db_url, listens=True) as elsewhere,
        listening_to_one(service) as (subscriber, task_id),
    ):
        await elsewhere.client.rpc("tasks/cancel", {"taskId": task_id})
        assert (await subscriber.next(seconds=AT_ONCE))["status"] == "cancelled"


async def test_what_changes_in_a_gap_of_the_hearing_is_sent_when_it_ends(db_url: str) -> None:
    async with (
        serving(db_url, listens=True) as service,
        silent_store(db_url) as store,
        listening_to_one(service) as (subscriber, _),
    ):
        claim = await service.claim()
        assert await cut_listeners(service.connection) == 1
        await store.finish(claim, DONE)
        assert (await subscriber.next(seconds=AT_ONCE))["status"] == "completed"


async def test_a_change_that_nobody_told_of_is_found_by_the_poll(db_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "HEARING_SECONDS", 0.5)
    async with serving(db_url, listens=True) as service, silent_store(db_url) as store:
        task_id, busy = await service.start_task(), await service.start_task("careful_job")
        async with subscribed(service.client, task_id, busy) as subscriber:
            claim, working = await service.claim(), await service.claim("careful_job")
            telling = asyncio.create_task(_keep_telling(service.store, working))
            await store.finish(claim, DONE)
            await subscriber.until(taskId=task_id, status="completed")  # though it hears of others all the time
            telling.cancel()
            await asyncio.wait({telling})


async def test_a_stream_outlives_the_database_and_catches_up(db_url: str) -> None:
    async with (
        cable_to(db_url) as cable,
        silent_store(db_url) as store,
        serving(cable.url, patience_seconds=0.2, keepalive_seconds=0.05) as service,
        listening_to_one(service) as (subscriber, _),
    ):
        claim = await service.claim()
        await cable.pull_out()
        await store.finish(claim, DONE)
        with pytest.raises(TimeoutError):
            await subscriber.next(seconds=1.0)
        assert subscriber.keepalives > 0
        await cable.plug_in()
        assert (await subscriber.next())["status"] == "completed"


async def test_a_slow_reader_gets_the_newest_state_and_slows_nobody(db_url: str) -> None:
    large = DONE.replace("done", "x" * 24_000_000)  # more than the buffers of a connection hold
    async with serving(db_url) as service:
        task_id, busy = await service.start_task(), await service.start_task("careful_job")
        async with subscribed(service.client, task_id, busy) as slow, subscribed(service.client, busy) as quick:
            for subscriber in (slow, slow, quick):
                await subscriber.next()
            await service.store.finish(await service.claim(), Json(large))

            async def is_stuck() -> bool:
                return _unsent(service) > 0

            assert await eventually(is_stuck)
            working = await service.claim("careful_job")
            for number in range(20):
                await service.store.status(working, str(number))
                await quick.until(statusMessage=str(number))
            assert (await slow.next())["taskId"] == task_id
            assert (await slow.next())["statusMessage"] == "19"


def _unsent(service: Service) -> int:
    """How many bytes the server holds for its clients."""
    server = service.server._server
    assert server is not None
    return sum(each.transport.get_write_buffer_size() for each in server.connections if each.transport is not None)


async def _keep_telling(store: Store, claim: Any) -> None:
    for number in range(10_000):
        await store.status(claim, str(number))
        await asyncio.sleep(0.01)
