"""step, status, finish, fail and release: what the attempt that holds a task may write, once."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime, timedelta

import pytest

from app.domain.task import Claim, Json, Reply, Status, Task
from app.errors import StaleAttempt
from app.storage.rows import Holding
from tests.storage.scene import ERROR, RESULT, Scene, attempt_of, question

DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)


async def test_a_steps_value_is_kept_for_the_next_attempt_and_the_client_sees_no_change(scene: Scene) -> None:
    claim = await scene.running()
    before = await scene.row(claim)
    assert await scene.store.step(claim, "fetch", Json("[1]")) == "[1]"
    assert await scene.row(claim) == before
    (step,) = await scene.children(claim, "task_steps")
    assert (step["name"], step["value"], step["epoch"]) == ("fetch", "[1]", 1)
    assert step["stepped_at"] > before["updated_at"]
    await scene.store.release(claim.worker_id, attempt_of(claim))
    assert (await scene.claim(claim.task)).steps == {"fetch": "[1]"}


async def test_a_step_that_is_recorded_twice_keeps_its_first_value(scene: Scene) -> None:
    claim = await scene.running()
    await scene.store.step(claim, "fetch", Json("1"))
    before = await scene.everything(claim)
    assert await scene.store.step(claim, "fetch", Json("2")) == "1"
    assert await scene.everything(claim) == before


async def test_a_step_of_an_earlier_attempt_stands(scene: Scene) -> None:
    claim = await scene.running()
    await scene.store.step(claim, "fetch", Json("1"))
    await scene.store.release(claim.worker_id, attempt_of(claim))
    again = await scene.claim(claim.task)
    assert await scene.store.step(again, "fetch", Json("2")) == "1"


async def test_a_step_whose_acknowledgement_was_lost_is_its_own_also_after_a_release(scene: Scene) -> None:
    claim = await scene.running()
    await scene.store.step(claim, "fetch", Json("1"))
    await scene.store.release(claim.worker_id, attempt_of(claim))
    assert await scene.store.step(claim, "fetch", Json("1")) == "1"


async def test_a_stale_attempt_is_not_told_what_a_later_ones_step_returned(scene: Scene) -> None:
    claim = await scene.running()
    await scene.store.release(claim.worker_id, attempt_of(claim))
    again = await scene.claim(claim.task)
    await scene.store.step(again, "fetch", Json("2"))
    with pytest.raises(StaleAttempt):
        await scene.store.step(claim, "fetch", Json("1"))


async def test_a_status_message_is_a_change_that_the_client_sees(scene: Scene) -> None:
    claim = await scene.running()
    task = await scene.store.status(claim, "halfway")
    assert (task.status, task.status_message, task.version) == (Status.WORKING, "halfway", 2)
    assert task.updated_at > claim.task.updated_at
    task = await scene.store.status(claim, "nearly there")
    assert (task.status_message, task.version) == ("nearly there", 3)


async def test_the_same_status_message_again_is_no_change(scene: Scene) -> None:
    claim = await scene.running()
    first = await scene.store.status(claim, "halfway")
    assert await scene.store.status(claim, "halfway") == first
    assert (await scene.store.status(claim, "")).version == 3


async def test_progress_is_kept_beside_the_message_and_is_itself_no_change(scene: Scene) -> None:
    claim = await scene.running()
    assert (claim.task.progress, claim.task.progress_total) == (None, None)
    first = await scene.store.status(claim, "loading", 1, 4.5)
    assert (first.progress, first.progress_total, first.version) == (1.0, 4.5, 2)
    more = await scene.store.status(claim, "loading", 3.5, 4.5)
    assert (more.progress, more.version, more.updated_at) == (3.5, 2, first.updated_at)
    told = await scene.store.status(claim, "tidying up")
    assert (told.progress, told.progress_total, told.version) == (3.5, 4.5, 3)
    unbounded = await scene.store.status(claim, "counting", 7)
    assert (unbounded.progress, unbounded.progress_total) == (7.0, None)
    ended = await scene.store.finish(claim, RESULT)
    assert (ended.progress, ended.progress_total) == (7.0, None)


async def test_the_next_attempt_starts_without_progress(scene: Scene) -> None:
    claim = await scene.running()
    await scene.store.status(claim, "loading", 3, 4)
    (released,) = await scene.store.release(claim.worker_id, attempt_of(claim))
    assert (released.progress, released.progress_total) == (3.0, 4.0)
    again = await scene.claim(released)
    assert (again.task.progress, again.task.progress_total, again.task.version) == (None, None, released.version)


async def test_an_attempt_that_detaches_makes_its_request_a_task_once_and_clients_see_no_change(scene: Scene) -> None:
    claim = await scene.running(reply=Reply.REQUEST)
    before = await scene.row(claim)
    task = await scene.store.detach(claim)
    assert (task.reply, task.version, task.updated_at) == (Reply.TASK, 1, claim.task.updated_at)
    assert await scene.row(claim) == before | {"reply": "task"}
    assert await scene.store.detach(claim) == task


async def test_a_task_that_has_detached_is_still_one_in_its_next_attempt(scene: Scene) -> None:
    claim = await scene.running(reply=Reply.REQUEST)
    await scene.store.detach(claim)
    await scene.store.release(claim.worker_id, attempt_of(claim))
    assert (await scene.claim(claim.task)).task.reply is Reply.TASK


async def test_a_change_is_later_than_the_one_before_even_if_the_clock_went_back(scene: Scene) -> None:
    async def ahead(change: Awaitable[Task]) -> timedelta:
        before: datetime = await scene.connection.fetchval(future, claim.task_id)
        return (await change).updated_at - before

    future = "UPDATE perdure.tasks SET updated_at = now() + interval '1 hour' WHERE task_id = $1 RETURNING updated_at"
    claim = await scene.running()
    assert await ahead(scene.store.status(claim, "halfway")) == MICROSECOND
    assert await ahead(scene.store.ask(claim, [question("colour")])) == MICROSECOND


async def test_a_result_completes_the_task(scene: Scene) -> None:
    claim = await scene.running()
    task = await scene.store.finish(claim, RESULT)
    assert (task.status, task.status_message, task.version, task.epoch) == (Status.COMPLETED, None, 2, 1)
    state = await scene.state(claim)
    assert (state.result, state.error, state.questions) == (RESULT, None, ())
    row = await scene.row(claim)
    assert (row["worker_id"], row["ready_at"], row["deadline_at"]) == (None, None, None)
    assert row["finished_at"] == row["updated_at"]
    (outcome,) = await scene.children(claim, "task_outcomes")
    assert outcome["epoch"] == 1
    assert await scene.children(claim, "task_attempts") == []


async def test_an_error_fails_the_task_with_a_message_and_keeps_the_reason_for_operators(scene: Scene) -> None:
    claim = await scene.running()
    task = await scene.store.fail(claim, ERROR, "It broke", internal="Traceback …")
    assert (task.status, task.status_message, task.version) == (Status.FAILED, "It broke", 2)
    state = await scene.state(claim)
    assert (state.result, state.error) == (None, ERROR)
    (attempt,) = await scene.children(claim, "task_attempts")
    assert (attempt["epoch"], attempt["worker_id"], attempt["ended"]) == (1, claim.worker_id, "error")
    assert attempt["error"] == "Traceback …"
    assert attempt["started_at"] < attempt["ended_at"] == task.updated_at


async def test_a_failure_without_more_to_say_leaves_no_attempt_behind(scene: Scene) -> None:
    assert await scene.children(await scene.failed(), "task_attempts") == []


async def test_finished_twice_is_finished_once(scene: Scene) -> None:
    claim = await scene.running()
    first = await scene.store.finish(claim, RESULT)
    before = await scene.everything(claim)
    assert await scene.store.finish(claim, Json('{"another":1}')) == first
    assert await scene.everything(claim) == before


async def test_failed_twice_is_failed_once(scene: Scene) -> None:
    claim = await scene.running()
    first = await scene.store.fail(claim, ERROR, "It broke", internal="why")
    before = await scene.everything(claim)
    assert await scene.store.fail(claim, Json('{"another":1}'), "It broke again", internal="why") == first
    assert await scene.everything(claim) == before


async def test_a_finish_stands_although_a_cancel_was_wanted(scene: Scene) -> None:
    claim = await scene.stopping()
    assert (await scene.store.finish(claim, RESULT)).status is Status.COMPLETED
    assert (await scene.state(claim)).result == RESULT


@pytest.mark.parametrize(
    ("ttl_ms", "retention_ms", "age", "kept"),
    [
        (None, 86_400_000, 0, DAY),
        (None, 1000, 7200, timedelta(seconds=1)),
        (None, 0, 0, timedelta(0)),
        (60_000, 86_400_000, 30, DAY),
        (7 * 86_400_000, 1000, 30, None),
        (3650 * 86_400_000, 3650 * 86_400_000, 1, 3650 * DAY),
    ],
)
async def test_an_ended_task_is_kept_for_its_retention_and_never_for_less_than_its_ttl(
    scene: Scene, ttl_ms: int | None, retention_ms: int, age: float, kept: timedelta | None
) -> None:
    claim = await scene.running(ttl_ms=ttl_ms, retention_ms=retention_ms)
    await scene.age(claim, age)
    task = await scene.store.finish(claim, RESULT)
    row = await scene.row(claim)
    expected = (
        row["finished_at"] + kept if kept is not None else row["created_at"] + timedelta(milliseconds=ttl_ms or 0)
    )
    assert row["expires_at"] == expected
    assert task.ttl_ms is not None
    told = row["created_at"] + timedelta(milliseconds=task.ttl_ms)
    assert row["expires_at"] <= told < row["expires_at"] + timedelta(milliseconds=1)


async def test_a_released_task_waits_again_with_nothing_used_up_and_the_client_sees_no_change(scene: Scene) -> None:
    claim = await scene.running(timeout_ms=1000)
    (task,) = await scene.store.release(claim.worker_id, attempt_of(claim))
    assert (task.status, task.version, task.updated_at) == (Status.WORKING, 1, claim.task.updated_at)
    row = await scene.row(claim)
    assert (row["worker_id"], row["deadline_at"], row["losses"], row["failures"]) == (None, None, 0, 0)
    assert row["ready_at"] > row["started_at"]
    (attempt,) = await scene.children(claim, "task_attempts")
    assert (attempt["epoch"], attempt["ended"], attempt["error"]) == (1, "released", None)
    assert attempt["ended_at"] == row["ready_at"]
    assert (await scene.claim(task)).epoch == 2


async def test_a_released_task_gets_its_ttl_back_as_deadline(scene: Scene) -> None:
    claim = await scene.running(timeout_ms=1000, ttl_ms=30_000)
    await scene.store.release(claim.worker_id, attempt_of(claim))
    row = await scene.row(claim)
    assert row["deadline_at"] == row["created_at"] + timedelta(seconds=30)


async def test_a_release_that_takes_a_status_message_away_is_a_change(scene: Scene) -> None:
    claim = await scene.running()
    before = await scene.store.status(claim, "halfway")
    (task,) = await scene.store.release(claim.worker_id, attempt_of(claim))
    assert (task.status_message, task.version) == (None, before.version + 1)
    assert task.updated_at > before.updated_at


async def test_a_release_with_a_cancel_pending_cancels(scene: Scene) -> None:
    claim = await scene.stopping()
    (task,) = await scene.store.release(claim.worker_id, attempt_of(claim))
    assert (task.status, task.version) == (Status.CANCELLED, 2)
    row = await scene.row(claim)
    assert (row["ready_at"], row["deadline_at"], row["finished_at"]) == (None, None, row["updated_at"])
    (attempt,) = await scene.children(claim, "task_attempts")
    assert attempt["ended"] == "cancelled"


async def test_a_release_passes_over_what_the_worker_no_longer_holds(scene: Scene) -> None:
    held, finished = await scene.running(), await scene.completed()
    other = await scene.running()
    attempts = [(held.task_id, 1), (finished.task_id, 1), (other.task_id, 2)]
    before = [await scene.everything(claim) for claim in (finished, other)]
    released = await scene.store.release(scene.worker_id, attempts)
    assert [task.task_id for task in released] == [held.task_id]
    assert [await scene.everything(claim) for claim in (finished, other)] == before
    assert await scene.store.release(scene.worker_id, attempts) == []
    assert await scene.store.release(scene.worker_id, []) == []


async def test_holdings_are_what_the_worker_runs_and_say_which_is_to_stop(scene: Scene) -> None:
    running, stopping = await scene.running(), await scene.stopping()
    await scene.parked()
    await scene.completed()
    await scene.queued()
    held = {h.task_id: h for h in await scene.store.holdings(scene.worker_id)}
    assert held == {
        running.task_id: Holding(running.task_id, 1, cancel_requested=False),
        stopping.task_id: Holding(stopping.task_id, 1, cancel_requested=True),
    }


async def test_no_status_message_survives_the_attempt_that_set_it(scene: Scene) -> None:
    async def said() -> Claim:
        claim = await scene.running()
        await scene.store.status(claim, "halfway")
        return claim

    finished = await scene.store.finish(await said(), RESULT)
    asked = await scene.store.ask(await said(), [question("colour")])
    failed = await scene.store.fail(await said(), ERROR, "It broke")
    assert [task.status_message for task in (finished, asked, failed)] == [None, None, "It broke"]
