"""Writes and readings of several callers in one statement: each is told its own, whatever becomes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from app.domain.task import Claim, Json, Reply, Status, Task, new_task_id
from app.errors import StaleAttempt
from app.storage import callers
from app.storage import statements as sql
from app.storage.database import Database
from app.storage.store import OMITTED_BYTES, TOGETHER_BYTES, Store
from tests.storage.facts import look
from tests.storage.scene import OWNER, RESULT, Scene, attempt_of, new_task
from tests.support.forgetful import forgetful_cable_to
from tests.support.waiting import eventually

MANY = 20


class Counted(Database):
    """Knows which statements were sent, and holds them back where it is told to."""

    def __init__(self, url: str) -> None:
        super().__init__(url, connections=4)
        self.sent: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, statement: str, *args: object) -> list[asyncpg.Record]:
        self.sent.append(statement)
        await self.gate.wait()
        return await super().fetch(statement, *args)


@pytest.fixture
async def counted(db_url: str) -> AsyncIterator[Counted]:
    async with Counted(db_url) as database:
        yield database


@pytest.fixture
async def ours(counted: Counted) -> Store:
    """Beside the scene's own."""
    return Store(counted)


async def running(scene: Scene, count: int) -> list[Claim]:
    return [await scene.running() for _ in range(count)]


# -- creating ---------------------------------------------------------------------------------------------------------


async def test_tasks_that_are_created_at_once_share_a_statement_and_keep_their_own(
    scene: Scene, counted: Counted, ours: Store
) -> None:
    new = [
        replace(
            new_task(f"tool-{n}", owner=f"owner-{n % 3}", priority=n % 4, ttl_ms=n + 1), params=Json(f'{{"n":{n}}}')
        )
        for n in range(MANY)
    ]
    tasks = await asyncio.gather(*map(ours.create, new))
    assert counted.sent == [callers.CREATE]
    for it, task in zip(new, tasks, strict=True):
        assert (task.task_id, task.owner, task.tool, task.ttl_ms) == (it.task_id, it.owner, it.tool, it.policy.ttl_ms)
        (request,) = await scene.children(task, "task_requests")
        assert request["params"] == it.params
        assert (await scene.row(task))["priority"] == it.policy.priority


async def test_tasks_of_some_kinds_that_are_created_at_once_are_each_of_their_own(
    scene: Scene, counted: Counted, ours: Store
) -> None:
    kinds = [
        new_task("one", owner="alice"),
        new_task("one", owner="bob", reply=Reply.REQUEST),
        new_task("other", owner="alice", priority=0, retention_ms=1, answer_within_ms=2, losses=3, timeout_ms=4),
        new_task("other", owner="alice", priority=0, ttl_ms=86_400_000, poll_interval_ms=700),
        replace(new_task("one", owner="alice"), revision="2026-07-28", capabilities=Json('{"sampling":{}}')),
        replace(new_task("one", owner="alice"), capabilities=Json('{ "sampling":{}}'), method="tools/other"),
    ]
    new = [
        replace(
            kinds[n % len(kinds)],
            task_id=new_task_id(),
            params=Json(f'{{"n":{n}}}'),
            trace_context=Json(f'{{"traceparent":"{n}"}}') if n % 4 else None,
        )
        for n in range(2 * MANY)
    ]
    tasks = await asyncio.gather(*map(ours.create, new))
    assert counted.sent == [callers.CREATE]
    for it, task in zip(new, tasks, strict=True):
        row, (request,) = await scene.row(task), await scene.children(task, "task_requests")
        asked = {
            name: getattr(it.policy, name) for name in ("ttl_ms", "retention_ms", "timeout_ms", "answer_within_ms")
        }
        asked |= {name: getattr(it, name) for name in ("method", "params", "capabilities", "revision", "trace_context")}
        assert request == asked | {"task_id": task.task_id, "loss_limit": it.policy.losses}
        columns = ("task_id", "owner", "tool", "reply", "priority", "poll_interval_ms", "ttl_ms")
        kept = it.task_id, it.owner, it.tool, it.reply, it.policy.priority, it.policy.poll_interval_ms, it.policy.ttl_ms
        assert tuple(row[column] for column in columns) == kept


