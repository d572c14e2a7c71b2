"""cancel: ends what no worker runs, marks what one does, and leaves alone what has ended."""

from __future__ import annotations

from datetime import timedelta

from app.domain.task import Claim, Status, Task
from tests.storage.scene import OWNER, RESULT, Scene, attempt_of, question


async def cancel(scene: Scene, task: Task | Claim) -> Task:
    after = await scene.store.cancel(OWNER, task.task_id)
    assert after is not None
    return after


async def test_a_queued_task_is_cancelled_at_once(scene: Scene) -> None:
    queued = await scene.queued(retention_ms=60_000)
    task = await cancel(scene, queued)
    assert (task.status, task.status_message, task.version) == (Status.CANCELLED, None, 2)
    assert task.updated_at > queued.updated_at
    row = await scene.row(task)
    assert (row["ready_at"], row["deadline_at"]) == (None, None)
    assert row["cancel_requested_at"] == row["finished_at"] == row["updated_at"]
    assert row["expires_at"] == row["finished_at"] + timedelta(minutes=1)
    assert task.ttl_ms is not None
    assert task.ttl_ms >= 60_000
    assert await scene.children(task, "task_outcomes") == []


async def test_a_cancelled_task_is_never_claimed(scene: Scene) -> None:
    await cancel(scene, await scene.queued("weigh"))
    assert await scene.store.claim(scene.worker_id, ["weigh"], 1) == []


async def test_a_parked_task_is_cancelled_at_once_and_asks_nothing_more(scene: Scene) -> None:
    claim = await scene.parked("colour", "size", ttl_ms=3_600_000)
    task = await cancel(scene, claim)
    assert (task.status, task.version) == (Status.CANCELLED, 3)
    row = await scene.row(task)
    assert (row["questions_open"], row["deadline_at"], row["ready_at"]) == (0, None, None)
    assert (await scene.state(claim)).questions == ()


async def test_a_running_task_goes_on_and_the_client_sees_no_change(scene: Scene) -> None:
    claim = await scene.running()
    await scene.store.status(claim, "halfway")
    before = await scene.row(claim)
    task = await cancel(scene, claim)
    assert (task.status, task.status_message, task.cancel_requested) == (Status.WORKING, "halfway", True)
    after = await scene.row(claim)
    assert after.pop("cancel_requested_at") is not None
    assert before.pop("cancel_requested_at") is None
    assert after == before


async def test_a_running_task_that_is_cancelled_twice_remembers_the_first_time(scene: Scene) -> None:
    claim = await scene.stopping()
    before = await scene.everything(claim)
    assert (await cancel(scene, claim)).cancel_requested
    assert await scene.everything(claim) == before


async def test_a_task_that_has_ended_is_left_as_it_is(scene: Scene) -> None:
    for claim in (await scene.completed(), await scene.failed(), await scene.cancelled()):
        before = await scene.everything(claim)
        assert await scene.store.cancel(OWNER, claim.task_id) is None
        assert await scene.everything(claim) == before


async def test_a_wanted_cancel_is_carried_out_by_whatever_ends_the_attempt_without_an_outcome(scene: Scene) -> None:
    asking, released, lost = await scene.stopping(), await scene.stopping(), await scene.stopping()
    await scene.store.ask(asking, [question("colour")])
    await scene.store.release(released.worker_id, attempt_of(released))
    await scene.silence(scene.worker_id)
    await scene.store.rescue()
    states = {(await scene.state(claim)).task.status for claim in (asking, released, lost)}
    assert states == {Status.CANCELLED}
    ended = [(await scene.children(claim, "task_attempts"))[0]["ended"] for claim in (asking, released, lost)]
    assert ended == ["cancelled", "cancelled", "lost"]


async def test_a_handler_that_is_told_to_stop_may_still_write_and_finish(scene: Scene) -> None:
    claim = await scene.stopping()
    await scene.store.status(claim, "cleaning up")
    task = await scene.store.finish(claim, RESULT)
    assert (task.status, task.cancel_requested) == (Status.COMPLETED, True)
