"""Whichever two verbs meet at a task: in either order one of them wins, and the other one is told.

Those who change a task on behalf of somebody wait for its row, and then see what became of it. Those who look after
all tasks pass over a row that is in use, and come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from app.domain.task import Claim, Idempotency, NewTask, Reply, Status, Task
from app.errors import KeyConflict, StaleAttempt
from app.storage.store import EXPIRED, STILL_KNOWN, TIMED_OUT, UNANSWERED, Store
from tests.storage.racing import Race, expiry_of, rescue_of
from tests.storage.scene import ERROR, OWNER, RESULT, Scene, attempt_of, new_task, question, response
from tests.storage.test_store_fence import WRITES

Verb = Callable[[Store, Claim], Coroutine[Any, Any, object]]
Place = Callable[[Scene], Awaitable[Claim]]


async def lost(scene: Scene) -> Claim:
    """A running task whose worker has no row any more."""
    return await scene.running(worker_id=uuid4())


async def overdue(scene: Scene) -> Claim:
    """A running task whose time is over, and whose worker does not end it."""
    claim = await scene.running(timeout_ms=1000)
    await scene.overrun(claim)
    return claim


async def unanswered(scene: Scene, **kind: Any) -> Claim:
    """A task that has waited too long for an answer."""
    claim = await scene.parked("colour", **kind)
    await scene.overrun(claim)
    return claim


async def outlived(scene: Scene) -> Claim:
    """A task that waits for a worker although its time to live is over."""
    claim = await scene.running(ttl_ms=1000)
    await scene.store.release(claim.worker_id, attempt_of(claim))
    await scene.age(claim, 2)
    return claim


async def spent(scene: Scene, **kind: Any) -> Claim:
    """A task that is to be deleted."""
    claim = await scene.completed(retention_ms=0, **kind)
    await scene.age(claim, STILL_KNOWN.total_seconds() + 1)
    return claim


async def status(scene: Scene, task: Task | Claim) -> Status:
    return (await scene.state(task)).task.status


async def ended(scene: Scene, claim: Claim) -> list[str]:
    return [attempt["ended"] for attempt in await scene.children(claim, "task_attempts")]


def answer(store: Store, claim: Claim) -> Coroutine[Any, Any, Task | None]:
    return store.answer(OWNER, claim.task_id, {"colour": response()})


def cancel(store: Store, claim: Claim) -> Coroutine[Any, Any, Task | None]:
    return store.cancel(OWNER, claim.task_id)


def hang_up(store: Store, claim: Claim) -> Coroutine[Any, Any, Task | None]:
    """The connection of the request that waits for the task is closed."""
    return store.cancel(OWNER, claim.task_id, reply=Reply.REQUEST)


def detach_for(store: Store, claim: Claim) -> Coroutine[Any, Any, Task | None]:
    return store.detach_for(OWNER, claim.task_id)


MOVES: dict[str, Verb] = {
    "finish": lambda store, claim: store.finish(claim, RESULT),
    "fail": lambda store, claim: store.fail(claim, ERROR, "It broke"),
    "ask": lambda store, claim: store.ask(claim, [question("colour")]),
    "retry": lambda store, claim: store.retry(claim, 60_000, "It broke", "why"),
    "release": lambda store, claim: store.release(claim.worker_id, attempt_of(claim)),
}
"""All by which an attempt ends itself."""


# -- rescue -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_that_waits_for_a_rescue_is_refused(scene: Scene, race: Race, write: str) -> None:
    claim = await lost(scene)
    refused = await race.waits_for(race.other.rescue(), WRITES[write](scene.store, claim))
    assert isinstance(refused, StaleAttempt)
    row = await scene.row(claim)
    assert (row["status"], row["losses"], row["status_message"], row["questions_open"]) == ("working", 1, None, 0)
    for table in ("task_steps", "task_input_requests", "task_outcomes"):
        assert await scene.children(claim, table) == []
    assert await ended(scene, claim) == ["lost"]


async def test_a_release_that_waits_for_a_rescue_finds_nothing_to_give_back(scene: Scene, race: Race) -> None:
    claim = await lost(scene)
    release = scene.store.release(claim.worker_id, attempt_of(claim))
    assert await race.waits_for(race.other.rescue(), release) == []
    assert await ended(scene, claim) == ["lost"]


@pytest.mark.parametrize("move", MOVES)
async def test_a_rescue_that_meets_the_end_of_an_attempt_in_flight_counts_no_loss(
    scene: Scene, race: Race, move: str
) -> None:
    claim = await lost(scene)
    async with race.in_flight(MOVES[move](race.other, claim)):
        assert await scene.store.rescue() == []
    assert await scene.store.rescue() == []
    assert (await scene.row(claim))["losses"] == 0
    assert "lost" not in await ended(scene, claim)


async def test_a_cancel_that_waits_for_a_rescue_ends_the_task_itself(scene: Scene, race: Race) -> None:
    claim = await lost(scene)
    task = await race.waits_for(race.other.rescue(), cancel(scene.store, claim))
    assert isinstance(task, Task)
    assert (task.status, task.cancel_requested) == (Status.CANCELLED, True)
    assert await ended(scene, claim) == ["lost"]
    assert await scene.store.claim(uuid4(), [claim.task.tool], 1) == []


async def test_a_cancel_in_flight_is_carried_out_by_the_next_rescue(scene: Scene, race: Race) -> None:
    claim = await lost(scene)
    async with race.in_flight(cancel(race.other, claim)) as marked:
        assert await scene.store.rescue() == []
    assert marked is not None
    assert (marked.status, marked.cancel_requested) == (Status.WORKING, True)
    (task,) = await scene.store.rescue()
    assert (task.status, task.version) == (Status.CANCELLED, 2)


async def test_a_worker_that_is_back_before_its_tasks_are_moved_keeps_them(scene: Scene, race: Race) -> None:
    claim = await lost(scene)
    beat = race.between_looking_and_moving(Store.rescue, meanwhile=lambda: scene.enlist(claim.worker_id))
    assert await beat == []
    assert (await scene.state(claim)).task.epoch == 1
    assert (await scene.store.finish(claim, RESULT)).status is Status.COMPLETED


async def test_a_task_that_its_worker_took_again_is_not_rescued_for_the_attempt_before(
    scene: Scene, race: Race
) -> None:
    claim = await lost(scene)

    async def again() -> None:
        await scene.store.release(claim.worker_id, attempt_of(claim))
        await scene.claim(claim.task, claim.worker_id)

    assert await race.between_looking_and_moving(Store.rescue, meanwhile=again) == []
    assert (await scene.row(claim))["losses"] == 0


async def test_of_two_rescuers_one_counts_the_loss(scene: Scene, race: Race) -> None:
    claim = await lost(scene)
    async with race.in_flight(race.other.rescue()) as rescued:
        assert await scene.store.rescue() == []
    assert [task.task_id for task in rescued] == [claim.task_id]
    other = await lost(scene)
    assert await race.between(*rescue_of(other), meanwhile=scene.store.rescue) == []
    assert [(await scene.row(c))["losses"] for c in (claim, other)] == [1, 1]


# -- expire -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_that_waits_for_an_expiry_is_refused(scene: Scene, race: Race, write: str) -> None:
    claim = await overdue(scene)
    refused = await race.waits_for(race.other.expire(), WRITES[write](scene.store, claim))
    assert isinstance(refused, StaleAttempt)
    state = await scene.state(claim)
    assert (state.task.status, state.task.status_message, state.error) == (Status.FAILED, TIMED_OUT[1], TIMED_OUT[0])
    for table in ("task_steps", "task_input_requests"):
        assert await scene.children(claim, table) == []


@pytest.mark.parametrize("move", MOVES)
async def test_an_expiry_that_meets_the_end_of_an_attempt_in_flight_leaves_it_alone(
    scene: Scene, race: Race, move: str
) -> None:
    claim = await overdue(scene)
    async with race.in_flight(MOVES[move](race.other, claim)):
        assert await scene.store.expire() == []
    assert await scene.store.expire() == []
    assert "expired" not in await ended(scene, claim)


@pytest.mark.parametrize(("place", "reason"), [(outlived, EXPIRED), (unanswered, UNANSWERED), (overdue, TIMED_OUT)])
async def test_a_cancel_that_waits_for_an_expiry_comes_too_late(
    scene: Scene, race: Race, place: Place, reason: tuple[str, str]
) -> None:
    claim = await place(scene)
    assert await race.waits_for(race.other.expire(), cancel(scene.store, claim)) is None
    state = await scene.state(claim)
    assert (state.task.status, state.error, state.task.status_message) == (Status.FAILED, *reason)
    assert not state.task.cancel_requested


@pytest.mark.parametrize("place", [outlived, unanswered])
async def test_an_expiry_that_meets_a_cancel_leaves_the_task_cancelled(scene: Scene, race: Race, place: Place) -> None:
    claim = await place(scene)
    async with race.in_flight(cancel(race.other, claim)):
        assert await scene.store.expire() == []
    assert await status(scene, claim) is Status.CANCELLED
    other = await place(scene)
    assert await race.between(*expiry_of(other), meanwhile=lambda: cancel(scene.store, other)) == []
    assert await status(scene, other) is Status.CANCELLED


async def test_a_cancel_does_not_keep_a_task_whose_worker_ends_it_neither_way(scene: Scene, race: Race) -> None:
    claim = await overdue(scene)
    async with race.in_flight(cancel(race.other, claim)):
        assert await scene.store.expire() == []
    (task,) = await scene.store.expire()
    assert (task.status, task.cancel_requested, task.status_message) == (Status.FAILED, True, TIMED_OUT[1])


async def test_an_expiry_that_meets_an_answer_in_flight_leaves_the_task_to_work(scene: Scene, race: Race) -> None:
    claim = await unanswered(scene)
    async with race.in_flight(answer(race.other, claim)):
        assert await scene.store.expire() == []
    assert await scene.store.expire() == []
    assert await status(scene, claim) is Status.WORKING


async def test_a_claim_passes_over_what_expires_and_an_expiry_over_what_is_claimed(scene: Scene, race: Race) -> None:
    claim = await outlived(scene)
    async with race.in_flight(race.other.expire()):
        assert await scene.store.claim(uuid4(), [claim.task.tool], 1) == []
    assert await status(scene, claim) is Status.FAILED
    other = await outlived(scene)
    async with race.in_flight(race.other.claim(scene.worker_id, [other.task.tool], 1)):
        assert await scene.store.expire() == []
    assert await status(scene, other) is Status.WORKING


@pytest.mark.parametrize("verb", [answer, cancel, detach_for])
async def test_a_question_that_somebody_attends_to_before_it_is_expired_is_left_alone(
    scene: Scene, race: Race, verb: Verb
) -> None:
    claim = await unanswered(scene, reply=Reply.REQUEST)
    meanwhile = race.between_looking_and_moving(Store.expire, meanwhile=lambda: verb(scene.store, claim))
    assert await meanwhile == []
    assert await scene.children(claim, "task_outcomes") == []


async def test_of_two_that_expire_one_ends_the_task(scene: Scene, race: Race) -> None:
    claim = await unanswered(scene)
    async with race.in_flight(race.other.expire()) as gone:
        assert await scene.store.expire() == []
    assert [task.task_id for task in gone] == [claim.task_id]
    other = await overdue(scene)
    assert await race.between(*expiry_of(other), meanwhile=scene.store.expire) == []
    assert await ended(scene, other) == ["expired"]


# -- purge ------------------------------------------------------------------------------------------------------------


async def test_who_reads_during_a_purge_sees_the_task_whole_or_not_at_all(scene: Scene, race: Race) -> None:
    claim = await spent(scene)
    async with race.in_flight(race.other.purge()) as purged:
        state = await scene.state(claim)
        assert (purged, state.task.expired, state.result) == (1, True, RESULT)
    assert await scene.store.get(OWNER, claim.task_id) is None


@pytest.mark.parametrize("verb", [answer, cancel, hang_up, detach_for])
async def test_who_wants_something_of_a_task_during_its_purge_is_told_at_once_that_there_is_nothing(
    scene: Scene, race: Race, verb: Verb
) -> None:
    claim = await spent(scene)
    async with race.in_flight(race.other.purge()):
        assert await asyncio.wait_for(verb(scene.store, claim), 5) is None
    assert await verb(scene.store, claim) is None
    assert await scene.connection.fetchval("SELECT count(*) FROM perdure.task_input_responses") == 0


async def test_a_late_finish_meets_its_own_outcome_until_the_purge_is_done(scene: Scene, race: Race) -> None:
    claim = await spent(scene)
    async with race.in_flight(race.other.purge()):
        assert (await scene.store.finish(claim, RESULT)).status is Status.COMPLETED
    with pytest.raises(StaleAttempt):
        await scene.store.finish(claim, RESULT)


async def test_of_two_that_purge_one_deletes_the_task(scene: Scene, race: Race) -> None:
    await spent(scene)
    async with race.in_flight(race.other.purge()) as purged:
        assert await scene.store.purge() == 0
    assert purged == 1


# -- keys -------------------------------------------------------------------------------------------------------------


def keyed(fingerprint: bytes = b"1") -> NewTask:
    """A call under always the same key."""
    return replace(new_task(retention_ms=0), idempotency=Idempotency(b"key", fingerprint))


async def test_a_call_that_waits_for_another_under_its_key_gets_that_ones_task(scene: Scene, race: Race) -> None:
    first, second = keyed(), keyed()
    task = await race.waits_for(race.other.create(first), scene.store.create(second))
    assert isinstance(task, Task)
    assert task.task_id == first.task_id
    assert await scene.store.get(OWNER, second.task_id) is None
    assert await scene.connection.fetchval("SELECT count(*) FROM perdure.task_requests") == 1


async def test_another_request_that_waits_for_the_key_is_a_conflict_and_makes_no_task(scene: Scene, race: Race) -> None:
    first, second = keyed(b"1"), keyed(b"2")
    with pytest.raises(KeyConflict):
        await race.waits_for(race.other.create(first), scene.store.create(second))
    assert await scene.store.get(OWNER, second.task_id) is None


async def test_a_key_whose_task_is_being_purged_is_free_when_that_is_done(scene: Scene, race: Race) -> None:
    old, new = keyed(), keyed()
    task = await scene.store.create(old)
    await scene.store.cancel(OWNER, task.task_id)
    await scene.age(task, STILL_KNOWN.total_seconds() + 1)
    made = await race.waits_for(race.other.purge(), scene.store.create(new))
    assert isinstance(made, Task)
    assert made.task_id == new.task_id
    assert await scene.store.get(OWNER, old.task_id) is None
    assert (await scene.store.create(keyed())).task_id == new.task_id


async def test_calls_that_find_the_key_of_an_expired_task_at_the_same_moment_make_one(scene: Scene, race: Race) -> None:
    task = await scene.store.create(keyed())
    await scene.store.cancel(OWNER, task.task_id)
    await scene.age(task, 1)
    made = await asyncio.gather(*(scene.store.create(keyed()) for _ in range(5)))
    assert len({one.task_id for one in made} | {task.task_id}) == 2
    assert await scene.connection.fetchval("SELECT count(*) FROM perdure.tasks") == 2


# -- detach -----------------------------------------------------------------------------------------------------------


async def test_a_caller_that_hangs_up_after_a_detach_cancels_nothing(scene: Scene, race: Race) -> None:
    claim = await scene.running(reply=Reply.REQUEST)
    detached, cancelled = await race.at_once(claim, scene.store.detach(claim), hang_up(scene.store, claim))
    assert (detached.reply, cancelled) == (Reply.TASK, None)
    assert not (await scene.state(claim)).task.cancel_requested


async def test_a_detach_after_the_caller_has_hung_up_learns_that_it_is_to_stop(scene: Scene, race: Race) -> None:
    claim = await scene.running(reply=Reply.REQUEST)
    cancelled, detached = await race.at_once(claim, hang_up(scene.store, claim), scene.store.detach(claim))
    assert cancelled.cancel_requested
    assert (detached.reply, detached.cancel_requested) == (Reply.TASK, True)


async def test_a_caller_that_is_told_how_to_come_back_and_hangs_up_loses_nothing(scene: Scene, race: Race) -> None:
    claim = await scene.parked("colour", reply=Reply.REQUEST)
    detached, cancelled = await race.at_once(claim, detach_for(scene.store, claim), hang_up(scene.store, claim))
    assert (detached.reply, cancelled) == (Reply.TASK, None)
    other = await scene.parked("colour", reply=Reply.REQUEST)
    cancelled, detached = await race.at_once(other, hang_up(scene.store, other), detach_for(scene.store, other))
    assert (cancelled.status, detached) == (Status.CANCELLED, None)
    assert [await status(scene, c) for c in (claim, other)] == [Status.INPUT_REQUIRED, Status.CANCELLED]


async def test_a_question_that_is_detached_before_it_expires_can_still_be_answered(scene: Scene, race: Race) -> None:
    claim = await unanswered(scene, reply=Reply.REQUEST)
    assert await race.between(*expiry_of(claim), meanwhile=lambda: detach_for(scene.store, claim)) == []
    assert await status(scene, claim) is Status.INPUT_REQUIRED
    other = await unanswered(scene, reply=Reply.REQUEST)
    assert await race.waits_for(race.other.expire(), detach_for(scene.store, other)) is None
    assert await status(scene, other) is Status.CANCELLED
