"""Streams that ask at the same time are read for together, and each gets what is its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from uuid import UUID, uuid4

import asyncpg
import pytest

from app.errors import StoreUnavailable
from app.methods.reading import Reader
from app.storage.database import Database
from app.storage.rows import Newer
from app.storage.store import Store
from tests.storage.scene import Scene


class HeldStore(Store):
    """Notes each reading, and lets the test hold it."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.reads: list[dict[tuple[str, UUID], int]] = []
        self.go_on = asyncio.Event()
        self.fault: Exception | None = None

    async def newer(self, known: Mapping[tuple[str, UUID], int]) -> list[Newer]:
        """As the store, once the test lets it."""
        self.reads.append(dict(known))
        await self.go_on.wait()
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        return await super().newer(known)


@pytest.fixture
async def scene(db_url: str) -> AsyncIterator[Scene]:
    """Makes tasks on the test's own database, through a store that can be held."""
    connection = await asyncpg.connect(db_url)
    async with Database(db_url, connections=2) as database:
        yield Scene(HeldStore(database), connection)
    await connection.close(timeout=5)


async def waiting(reader: Reader, owner: str, known: dict[UUID, int]) -> asyncio.Task[list[UUID]]:
    """A stream that asks, and waits by now."""

    async def ask() -> list[UUID]:
        return [current.task_id for current in await reader.newer(owner, known)]

    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_what_is_asked_for_during_a_reading_is_read_together_and_each_gets_its_own(scene: Scene) -> None:
    store = scene.store
    assert isinstance(store, HeldStore)
    reader = Reader(store)
    mine, yours = await scene.queued(owner="me"), await scene.queued(owner="you")
    first = await waiting(reader, "me", {mine.task_id: 0})
    others = [
        await waiting(reader, "me", {mine.task_id: 1}),
        await waiting(reader, "me", {mine.task_id: 0}),
        await waiting(reader, "you", {yours.task_id: 0}),
        await waiting(reader, "you", {mine.task_id: 0}),
    ]
    store.go_on.set()
    assert await first == [mine.task_id]
    assert [await other for other in others] == [[], [mine.task_id], [yours.task_id], []]
    assert store.reads == [
        {("me", mine.task_id): 0},
        {("me", mine.task_id): 0, ("you", yours.task_id): 0, ("you", mine.task_id): 0},
    ]


async def test_a_fault_is_for_those_who_waited_and_the_next_are_read_for(scene: Scene) -> None:
    store = scene.store
    assert isinstance(store, HeldStore)
    reader, task = Reader(store), await scene.queued(owner="me")
    store.fault = StoreUnavailable("away")
    failed = await waiting(reader, "me", {task.task_id: 0})
    later = await waiting(reader, "me", {task.task_id: 0})
    store.go_on.set()
    with pytest.raises(StoreUnavailable):
        await failed
    assert await later == [task.task_id]


async def test_a_stream_that_leaves_takes_nothing_from_the_others(scene: Scene) -> None:
    store = scene.store
    assert isinstance(store, HeldStore)
    reader, task = Reader(store), await scene.queued(owner="me")
    left = await waiting(reader, "me", {task.task_id: 0})
    gone = await waiting(reader, "me", {uuid4(): 0})
    stays = await waiting(reader, "me", {task.task_id: 0})
    left.cancel()
    gone.cancel()
    await asyncio.wait({left, gone})
    store.go_on.set()
    assert await stays == [task.task_id]
    assert len(store.reads) == 2
    assert list(store.reads[1]) == [("me", task.task_id)]