async def test_a_task_that_cannot_be_stored_fails_alone(scene: Scene, ours: Store) -> None:
    bad = replace(new_task(), params=Json("{"))
    good = [new_task() for _ in range(3)]
    came = await asyncio.gather(*map(ours.create, [good[0], bad, *good[1:]]), return_exceptions=True)
    assert isinstance(came.pop(1), asyncpg.InvalidTextRepresentationError)
    assert [task.task_id for task in came if isinstance(task, Task)] == [it.task_id for it in good]
    rows, broken = await look(scene.connection)
    assert (set(rows), broken) == ({it.task_id for it in good}, set())


async def test_tasks_whose_handles_were_lost_together_are_created_once(scene: Scene, db_url: str) -> None:
    new = [new_task() for _ in range(MANY)]
    async with forgetful_cable_to(db_url) as cable, Database(cable.url, connections=2) as database:
        cable.lose_the_reply_to(callers.CREATE)
        tasks = await asyncio.gather(*map(Store(database).create, new))
        assert cable.lost.is_set()
    assert [(task.task_id, task.version) for task in tasks] == [(it.task_id, 1) for it in new]
    assert await scene.connection.fetchval("SELECT count(*) FROM perdure.task_requests") == MANY


async def test_a_caller_that_leaves_does_not_take_its_task_or_the_others_with_it(
    scene: Scene, counted: Counted, ours: Store
) -> None:
    counted.gate.clear()
    new = [new_task() for _ in range(3)]
    calls = [asyncio.create_task(ours.create(it)) for it in new]

    async def sent() -> bool:
        return counted.sent == [callers.CREATE]

    await eventually(sent)
    calls[0].cancel()
    counted.gate.set()
    await asyncio.gather(*calls[1:])
    assert calls[0].cancelled()
    rows, broken = await look(scene.connection)
    assert (set(rows), broken) == ({it.task_id for it in new}, set())


async def test_large_requests_do_not_share_a_statement(counted: Counted, ours: Store) -> None:
    large = Json(f'{{"text":"{"x" * (TOGETHER_BYTES // 2)}"}}')
    await asyncio.gather(*(ours.create(replace(new_task(), params=large)) for _ in range(2)))
    assert counted.sent == [callers.CREATE] * 2


# -- reading ----------------------------------------------------------------------------------------------------------


async def test_readings_share_a_statement_and_show_nobody_anothers_task(
    scene: Scene, counted: Counted, ours: Store
) -> None:
    mine, other, done = await scene.queued(), await scene.queued(owner="bob"), await scene.completed()
    ids = [mine.task_id, other.task_id, other.task_id, done.task_id, mine.task_id]
    reading = map(ours.get, [OWNER, OWNER, "bob", OWNER, OWNER], ids)
    found = await asyncio.gather(*reading, ours.get(OWNER, new_task_id()))
    assert counted.sent == [callers.GET]
    shown = [state and state.task.task_id for state in found]
    assert shown == [mine.task_id, None, other.task_id, done.task_id, mine.task_id, None]
    assert found[3] is not None
    assert found[3].result == RESULT


async def test_a_large_outcome_is_read_by_itself(scene: Scene, counted: Counted, ours: Store) -> None:
    small, large = await running(scene, 2)
    await scene.store.finish(small, RESULT)
    text = Json(f'{{"content":[],"text":"{"x" * OMITTED_BYTES}"}}')
    await scene.store.finish(large, text)
    states = await asyncio.gather(*(ours.get(OWNER, claim.task_id) for claim in (small, large)))
    assert [state and state.result for state in states] == [RESULT, text]
    assert counted.sent == [callers.GET] * 2


# -- ending and telling -----------------------------------------------------------------------------------------------


async def ended(store: Store, claim: Claim, result: Json = RESULT) -> bool | Exception:
    """End it together with others; what came of that."""
    came: asyncio.Future[bool | Exception] = asyncio.get_running_loop().create_future()
    store.finish_soon(claim, result, came.set_result)
    return await came


async def test_ends_share_a_statement_and_keep_their_own(scene: Scene, counted: Counted, ours: Store) -> None:
    claims = await running(scene, MANY)
    results = [Json(f'{{"n":{n}}}') for n in range(MANY)]
    assert await asyncio.gather(*(ended(ours, *it) for it in zip(claims, results, strict=True))) == [True] * MANY
    assert counted.sent == [sql.FINISH_MANY]
    states = [await scene.state(claim) for claim in claims]
    assert [(state.task.status, state.result) for state in states] == [(Status.COMPLETED, it) for it in results]


