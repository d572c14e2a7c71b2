"""The commit is done, and its reply is lost: what was done is done once, and whoever did it goes on.

Each verb is called by a process whose connection breaks right after the commit, and compared with one that hears.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest

from app.domain.task import Claim, Idempotency, Json, Reply, Status, Task
from app.errors import StaleAttempt
from app.storage import callers, due
from app.storage import statements as sql
from app.storage.database import Database
from app.storage.store import STILL_KNOWN, Store
from tests.storage.facts import look
from tests.storage.scene import ERROR, OWNER, RESULT, Scene, attempt_of, new_task, question, response
from tests.storage.test_interleavings import lost, unanswered
from tests.support.forgetful import ForgetfulCable, forgetful_cable_to


@pytest.fixture
async def cable(db_url: str) -> AsyncIterator[ForgetfulCable]:
    """A cable to the test's own database."""
    async with forgetful_cable_to(db_url) as cable:
        yield cable


@pytest.fixture
async def deaf(cable: ForgetfulCable) -> AsyncIterator[Store]:
    """The store of a process at the end of that cable."""
    async with Database(cable.url, connections=2) as database:
        yield Store(database)


@dataclass(frozen=True)
class Point:
    """Where a process fails: after the commit of this statement.

    Attributes:
        arrange: makes a task that the verb can be done to.
        verb: what the process does.
        told: what it is told in the end, of what it would have been told; None is none of it.
    """

    statement: str
    arrange: Callable[[Scene], Awaitable[Claim]]
    verb: Callable[[Store, Claim], Coroutine[Any, Any, object]]
    told: Callable[[Any], object] = lambda _: None


def the_same(task: Any) -> object:
    return (task.status, task.status_message, task.version, task.epoch, task.reply) if isinstance(task, Task) else task


POINTS: dict[str, Point] = {
    "ask": Point(sql.ASK, Scene.running, lambda s, c: s.ask(c, [question("colour"), question("size")]), the_same),
    "step": Point(sql.STEP, Scene.running, lambda s, c: s.step(c, "fetch", Json("1")), the_same),
    "status": Point(sql.STATUS_MANY, Scene.running, lambda s, c: s.status(c, "halfway", 1, 2), the_same),
    "detach": Point(sql.DETACH, lambda s: s.running(reply=Reply.REQUEST), lambda s, c: s.detach(c), the_same),
    "finish": Point(sql.FINISH, Scene.running, lambda s, c: s.finish(c, RESULT), the_same),
    "fail": Point(sql.FAIL, Scene.running, lambda s, c: s.fail(c, ERROR, "It broke", internal="why"), the_same),
    "retry": Point(sql.RETRY, Scene.running, lambda s, c: s.retry(c, 60_000, "It broke", "why"), the_same),
    "release": Point(sql.RELEASE, Scene.running, lambda s, c: s.release(c.worker_id, attempt_of(c)), lambda _: []),
    "answer": Point(
        sql.ANSWER, Scene.parked, lambda s, c: s.answer(OWNER, c.task_id, {"colour": response(), "age": response()})
    ),
    "answer, of two": Point(
        sql.ANSWER,
        lambda s: s.parked("colour", "size"),
        lambda s, c: s.answer(OWNER, c.task_id, {"size": response()}, capabilities=Json('{"roots":{}}')),
    ),
    "cancel, parked": Point(sql.CANCEL, Scene.parked, lambda s, c: s.cancel(OWNER, c.task_id)),
    "cancel, running": Point(sql.CANCEL, Scene.running, lambda s, c: s.cancel(OWNER, c.task_id), the_same),
    "detach_for": Point(
        sql.DETACH_FOR, lambda s: s.parked(reply=Reply.REQUEST), lambda s, c: s.detach_for(OWNER, c.task_id)
    ),
    "rescue": Point(sql.RESCUE, lost, lambda s, _: s.rescue(), lambda _: []),
    "rescue, once too often": Point(
        sql.RESCUE, lambda s: s.running(worker_id=uuid4(), losses=0), lambda s, _: s.rescue(), lambda _: []
    ),
    "expire": Point(sql.EXPIRE, unanswered, lambda s, _: s.expire(), lambda _: []),
}


@pytest.mark.parametrize("name", POINTS)
async def test_what_was_done_before_the_reply_was_lost_is_not_done_again(
    scene: Scene, cable: ForgetfulCable, deaf: Store, name: str
) -> None:
    point = POINTS[name]
    heard = await point.arrange(scene)
    said = await point.verb(scene.store, heard)
    unheard = await point.arrange(scene)
    cable.lose_the_reply_to(point.statement)
    told = await point.verb(deaf, unheard)
    assert cable.lost.is_set()
    assert the_same(told) == point.told(said)
    rows, broken = await look(scene.connection)
    assert broken == set()
    one, other = rows[heard.task_id].row, rows[unheard.task_id].row
    assert replace(one, worker_id=None) == replace(other, worker_id=None)


