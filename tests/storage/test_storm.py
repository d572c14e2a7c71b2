"""Everybody at once: no deadlock, nothing done twice, and every task comes to an end that stands."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from app.domain.task import Claim, Json, Status, Task
from app.errors import StaleAttempt
from app.storage import fleet
from app.storage.database import Database
from app.storage.store import Store
from tests.storage.racing import deadlocks, look_for_deadlocks_soon
from tests.storage.scene import ERROR, OWNER, RESULT, TOOL, attempt_of, new_task, question, response

TOOLS = (TOOL, "count")
ROUNDS = 60


@dataclass
class Storm:
    """What several clients, workers and maintenance loops do, by chance, to the same tasks."""

    store: Store
    database: Database
    chance: random.Random
    ids: list[UUID] = field(default_factory=list)
    ends: dict[UUID, Task] = field(default_factory=dict)

    def saw(self, tasks: Sequence[Task | None]) -> None:
        """All who see a task's end see the same one, and nobody sees anything later than it."""
        for task in filter(None, tasks):
            if task.status.terminal:
                end = self.ends.setdefault(task.task_id, task)
                assert (task.status, task.version) == (end.status, end.version)
            elif task.task_id in self.ends:
                assert task.version < self.ends[task.task_id].version

    async def client(self) -> None:
        for _ in range(ROUNDS):
            if len(self.ids) < 40 or self.chance.random() < 0.3:
                new = new_task(self.chance.choice(TOOLS), losses=self.chance.choice([0, 3]), timeout_ms=60_000)
                self.ids.append((await self.store.create(new)).task_id)
            task_id = self.chance.choice(self.ids)
            if (state := await self.store.get(OWNER, task_id)) is not None:
                self.saw([state.task])
            keys = self.chance.sample(["a", "b", "c"], self.chance.randint(1, 3))
            self.saw([await self.store.answer(OWNER, task_id, {key: response() for key in keys})])
            if self.chance.random() < 0.1:
                self.saw([await self.store.cancel(OWNER, task_id)])

    async def worker(self) -> None:
        for _ in range(ROUNDS):
            worker_id = uuid4()
            if self.chance.random() < 0.8:  # without a row anybody may take it for lost at any time
                await self.database.fetch(fleet.REGISTER, worker_id, "here", 1, "0", TOOLS, 4, 60_000)
            for claim in await self.store.claim(worker_id, TOOLS, 4):
                with suppress(StaleAttempt):
                    await self.attempt(claim)

    async def attempt(self, claim: Claim) -> None:
        await self.store.step(claim, f"step {claim.epoch}", Json("1"))
        self.saw([await self.store.status(claim, f"attempt {claim.epoch}")])
        match self.chance.randrange(5):
            case 0:
                self.saw([await self.store.finish(claim, RESULT)])
            case 1:
                self.saw([await self.store.fail(claim, ERROR, "It broke", internal="why")])
            case 2 if not claim.questions:
                self.saw([await self.store.ask(claim, [question(key) for key in "abc"])])
            case 3:
                self.saw(await self.store.release(claim.worker_id, attempt_of(claim)))

    async def maintenance(self) -> None:
        for _ in range(ROUNDS):
            self.saw(await self.store.rescue(5))
            self.saw(await self.store.expire(5))
            await self.store.purge(5)

    async def calm(self) -> None:
        """Bring what is left to its end."""
        for task_id in self.ids:
            self.saw([await self.store.cancel(OWNER, task_id)])
        await self.database.fetch("DELETE FROM perdure.workers")
        self.saw(await self.store.rescue(1000))


@pytest.mark.parametrize("seed", range(2))
async def test_in_a_storm_every_task_comes_to_one_end_that_stands_and_nobody_deadlocks(
    db_url: str, connection: asyncpg.Connection[Any], seed: int
) -> None:
    await look_for_deadlocks_soon(connection)
    async with Database(db_url, connections=10) as database:
        storm = Storm(Store(database), database, random.Random(seed))  # noqa: S311
        async with asyncio.TaskGroup() as group:
            for work in (storm.client, storm.client, storm.worker, storm.worker, storm.worker, storm.maintenance):
                group.create_task(work())
        await storm.calm()
    rows = await connection.fetch(
        "SELECT task_id, status, epoch, (SELECT count(*) FROM perdure.task_outcomes AS o WHERE o.task_id = t.task_id) "
        "AS outcomes FROM perdure.tasks AS t"
    )
    assert {row["task_id"]: row["status"] for row in rows} == {t: end.status for t, end in storm.ends.items()}
    assert storm.ends.keys() == set(storm.ids)
    assert all(row["outcomes"] == (row["status"] in ("completed", "failed")) for row in rows)
    assert {Status.COMPLETED, Status.FAILED, Status.CANCELLED} == {end.status for end in storm.ends.values()}
    assert await deadlocks(connection) == 0