async def test_a_stale_attempt_among_others_is_told_alone(scene: Scene, ours: Store) -> None:
    claims = await running(scene, 3)
    await scene.store.release(claims[1].worker_id, attempt_of(claims[1]))
    assert await asyncio.gather(*(ended(ours, claim) for claim in claims)) == [True, False, True]
    assert (await scene.state(claims[1])).task.status is Status.WORKING
    assert await scene.children(claims[1], "task_outcomes") == []


async def test_ends_whose_acknowledgement_was_lost_together_count_once(scene: Scene, db_url: str) -> None:
    claims = await running(scene, 3)
    async with forgetful_cable_to(db_url) as cable, Database(cable.url, connections=2) as database:
        cable.lose_the_reply_to(sql.FINISH_MANY)
        store = Store(database)
        assert not any(await asyncio.gather(*(ended(store, claim) for claim in claims)))
        assert cable.lost.is_set()
        tasks = [await store.finish(claim, RESULT) for claim in claims]
    assert [(task.task_id, task.status) for task in tasks] == [(c.task_id, Status.COMPLETED) for c in claims]
    for task in tasks:
        assert (await scene.row(task))["version"] == task.version
        assert len(await scene.children(task, "task_outcomes")) == 1


async def test_a_row_that_somebody_has_locked_is_waited_for_by_its_own_writer_only(
    scene: Scene, ours: Store, connection: asyncpg.Connection[Any]
) -> None:
    claims = await running(scene, 3)
    async with locked(connection, claims[1]):
        calls = [asyncio.create_task(ours.status(claim, "halfway")) for claim in claims]
        await asyncio.wait_for(asyncio.gather(calls[0], calls[2]), 5)
        assert not calls[1].done()
    task = await asyncio.wait_for(calls[1], 5)
    assert (task.task_id, task.version) == (claims[1].task_id, claims[1].task.version + 1)


async def test_a_row_that_somebody_has_locked_is_left_to_whoever_waits_for_it(
    scene: Scene, ours: Store, connection: asyncpg.Connection[Any]
) -> None:
    claims = await running(scene, 3)
    async with locked(connection, claims[1]):
        ending = asyncio.gather(*(ended(ours, claim) for claim in claims))
        assert await asyncio.wait_for(ending, 5) == [True, False, True]
    assert (await ours.finish(claims[1], RESULT)).status is Status.COMPLETED


@asynccontextmanager
async def locked(connection: asyncpg.Connection[Any], claim: Claim) -> AsyncIterator[None]:
    """Hold on to its row meanwhile."""
    async with connection.transaction():
        await connection.execute("SELECT FROM perdure.tasks WHERE task_id = $1 FOR UPDATE", claim.task_id)
        yield


async def test_messages_share_a_statement_and_keep_their_own(scene: Scene, counted: Counted, ours: Store) -> None:
    claims = await running(scene, 4)
    await scene.store.release(claims[3].worker_id, attempt_of(claims[3]))
    progress = [None, 0.0, 0.5, 1.0]
    told = [ours.status(c, f"step {n}", progress[n], n or None) for n, c in enumerate(claims)]
    came = await asyncio.gather(*told, return_exceptions=True)
    assert counted.sent == [sql.STATUS_MANY, sql.STATUS]
    tasks = [task for task in came if isinstance(task, Task)]
    assert [(t.status_message, t.progress, t.progress_total) for t in tasks] == [
        ("step 0", None, None),
        ("step 1", 0.0, 1.0),
        ("step 2", 0.5, 2.0),
    ]
    assert isinstance(came[3], StaleAttempt)


async def test_an_end_and_a_cancel_that_meet_leave_one_of_them(scene: Scene, ours: Store) -> None:
    claims = await running(scene, MANY)
    cancels = [scene.store.cancel(OWNER, claim.task_id) for claim in claims]
    await asyncio.gather(*(ended(ours, claim) for claim in claims), *cancels)
    await asyncio.gather(*(ours.finish(claim, RESULT) for claim in claims))
    assert {(await scene.state(claim)).task.status for claim in claims} == {Status.COMPLETED}