async def test_a_task_whose_handle_was_lost_is_created_once(scene: Scene, cable: ForgetfulCable, deaf: Store) -> None:
    new = new_task()
    cable.lose_the_reply_to(callers.CREATE)
    task = await deaf.create(new)
    assert cable.lost.is_set()
    assert (task.task_id, task.version) == (new.task_id, 1)
    assert await scene.connection.fetchval("SELECT count(*) FROM perdure.tasks") == 1
    assert await scene.connection.fetchval("SELECT count(*) FROM perdure.task_requests") == 1


async def test_a_task_whose_handle_was_lost_keeps_its_key(scene: Scene, cable: ForgetfulCable, deaf: Store) -> None:
    new = replace(new_task(), idempotency=Idempotency(b"key", b"1"))
    cable.lose_the_reply_to(callers.CREATE)
    assert (await deaf.create(new)).task_id == new.task_id
    assert cable.lost.is_set()
    assert (await scene.store.create(replace(new, task_id=new_task().task_id))).task_id == new.task_id


async def test_a_question_that_turned_into_the_cancel_has_ended_the_task(
    scene: Scene, cable: ForgetfulCable, deaf: Store
) -> None:
    claim = await scene.stopping()
    cable.lose_the_reply_to(sql.ASK)
    with pytest.raises(StaleAttempt):
        await deaf.ask(claim, [question("colour")])
    assert cable.lost.is_set()
    assert (await scene.state(claim)).task.status is Status.CANCELLED
    assert len(await scene.children(claim, "task_attempts")) == 1


async def test_a_purge_whose_reply_was_lost_leaves_no_orphan(scene: Scene, cable: ForgetfulCable, deaf: Store) -> None:
    claim = await scene.completed(retention_ms=0)
    await scene.age(claim, STILL_KNOWN.total_seconds() + 1)
    cable.lose_the_reply_to(due.PURGE)
    assert await deaf.purge() == 0
    assert cable.lost.is_set()
    assert await look(scene.connection) == ({}, set())


# -- claim ------------------------------------------------------------------------------------------------------------


async def test_a_worker_that_did_not_hear_of_its_claim_finds_it_among_its_holdings_and_gives_it_back(
    scene: Scene, cable: ForgetfulCable, deaf: Store
) -> None:
    task = await scene.queued("weigh")
    cable.lose_the_reply_to(sql.CLAIM)
    assert await deaf.claim(scene.worker_id, ["weigh"], 4) == []
    assert cable.lost.is_set()
    (held,) = await deaf.holdings(scene.worker_id)
    assert (held.task_id, held.epoch) == (task.task_id, 1)
    await deaf.release(scene.worker_id, [(held.task_id, held.epoch)])
    claim = await scene.claim(task)
    row = await scene.row(claim)
    assert (claim.epoch, row["losses"], row["failures"], row["version"]) == (2, 0, 0, 1)


async def test_a_worker_that_dies_right_after_its_claim_is_a_loss_and_the_next_one_runs_the_task(
    scene: Scene, cable: ForgetfulCable, deaf: Store
) -> None:
    task, dead = await scene.queued("weigh"), await scene.enlist(uuid4())
    cable.lose_the_reply_to(sql.CLAIM)
    await deaf.claim(dead, ["weigh"], 1)
    assert cable.lost.is_set()
    assert await scene.store.rescue() == []  # its lease is not over
    await scene.silence(dead)
    assert [rescued.task_id for rescued in await scene.store.rescue()] == [task.task_id]
    claim = await scene.claim(task)
    assert (claim.epoch, (await scene.row(claim))["losses"]) == (2, 1)


async def test_a_claim_that_is_repeated_takes_no_task_twice(scene: Scene, cable: ForgetfulCable, deaf: Store) -> None:
    tasks = {(await scene.queued("weigh")).task_id for _ in range(3)}
    cable.lose_the_reply_to(sql.CLAIM)
    claims = await deaf.claim(scene.worker_id, ["weigh"], 2)
    assert cable.lost.is_set()
    held = {h.task_id for h in await deaf.holdings(scene.worker_id)}
    assert (len(claims), held) == (1, tasks)
    assert {claim.epoch for claim in claims} == {1}
