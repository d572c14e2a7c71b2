"""claim: the most urgent tasks of the worker's tools, each to one worker, without waiting for anybody."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from app.domain.task import Json, Status, Task
from app.storage.database import Database
from app.storage.store import CLAIMS_IN_VAIN, Store
from tests.storage.scene import OWNER, TOOL, Scene, attempt_of, new_task, question, response


async def ready_in(scene: Scene, task: Task, seconds: float) -> None:
    """Let a task that waits be ready in so many seconds."""
    query = "UPDATE perdure.tasks SET ready_at = clock_timestamp() + $2 * interval '1 second' WHERE task_id = $1"
    assert await scene.connection.execute(query, task.task_id, seconds) == "UPDATE 1"


@asynccontextmanager
async def locked(connection: asyncpg.Connection[Any], tasks: Sequence[Task]) -> AsyncIterator[None]:
    """Hold the locks of these rows meanwhile."""
    async with connection.transaction():
        ids = [task.task_id for task in tasks]
        await connection.execute("SELECT FROM perdure.tasks WHERE task_id = ANY ($1::uuid[]) FOR UPDATE", ids)
        yield


async def claimed(store: Store, limit: int, *tools: str, worker_id: UUID | None = None) -> list[UUID]:
    return [c.task_id for c in await store.claim(worker_id or uuid4(), tools or (TOOL,), limit)]


async def test_a_claim_gives_the_attempt_all_that_it_needs(scene: Scene) -> None:
    new = replace(new_task(), params=Json('{"a": 1}'), capabilities=Json('{"b":2}'), trace_context=Json("{}"))
    task = await scene.store.create(replace(new, revision="2026-07-28"))
    claim = await scene.claim(task)
    assert (claim.worker_id, claim.task_id, claim.epoch) == (scene.worker_id, new.task_id, 1)
    assert (claim.params, claim.capabilities, claim.trace_context) == ('{"a": 1}', '{"b":2}', "{}")
    assert (claim.revision, claim.remaining_ms) == ("2026-07-28", None)
    assert (claim.steps, claim.answers, claim.questions) == ({}, {}, {})


async def test_a_claimed_task_is_the_workers_and_the_client_sees_no_change(scene: Scene) -> None:
    task = await scene.queued()
    claim = await scene.claim(task)
    assert (claim.task.status, claim.task.version, claim.task.updated_at) == (Status.WORKING, 1, task.updated_at)
    row = await scene.row(task)
    assert (row["worker_id"], row["ready_at"], row["epoch"]) == (scene.worker_id, None, 1)
    assert row["started_at"] > task.created_at


async def test_each_claim_is_a_new_attempt_with_what_the_earlier_ones_left(scene: Scene) -> None:
    claim = await scene.running()
    await scene.store.step(claim, "fetch", Json("[1]"))
    await scene.store.ask(claim, [question("colour"), question("size")])
    task = await scene.store.answer(OWNER, claim.task_id, {"size": response("big")})
    task = await scene.store.answer(OWNER, claim.task_id, {"colour": response("red")})
    assert task is not None
    second = await scene.claim(task)
    await scene.store.step(second, "weigh", Json("[2]"))
    await scene.store.release(second.worker_id, attempt_of(second))
    third = await scene.claim(task)
    assert (claim.epoch, second.epoch, third.epoch) == (1, 2, 3)
    assert (second.steps, third.steps) == ({"fetch": "[1]"}, {"fetch": "[1]", "weigh": "[2]"})
    assert third.answers == {"colour": response("red"), "size": response("big")}
    assert third.questions == {"colour": question("colour").request, "size": question("size").request}


async def test_histories_of_tasks_that_are_claimed_together_are_not_mixed(scene: Scene) -> None:
    tasks = [await scene.queued() for _ in range(3)]
    claims = await scene.store.claim(scene.worker_id, [TOOL], 2)
    for claim in claims:
        await scene.store.step(claim, "fetch", response(str(claim.task_id)))
        await scene.store.release(scene.worker_id, attempt_of(claim))
    again = await scene.store.claim(scene.worker_id, [TOOL], 3)
    expected: list[dict[str, Json]] = [{}] + [{"fetch": response(str(task.task_id))} for task in tasks[:2]]
    assert [claim.steps for claim in again] == expected


async def test_urgent_tasks_go_first_and_then_those_that_wait_longest(scene: Scene) -> None:
    waiting = {}
    for priority, age in ((3, 90), (1, 5), (0, 1), (1, 50), (0, 2), (2, 0)):
        waiting[priority, -age] = task = await scene.queued(priority=priority)
        await scene.age(task, age)
    in_order = [waiting[key].task_id for key in sorted(waiting)]
    assert await claimed(scene.store, 2) == in_order[:2]
    assert await claimed(scene.store, 10) == in_order[2:]


async def test_who_waits_longest_is_found_in_a_long_queue(scene: Scene) -> None:
    for age in range(12):
        oldest = await scene.queued()
        await scene.age(oldest, age)
    assert await claimed(scene.store, 1) == [oldest.task_id]


async def test_priorities_are_strict_over_all_tools(scene: Scene) -> None:
    for _ in range(30):
        await scene.age(await scene.queued("slow", priority=1), 3600)
    urgent = await scene.queued("quick", priority=0)
    assert await claimed(scene.store, 1, "slow", "quick") == [urgent.task_id]


async def test_an_answered_or_released_task_waits_from_then_on(scene: Scene) -> None:
    old, new = await scene.queued(), await scene.queued()
    (claim,) = await scene.store.claim(scene.worker_id, [TOOL], 1)
    assert claim.task_id == old.task_id
    await scene.store.release(scene.worker_id, attempt_of(claim))
    assert await claimed(scene.store, 2) == [new.task_id, old.task_id]


async def test_tasks_of_other_tools_are_never_touched(scene: Scene) -> None:
    mine = await scene.queued("weigh")
    for other in ("weight", "Weigh", "weig", "%", ""):
        await scene.queued(other, priority=0)
    assert await claimed(scene.store, 10, "weigh") == [mine.task_id]
    assert await scene.store.claim(uuid4(), [], 10) == []
    assert await scene.store.claim(uuid4(), ["none such"], 10) == []


async def test_a_task_that_is_ready_later_waits_until_then(scene: Scene) -> None:
    task = await scene.queued(priority=0)
    await ready_in(scene, task, 30)
    other = await scene.queued(priority=3)
    assert await claimed(scene.store, 10) == [other.task_id]
    await ready_in(scene, task, -1)
    assert await claimed(scene.store, 10) == [task.task_id]


@pytest.mark.parametrize("limit", [0, 1, 3, 7, 20])
async def test_never_more_than_the_limit_are_claimed(scene: Scene, limit: int) -> None:
    for _ in range(8):
        await scene.queued()
    expected = min(limit, 8)
    assert len(await claimed(scene.store, limit)) == expected
    assert await scene.connection.fetchval("SELECT count(worker_id) FROM perdure.tasks") == expected


async def test_rows_that_others_hold_are_stepped_over_without_waiting(
    scene: Scene, connection: asyncpg.Connection[Any]
) -> None:
    tasks = [await scene.queued() for _ in range(4)]
    async with asyncio.timeout(5), locked(connection, tasks[:3]):
        assert await claimed(scene.store, 1) == [tasks[3].task_id]
        assert await claimed(scene.store, 1) == []
    assert await claimed(scene.store, 9) == [task.task_id for task in tasks[:3]]


class Meddler:
    """Somebody who holds on to the heads of the queue whenever one of the next statements runs."""

    def __init__(self, scene: Scene, database: Database, heads: Sequence[Task], *, statements: int) -> None:
        self.seen = 0
        self._connection, self._heads, self._statements = scene.connection, heads, statements
        self._fetch = database.fetch
        database.fetch = self.fetch  # type: ignore[method-assign]

    async def fetch(self, statement: str, *args: object) -> list[asyncpg.Record]:
        self.seen += 1
        if self.seen > self._statements:
            return await self._fetch(statement, *args)
        async with locked(self._connection, self._heads):
            return await self._fetch(statement, *args)


async def test_a_claim_that_others_left_too_little_tries_again_at_once(scene: Scene, database: Database) -> None:
    tasks = [await scene.queued() for _ in range(12)]
    Meddler(scene, database, tasks[:6], statements=1)
    assert len(await claimed(scene.store, 8)) == 8


async def test_a_claim_whose_whole_view_others_hold_tries_again_at_once(scene: Scene, database: Database) -> None:
    tasks = [await scene.queued() for _ in range(6)]
    Meddler(scene, database, tasks[:4], statements=CLAIMS_IN_VAIN - 1)  # one slot looks at four
    assert await claimed(scene.store, 1) == [tasks[0].task_id]


async def test_a_claim_gives_up_on_rows_that_somebody_does_not_let_go(scene: Scene, database: Database) -> None:
    tasks = [await scene.queued() for _ in range(4)]
    meddler = Meddler(scene, database, tasks, statements=1000)
    assert await claimed(scene.store, 1) == []
    assert meddler.seen == CLAIMS_IN_VAIN


async def test_workers_that_claim_at_the_same_moment_share_the_tasks(scene: Scene) -> None:
    tasks = {(await scene.queued(priority=n % 4)).task_id for n in range(60)}
    shares = await asyncio.gather(*(claimed(scene.store, 6) for _ in range(10)))
    won = Counter(task_id for share in shares for task_id in share)
    assert set(won.values()) == {1}
    while share := await claimed(scene.store, 6):
        won.update(share)
    assert won == Counter(tasks)


async def test_the_deadline_is_the_timeout_from_the_claim(scene: Scene) -> None:
    claim = await scene.running(timeout_ms=60_000)
    row = await scene.row(claim)
    assert 59_000 < (row["deadline_at"] - row["started_at"]).total_seconds() * 1000 <= 60_001
    assert claim.remaining_ms is not None
    assert 50_000 < claim.remaining_ms <= 60_000


@pytest.mark.parametrize(("timeout_ms", "remaining"), [(None, 30_000), (60_000, 30_000), (20_000, 20_000)])
async def test_the_deadline_is_the_earlier_of_timeout_and_ttl(
    scene: Scene, timeout_ms: int | None, remaining: int
) -> None:
    task = await scene.queued(timeout_ms=timeout_ms, ttl_ms=100_000)
    await scene.age(task, 70)
    claim = await scene.claim(task)
    assert claim.remaining_ms is not None
    assert remaining - 10_000 < claim.remaining_ms <= remaining


async def test_the_timeout_starts_anew_with_each_attempt(scene: Scene) -> None:
    claim = await scene.running(timeout_ms=60_000)
    await scene.age(claim, 50)
    await scene.store.release(claim.worker_id, attempt_of(claim))
    again = await scene.claim(claim.task)
    assert again.remaining_ms is not None
    assert again.remaining_ms > 50_000


async def test_a_task_past_its_ttl_that_nobody_has_ended_yet_is_claimed_without_time_left(scene: Scene) -> None:
    task = await scene.queued(ttl_ms=1000)
    await scene.age(task, 60)
    claim = await scene.claim(task)
    assert claim.remaining_ms is not None
    assert claim.remaining_ms < 0


async def test_a_claim_passes_over_what_waits_for_longer_than_it_is_to_look_back(scene: Scene) -> None:
    old, new = [await scene.queued() for _ in range(2)]
    await ready_in(scene, old, -3600)
    row = await scene.row(new)
    claims = await scene.store.claim(scene.worker_id, [TOOL], 5, since=row["ready_at"])
    assert ([claim.task_id for claim in claims], claims.more) == ([new.task_id], False)
    assert await claimed(scene.store, 5) == [old.task_id]


async def test_it_says_since_when_the_first_of_all_has_waited_whatever_its_urgency(scene: Scene) -> None:
    urgent = [await scene.queued(priority=0) for _ in range(9)]
    late = await scene.queued(priority=3)
    await ready_in(scene, late, -3600)
    claims = await scene.store.claim(scene.worker_id, [TOOL], 1)  # looks at four, all of them urgent
    assert [claim.task_id for claim in claims] == [urgent[0].task_id]
    assert claims.oldest == (await scene.row(late))["ready_at"]


async def test_where_nothing_waits_it_says_the_time_of_the_database(scene: Scene) -> None:
    before = await scene.connection.fetchval("SELECT clock_timestamp()")
    claims = await scene.store.claim(scene.worker_id, [TOOL], 1)
    assert before <= claims.oldest <= await scene.connection.fetchval("SELECT clock_timestamp()")
