"""rescue, expire, purge and forgetting workers: what ends or moves tasks that nobody else ends or moves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.domain.task import Claim, Reply, Status, Task
from app.storage.store import EXPIRED, FORGOTTEN, LOST, OVERDUE, STILL_KNOWN, TIMED_OUT, UNANSWERED
from tests.storage.scene import CHILDREN, LEASE_MS, OWNER, Scene, response

HOUR = 3600


# -- rescue -----------------------------------------------------------------------------------------------------------


async def test_the_task_of_a_worker_whose_beat_is_old_waits_again(scene: Scene) -> None:
    claim = await scene.running(timeout_ms=1000)
    await scene.silence(claim.worker_id)
    (task,) = await scene.store.rescue()
    assert (task.task_id, task.status, task.version) == (claim.task_id, Status.WORKING, 1)
    assert task.updated_at == claim.task.updated_at
    row = await scene.row(claim)
    assert (row["worker_id"], row["losses"], row["deadline_at"]) == (None, 1, None)
    assert row["ready_at"] > row["started_at"]
    (attempt,) = await scene.children(claim, "task_attempts")
    assert (attempt["epoch"], attempt["worker_id"], attempt["ended"]) == (1, claim.worker_id, "lost")
    assert (await scene.claim(task, uuid4())).epoch == 2
    assert [task.task_id for task in await scene.store.rescue()] == [claim.task_id]  # of a worker without a row


async def test_a_rescue_that_takes_a_status_message_away_is_a_change(scene: Scene) -> None:
    claim = await scene.running(worker_id=uuid4())
    await scene.store.status(claim, "halfway")
    (task,) = await scene.store.rescue()
    assert (task.status_message, task.version) == (None, 3)


@pytest.mark.parametrize(("silent_ms", "lost"), [(0, False), (LEASE_MS - 5000, False), (LEASE_MS, True)])
async def test_a_worker_is_lost_when_its_lease_is_over_and_not_before(scene: Scene, silent_ms: int, lost: bool) -> None:
    claim = await scene.running()
    await scene.enlist(claim.worker_id, silent_ms=silent_ms)
    assert len(await scene.store.rescue()) == int(lost)


async def test_each_worker_has_its_own_lease(scene: Scene) -> None:
    short, long = await scene.enlist(uuid4(), lease_ms=1000), await scene.enlist(uuid4(), lease_ms=60_000)
    claims = [await scene.running(worker_id=worker) for worker in (short, long)]
    for worker in (short, long):
        await scene.enlist(worker, silent_ms=5000)
    assert [task.task_id for task in await scene.store.rescue()] == [claims[0].task_id]


async def test_whatever_the_ids_of_those_that_are_alive_the_tasks_of_all_others_are_rescued(scene: Scene) -> None:
    alive = [UUID(int=at << 120) for at in (0x20, 0x40, 0x41, 0xE0)]
    gone = [UUID(int=at << 120) for at in (0x10, 0x30, 0x50, 0xF0)] + [UUID(int=(0x40 << 120) + 1), UUID(int=1)]
    for worker in alive:
        await scene.enlist(worker)
    runs = {worker: await scene.running(worker_id=worker) for worker in (*alive, *gone)}
    await scene.silence(gone[0])
    rescued = {task.task_id for task in await scene.store.rescue()}
    assert rescued == {runs[worker].task_id for worker in gone}


async def test_what_no_worker_runs_is_never_rescued(scene: Scene) -> None:
    await scene.queued()
    for claim in (await scene.parked(), await scene.completed(), await scene.failed(), await scene.cancelled()):
        await scene.silence(claim.worker_id)
    assert await scene.store.rescue() == []


async def test_a_task_that_loses_one_worker_too_many_fails_with_a_reason(scene: Scene) -> None:
    task = await scene.queued(losses=2, ttl_ms=3_600_000)
    for losses in (1, 2, 3):
        claim = await scene.claim(task, uuid4())
        (task,) = await scene.store.rescue()
        assert (await scene.row(task))["losses"] == losses
    assert (task.status, task.status_message, task.version) == (Status.FAILED, LOST[1], 2)
    assert (await scene.state(task)).error == LOST[0]
    row = await scene.row(task)
    assert (row["worker_id"], row["ready_at"], row["deadline_at"]) == (None, None, None)
    assert row["expires_at"] == row["finished_at"] + timedelta(days=1)
    (outcome,) = await scene.children(task, "task_outcomes")
    assert outcome["epoch"] is None
    assert [a["ended"] for a in await scene.children(claim, "task_attempts")] == ["lost"] * 3


async def test_a_lost_task_with_a_cancel_pending_is_cancelled_also_past_its_limit(scene: Scene) -> None:
    for losses in (3, 0):
        claim = await scene.stopping(losses=losses)
        await scene.silence(claim.worker_id)
        (task,) = await scene.store.rescue()
        assert (task.status, task.status_message, task.version) == (Status.CANCELLED, None, 2)
        assert await scene.children(claim, "task_outcomes") == []


async def test_a_rescue_takes_as_many_as_it_is_told_and_the_next_one_the_rest(scene: Scene) -> None:
    for _ in range(5):
        await scene.running(worker_id=uuid4())
    assert [len(await scene.store.rescue(limit=3)) for _ in range(3)] == [3, 2, 0]


# -- expire -----------------------------------------------------------------------------------------------------------


async def expired(scene: Scene, task: Task | Claim) -> Task:
    (after,) = await scene.store.expire()
    assert after.task_id == task.task_id
    row = await scene.row(task)
    assert (row["worker_id"], row["ready_at"], row["deadline_at"], row["questions_open"]) == (None, None, None, 0)
    assert row["finished_at"] == row["updated_at"]
    assert await scene.store.expire() == []
    return after


async def test_a_queued_task_past_its_ttl_fails_as_expired(scene: Scene) -> None:
    task = await scene.queued(ttl_ms=HOUR * 1000)
    await scene.age(task, HOUR - 60)
    assert await scene.store.expire() == []
    await scene.age(task, 61)
    after = await expired(scene, task)
    assert (after.status, after.status_message, after.version) == (Status.FAILED, EXPIRED[1], 2)
    state = await scene.state(task)
    assert (state.error, state.task.expired) == (EXPIRED[0], False)
    row = await scene.row(task)
    assert row["expires_at"] == row["finished_at"] + timedelta(days=1)
    assert [o["epoch"] for o in await scene.children(task, "task_outcomes")] == [None]


async def test_a_parked_task_past_its_ttl_fails_as_expired(scene: Scene) -> None:
    claim = await scene.parked("colour", ttl_ms=HOUR * 1000)
    await scene.age(claim, HOUR + 1)
    after = await expired(scene, claim)
    assert (after.status, after.status_message) == (Status.FAILED, EXPIRED[1])
    assert (await scene.state(claim)).questions == ()


async def test_a_question_that_nobody_answers_fails_the_task(scene: Scene) -> None:
    claim = await scene.parked("colour", answer_within_ms=HOUR * 1000)
    await scene.age(claim, HOUR - 60)
    assert await scene.store.expire() == []
    await scene.age(claim, 61)
    after = await expired(scene, claim)
    assert (after.status, after.status_message, after.version) == (Status.FAILED, UNANSWERED[1], 3)
    assert (await scene.state(claim)).error == UNANSWERED[0]


async def test_a_question_on_the_same_request_that_nobody_answers_cancels_the_task(scene: Scene) -> None:
    claim = await scene.parked("colour", answer_within_ms=HOUR * 1000, reply=Reply.REQUEST)
    await scene.age(claim, HOUR + 1)
    after = await expired(scene, claim)
    assert (after.status, after.status_message) == (Status.CANCELLED, None)
    assert await scene.children(claim, "task_outcomes") == []


async def test_a_running_task_is_left_to_its_worker_for_a_while_and_then_fails(scene: Scene) -> None:
    claim = await scene.running(timeout_ms=HOUR * 1000)
    await scene.age(claim, HOUR + OVERDUE.total_seconds() - 5)
    assert await scene.store.expire() == []
    await scene.age(claim, 6)
    after = await expired(scene, claim)
    assert (after.status, after.status_message, after.version) == (Status.FAILED, TIMED_OUT[1], 2)
    assert (await scene.state(claim)).error == TIMED_OUT[0]
    (attempt,) = await scene.children(claim, "task_attempts")
    assert (attempt["epoch"], attempt["worker_id"], attempt["ended"]) == (1, claim.worker_id, "expired")


async def test_a_running_task_past_its_ttl_is_told_so_and_not_that_it_ran_too_long(scene: Scene) -> None:
    claim = await scene.running(timeout_ms=1000, ttl_ms=HOUR * 1000)
    await scene.age(claim, HOUR + OVERDUE.total_seconds() + 1)
    assert (await expired(scene, claim)).status_message == EXPIRED[1]


async def test_without_a_limit_a_task_waits_and_runs_for_years(scene: Scene) -> None:
    tasks: list[Task | Claim] = [await scene.queued(), await scene.running()]
    for task in tasks:
        await scene.age(task, 10 * 365 * 24 * HOUR)
    assert await scene.store.expire() == []


async def test_an_answer_ends_the_limit_on_waiting_for_it(scene: Scene) -> None:
    claim = await scene.parked("colour", answer_within_ms=HOUR * 1000)
    await scene.store.answer(OWNER, claim.task_id, {"colour": response()})
    await scene.age(claim, 2 * HOUR)
    assert await scene.store.expire() == []


async def test_expiry_takes_as_many_as_it_is_told_and_the_oldest_first(scene: Scene) -> None:
    tasks = [await scene.queued(ttl_ms=1000) for _ in range(5)]
    for age, task in enumerate(tasks, start=2):
        await scene.age(task, age)
    ended = [{task.task_id for task in await scene.store.expire(limit=2)} for _ in range(4)]
    oldest = [task.task_id for task in reversed(tasks)]
    assert ended == [set(oldest[:2]), set(oldest[2:4]), set(oldest[4:]), set()]


# -- purge ------------------------------------------------------------------------------------------------------------


async def full_grown(scene: Scene, **kind: Any) -> Claim:
    """An ended task with a row in every child table."""
    claim = await scene.parked("colour", **kind)
    task = await scene.store.answer(OWNER, claim.task_id, {"colour": response()})
    assert task is not None
    again = await scene.claim(task)
    await scene.store.step(again, "fetch", response())
    await scene.store.fail(again, response(), "It broke", internal="why")
    insert = "INSERT INTO perdure.idempotency_keys VALUES ($1, 'weigh', $2, $3, $2)"
    await scene.connection.execute(insert, OWNER, claim.task_id.bytes, claim.task_id)
    return again


async def count(scene: Scene, task_id: UUID) -> dict[str, int]:
    query = "SELECT count(*) FROM perdure.{} WHERE task_id = $1"
    return {t: await scene.connection.fetchval(query.format(t), task_id) for t in ("tasks", *CHILDREN)}


async def test_a_purged_task_leaves_no_row_in_any_table(scene: Scene) -> None:
    claim, other = await full_grown(scene), await full_grown(scene)
    assert set((await count(scene, claim.task_id)).values()) == {1}
    await scene.age(claim, 25 * HOUR + 1)
    assert await scene.store.purge() == 1
    assert set((await count(scene, claim.task_id)).values()) == {0}
    assert set((await count(scene, other.task_id)).values()) == {1}


async def test_every_table_that_knows_tasks_is_looked_at_here(scene: Scene) -> None:
    query = (
        "SELECT table_name FROM information_schema.columns JOIN information_schema.tables "
        "USING (table_schema, table_name) "
        "WHERE table_schema = 'perdure' AND column_name = 'task_id' AND table_type = 'BASE TABLE'"
    )
    assert {row["table_name"] for row in await scene.connection.fetch(query)} == {"tasks", *CHILDREN}


async def test_a_task_is_expired_after_its_retention_and_purged_an_hour_later(scene: Scene) -> None:
    claim = await scene.completed(retention_ms=HOUR * 1000)
    await scene.age(claim, HOUR - 60)
    assert not (await scene.state(claim)).task.expired
    await scene.age(claim, 61)
    assert (await scene.state(claim)).task.expired
    await scene.age(claim, STILL_KNOWN.total_seconds() - 60)
    assert await scene.store.purge() == 0
    await scene.age(claim, 60)
    assert await scene.store.purge() == 1
    assert await scene.store.get(OWNER, claim.task_id) is None


async def test_what_lives_is_never_expired_and_never_purged(scene: Scene) -> None:
    tasks: list[Task | Claim] = [await scene.queued(), await scene.running(), await scene.parked()]
    for task in tasks:
        await scene.age(task, 10 * 365 * 24 * HOUR)
        assert not (await scene.state(task)).task.expired
    assert await scene.store.purge() == 0


async def test_a_purge_takes_as_many_as_it_is_told_and_passes_over_rows_that_are_in_use(scene: Scene) -> None:
    claims = [await scene.completed(retention_ms=0) for _ in range(3)]
    for claim in claims:
        await scene.age(claim, STILL_KNOWN.total_seconds() + 1)
    async with scene.connection.transaction():
        await scene.connection.execute("SELECT FROM perdure.tasks WHERE task_id = $1 FOR UPDATE", claims[0].task_id)
        assert [await scene.store.purge() for _ in range(2)] == [2, 0]
    assert await scene.store.purge() == 1


# -- workers ----------------------------------------------------------------------------------------------------------


async def test_workers_that_are_long_gone_are_forgotten_unless_they_still_hold_a_task(scene: Scene) -> None:
    long_ms = int(FORGOTTEN.total_seconds() * 1000) + 1000
    gone, fresh, holding = [await scene.enlist(uuid4()) for _ in range(3)]
    await scene.running(worker_id=holding)
    await scene.enlist(gone, silent_ms=long_ms)
    await scene.enlist(fresh, silent_ms=long_ms - 60_000)
    await scene.enlist(holding, silent_ms=long_ms)
    await scene.store.forget_workers()
    left = await scene.connection.fetch("SELECT worker_id FROM perdure.workers")
    assert {row["worker_id"] for row in left} == {fresh, holding}
