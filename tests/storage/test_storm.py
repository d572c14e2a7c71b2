"""Everybody at once: no deadlock, nothing done twice, and every task comes to an end that stands."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from app.domain.task import Claim, Idempotency, Json, Reply, Status, Task
from app.errors import StaleAttempt
from app.storage import fleet
from app.storage.database import Database
from app.storage.store import Store
from tests.storage.facts import look
from tests.storage.racing import deadlocks, look_for_deadlocks_soon
from tests.storage.scene import ERROR, OWNER, RESULT, TOOL, new_task, question, response

TOOLS = (TOOL, "count")
SECONDS = 3.0
SHARED = 30
"""Everybody works on so many of the newest tasks, so that they get in each other's way."""

_AGE_SOME = """
UPDATE perdure.tasks
SET created_at = created_at - interval '3 hours', deadline_at = deadline_at - interval '3 hours',
    finished_at = finished_at - interval '3 hours', expires_at = expires_at - interval '3 hours'
WHERE task_id = $1"""


@dataclass
class Storm:
    """What several clients, workers and maintenance loops do, by chance, to the same tasks.

    Rows of one statement come in any order, so that only the statement can bring them into one.
    """

    store: Store
    database: Database
    chance: random.Random
    ids: list[UUID] = field(default_factory=list)
    ends: dict[UUID, Task] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    end: float = field(default_factory=lambda: time.monotonic() + SECONDS)

    @property
    def blows(self) -> bool:
        return time.monotonic() < self.end

    def saw(self, verb: str, tasks: Sequence[Task | None]) -> None:
        """All who see a task's end see the same one, and nobody sees anything later than it."""
        for task in filter(None, tasks):
            self.done[verb] += 1
            if task.status.terminal:
                end = self.ends.setdefault(task.task_id, task)
                assert (task.status, task.version) == (end.status, end.version)
            elif task.task_id in self.ends:
                assert task.version < self.ends[task.task_id].version

    def any_task(self) -> UUID:
        return self.chance.choice(self.ids[-SHARED:])

    async def client(self) -> None:
        while self.blows:
            for _ in range(5):
                await self.create()
            for task_id in {self.any_task() for _ in range(3)}:
                if (state := await self.store.get(OWNER, task_id)) is not None:
                    self.saw("get", [state.task])
                keys = self.chance.sample(["a", "b", "c"], self.chance.randint(1, 3))
                answers = {key: response() for key in keys}
                declared = self.chance.choice([None, Json("{}"), Json('{"roots":{}}')])
                self.saw("answer", [await self.store.answer(OWNER, task_id, answers, capabilities=declared)])
            if self.chance.random() < 0.3:
                reply = self.chance.choice([None, Reply.REQUEST])
                self.saw("cancel", [await self.store.cancel(OWNER, self.any_task(), reply=reply)])
                self.saw("detach", [await self.store.detach_for(OWNER, self.any_task())])

    async def create(self) -> None:
        policy: dict[str, Any] = {"losses": self.chance.choice([0, 3]), "ttl_ms": self.chance.choice([None, 3_600_000])}
        reply = self.chance.choice(list(Reply))
        new = new_task(self.chance.choice(TOOLS), reply=reply, retention_ms=0, answer_within_ms=60_000, **policy)
        if self.chance.random() < 0.3:
            new = replace(new, idempotency=Idempotency(bytes([self.chance.randrange(3)]), b"1"))
        task = await self.store.create(new)
        if task.task_id == new.task_id:
            self.ids.append(task.task_id)
        self.saw("create", [task])

    async def worker(self) -> None:
        while self.blows:
            worker_id = uuid4()
            if self.chance.random() < 0.5:  # without a row anybody may take it for lost at any time
                await self.database.fetch(fleet.REGISTER, worker_id, "here", 1, "0", TOOLS, 4, 60_000)
            claims = await self.store.claim(worker_id, TOOLS, 20)
            self.saw("claim", [claim.task for claim in claims])
            self.chance.shuffle(claims)
            for claim in claims[:4]:
                with suppress(StaleAttempt):
                    await self.attempt(claim)
            attempts = [(claim.task_id, claim.epoch) for claim in claims]
            self.saw("release", await self.store.release(worker_id, attempts))

    async def attempt(self, claim: Claim) -> None:
        await self.store.step(claim, f"step {claim.epoch}", Json("1"))
        self.saw("status", [await self.store.status(claim, f"attempt {claim.epoch}", claim.epoch)])
        match self.chance.randrange(7):
            case 0:
                self.saw("finish", [await self.store.finish(claim, RESULT)])
            case 1:
                self.saw("fail", [await self.store.fail(claim, ERROR, "It broke", internal="why")])
            case 2 | 3 if not claim.questions:
                self.saw("ask", [await self.store.ask(claim, [question(key) for key in "abc"])])
            case 4:
                self.saw("retry", [await self.store.retry(claim, 0, "It broke", "why")])
            case 5:
                self.saw("detach", [await self.store.detach(claim)])

    async def maintenance(self) -> None:
        while self.blows:
            self.saw("rescue", await self.store.rescue(20))
            self.saw("expire", await self.store.expire(20))
            purged = await self.store.purge(20)
            self.done["purge"] += purged

    async def time(self) -> None:
        """Some tasks grow older than they are, so that there is something to expire and to purge."""
        while self.blows:
            if self.ids:
                await self.database.fetch(_AGE_SOME, self.chance.choice(self.ids))
            await asyncio.sleep(0.005)

    async def calm(self) -> None:
        """Bring what is left to its end."""
        for task_id in self.ids:
            self.saw("cancel", [await self.store.cancel(OWNER, task_id)])
        await self.database.fetch("DELETE FROM perdure.workers")
        self.saw("rescue", await self.store.rescue(10_000))


@pytest.mark.parametrize("seed", range(2))
async def test_in_a_storm_every_task_comes_to_one_end_that_stands_and_nobody_deadlocks(
    db_url: str, connection: asyncpg.Connection[Any], seed: int
) -> None:
    await look_for_deadlocks_soon(connection)
    async with Database(db_url, connections=12) as database:
        storm = Storm(Store(database), database, random.Random(seed))  # noqa: S311
        async with asyncio.TaskGroup() as group:
            for work in (storm.client, storm.worker, storm.maintenance):
                for _ in range(3):
                    group.create_task(work())
            group.create_task(storm.time())
        await storm.calm()
    rows, broken = await look(connection)
    assert broken == set()
    assert storm.ends.keys() == set(storm.ids)
    assert len(storm.ids) == len(rows) + storm.done["purge"]
    assert {i: seen.row.status for i, seen in rows.items()} == {i: storm.ends[i].status for i in rows}
    assert {Status.COMPLETED, Status.FAILED, Status.CANCELLED} == {end.status for end in storm.ends.values()}
    quiet = {"create", "claim", "answer", "cancel", "finish", "release", "rescue", "expire", "purge"} - (
        +storm.done
    ).keys()
    assert quiet == set()
    assert await deadlocks(connection) == 0
