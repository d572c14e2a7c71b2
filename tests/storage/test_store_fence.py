"""The fence: whoever does not hold a task writes nothing of it, not even a row beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import uuid4

import pytest

from app.domain.task import Claim, Json, Task, new_task_id
from app.errors import StaleAttempt
from app.storage.store import Store
from tests.storage.scene import ERROR, OWNER, RESULT, Scene, attempt_of, question, response

Write = Callable[[Store, Claim], Awaitable[object]]

WRITES: dict[str, Write] = {
    "step": lambda store, claim: store.step(claim, "fetch", Json("1")),
    "status": lambda store, claim: store.status(claim, "halfway"),
    "detach": lambda store, claim: store.detach(claim),
    "ask": lambda store, claim: store.ask(claim, [question("colour")]),
    "finish": lambda store, claim: store.finish(claim, RESULT),
    "fail": lambda store, claim: store.fail(claim, ERROR, "It broke", internal="why"),
    "retry": lambda store, claim: store.retry(claim, 60_000, "It broke", "why"),
}


@pytest.fixture(params=WRITES)
def write(request: pytest.FixtureRequest) -> Write:
    """A write that only the holder of a task may do."""
    return WRITES[request.param]


async def refused(scene: Scene, write: Write, claim: Claim) -> None:
    before = await scene.everything(claim)
    with pytest.raises(StaleAttempt):
        await write(scene.store, claim)
    assert await scene.everything(claim) == before


def with_epoch(claim: Claim, epoch: int) -> Claim:
    return replace(claim, task=replace(claim.task, epoch=epoch))


@pytest.mark.parametrize("epoch", [0, 2, 4])
async def test_another_attempts_number_is_refused(scene: Scene, write: Write, epoch: int) -> None:
    claim = await scene.running()
    for _ in range(2):
        await scene.store.release(claim.worker_id, attempt_of(claim))
        claim = await scene.claim(claim.task)
    assert claim.epoch == 3
    await refused(scene, write, with_epoch(claim, epoch))


async def test_another_worker_is_refused(scene: Scene, write: Write) -> None:
    claim = await scene.running()
    await refused(scene, write, replace(claim, worker_id=uuid4()))


async def test_an_attempt_that_was_released_is_refused_though_nobody_else_has_the_task(
    scene: Scene, write: Write
) -> None:
    claim = await scene.running()
    await scene.store.release(claim.worker_id, attempt_of(claim))
    await refused(scene, write, claim)


async def test_an_attempt_whose_worker_was_taken_for_lost_is_refused(scene: Scene, write: Write) -> None:
    claim = await scene.running()
    await scene.silence(claim.worker_id)
    await scene.store.rescue()
    await refused(scene, write, claim)
    await scene.claim(claim.task)  # the same worker, under the next number
    await refused(scene, write, claim)


async def test_an_attempt_that_asked_is_refused_once_the_task_has_gone_on(scene: Scene, write: Write) -> None:
    claim = await scene.parked("size")
    await scene.store.answer(OWNER, claim.task_id, {"size": response()})
    if write is not WRITES["ask"]:  # asked twice is asked once
        await refused(scene, write, claim)


async def test_an_attempt_is_refused_when_its_successor_has_asked(scene: Scene, write: Write) -> None:
    claim = await scene.running()
    await scene.store.release(claim.worker_id, attempt_of(claim))
    again = await scene.claim(claim.task)
    await scene.store.ask(again, [question("colour")])
    await refused(scene, write, claim)


async def test_a_cancelled_task_is_refused(scene: Scene, write: Write) -> None:
    if write is not WRITES["retry"]:  # that learns how its own attempt ended
        await refused(scene, write, await scene.cancelled())


async def test_a_task_that_expired_is_refused(scene: Scene, write: Write) -> None:
    claim = await scene.running(timeout_ms=1000)
    await scene.overrun(claim)
    await scene.store.expire()
    await refused(scene, write, claim)


async def test_what_finished_can_no_longer_be_asked_or_told(scene: Scene) -> None:
    claim = await scene.completed()
    for name in ("step", "status", "detach", "ask"):
        await refused(scene, WRITES[name], claim)


async def test_what_was_written_first_stands_when_an_attempt_both_finishes_and_fails(scene: Scene) -> None:
    finished, failed = await scene.completed(), await scene.failed()
    before = [await scene.everything(claim) for claim in (finished, failed)]
    said: list[Task] = [
        await scene.store.fail(finished, ERROR, "It broke", internal="why"),
        await scene.store.finish(failed, RESULT),
    ]
    assert [task.status.value for task in said] == ["completed", "failed"]
    assert [await scene.everything(claim) for claim in (finished, failed)] == before


async def test_a_task_that_is_gone_is_refused(scene: Scene, write: Write) -> None:
    claim = await scene.running()
    gone = replace(claim, task=replace(claim.task, task_id=new_task_id()))
    with pytest.raises(StaleAttempt):
        await write(scene.store, gone)
    await scene.connection.execute("DELETE FROM perdure.tasks")
    with pytest.raises(StaleAttempt):
        await write(scene.store, claim)
