"""claim, rescue and expire never wait for a row: what they saw may be old when they lock it, and then they leave it.

They are stopped after they have looked and before they lock. And whoever waits for one of them sees what it did.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from app.domain.task import EVER, Claim, Status, Task
from app.errors import StaleAttempt
from app.storage import statements as sql
from tests.storage.racing import Race, expiry_of, rescue_of
from tests.storage.scene import OWNER, RESULT, TOOL, Scene, attempt_of, question, response


async def status(scene: Scene, task: Task | Claim) -> Status:
    return (await scene.state(task)).task.status


def answering(scene: Scene, claim: Claim) -> Any:
    return scene.store.answer(OWNER, claim.task_id, {"colour": response()})


# -- claim ------------------------------------------------------------------------------------------------------------


async def test_a_cancel_that_waits_for_a_claim_is_for_the_worker_to_carry_out(scene: Scene, race: Race) -> None:
    task, worker_id = await scene.queued(), uuid4()
    cancel = scene.store.cancel(OWNER, task.task_id)
    marked = await race.uncommitted(sql.CLAIM, worker_id, [TOOL], 1, EVER, then=cancel)
    assert marked is not None
    assert (marked.status, marked.cancel_requested, marked.epoch) == (Status.WORKING, True, 1)
    assert [h.cancel_requested for h in await scene.store.holdings(worker_id)] == [True]


async def test_a_claim_that_meets_a_cancel_in_flight_passes_over_the_task(
    scene: Scene, connection: asyncpg.Connection[Any]
) -> None:
    task = await scene.queued()
    async with connection.transaction():
        await connection.fetch(sql.CANCEL, task.task_id, OWNER, None)
        assert await scene.store.claim(scene.worker_id, [TOOL], 1) == []
    assert await status(scene, task) is Status.CANCELLED


@pytest.mark.parametrize("first", ["cancelled", "claimed", "claimed and finished", "claimed and released", "postponed"])
async def test_a_claim_that_saw_a_task_wait_does_not_get_it_when_it_no_longer_does(
    scene: Scene, race: Race, first: str
) -> None:
    task = await scene.queued()

    async def meanwhile() -> None:
        if first == "cancelled":
            await scene.store.cancel(OWNER, task.task_id)
        elif first == "postponed":
            query = "UPDATE perdure.tasks SET ready_at = ready_at + interval '1 hour'"
            await scene.connection.execute(query)
        else:
            claim = await scene.claim(task)
            if first == "claimed and finished":
                await scene.store.finish(claim, RESULT)
            elif first == "claimed and released":  # it waits again, but only since after the look
                await scene.store.release(claim.worker_id, attempt_of(claim))

    (row,) = await race.between(sql.CLAIM, uuid4(), [TOOL], 1, EVER, meanwhile=meanwhile)
    assert (row["seen"], row["task_id"]) == (1, None)
    assert (await scene.row(task))["epoch"] == (1 if first.startswith("claimed") else 0)


# -- rescue and expire ------------------------------------------------------------------------------------------------


async def test_a_finish_that_waits_for_a_rescue_is_refused(scene: Scene, race: Race) -> None:
    claim = await scene.running(worker_id=uuid4())
    with pytest.raises(StaleAttempt):
        await race.uncommitted(*rescue_of(claim), then=scene.store.finish(claim, RESULT))
    assert (await scene.row(claim))["losses"] == 1


async def test_a_rescue_that_meets_a_finish_in_flight_passes_over_the_task(
    scene: Scene, connection: asyncpg.Connection[Any]
) -> None:
    claim = await scene.running(worker_id=uuid4())
    async with connection.transaction():
        await connection.fetch(sql.FINISH, claim.task_id, claim.epoch, claim.worker_id, RESULT)
        assert await scene.store.rescue() == []
    assert await status(scene, claim) is Status.COMPLETED


@pytest.mark.parametrize("first", ["finished", "parked", "released", "taken over"])
async def test_a_rescue_that_saw_a_lost_worker_leaves_a_task_alone_that_has_moved_on(
    scene: Scene, race: Race, first: str
) -> None:
    claim = await scene.running(worker_id=uuid4())

    async def meanwhile() -> None:
        match first:
            case "finished":
                await scene.store.finish(claim, RESULT)
            case "parked":
                await scene.store.ask(claim, [question("colour")])
            case _:
                await scene.store.release(claim.worker_id, attempt_of(claim))
        if first == "taken over":  # by the same worker, so that only the number differs
            await scene.claim(claim.task, claim.worker_id)
        after.update(await scene.everything(claim))

    after: dict[str, Any] = {}
    assert await race.between(*rescue_of(claim), meanwhile=meanwhile) == []
    assert await scene.everything(claim) == after


async def test_a_rescue_sees_a_cancel_that_came_after_it_had_looked(scene: Scene, race: Race) -> None:
    claim = await scene.running(worker_id=uuid4())
    (row,) = await race.between(*rescue_of(claim), meanwhile=lambda: scene.store.cancel(OWNER, claim.task_id))
    assert row["status"] == "cancelled"


async def test_an_answer_that_waits_for_an_expiry_is_not_recorded(scene: Scene, race: Race) -> None:
    claim = await scene.parked("colour")
    await scene.overrun(claim)
    assert await race.uncommitted(*expiry_of(claim), then=answering(scene, claim)) is None
    assert await status(scene, claim) is Status.FAILED
    assert await scene.children(claim, "task_input_responses") == []


async def test_an_answer_that_comes_after_an_expiry_has_looked_stands(scene: Scene, race: Race) -> None:
    claim = await scene.parked("colour")
    await scene.overrun(claim)
    assert await race.between(*expiry_of(claim), meanwhile=lambda: answering(scene, claim)) == []
    assert await status(scene, claim) is Status.WORKING


async def test_a_claim_that_comes_after_an_expiry_has_looked_gets_its_time_to_end(scene: Scene, race: Race) -> None:
    task = await scene.queued(ttl_ms=1000)
    await scene.age(task, 2)
    assert await race.between(*expiry_of(task), meanwhile=lambda: scene.claim(task)) == []
    assert (await scene.row(task))["worker_id"] == scene.worker_id


async def test_a_finish_that_comes_after_an_expiry_has_looked_stands(scene: Scene, race: Race) -> None:
    claim = await scene.running(timeout_ms=1000)
    await scene.overrun(claim)
    assert await race.between(*expiry_of(claim), meanwhile=lambda: scene.store.finish(claim, RESULT)) == []
    assert (await scene.state(claim)).result == RESULT
