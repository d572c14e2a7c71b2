"""What one process has written, every other one reads in its next request."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from app.domain.task import Status
from app.storage.database import Database
from app.storage.store import Store
from tests.storage.scene import OWNER, Scene, question, response


@pytest.fixture
async def replica(db_url: str) -> AsyncIterator[Store]:
    """The store of another process."""
    async with Database(db_url, name="perdure replica", connections=2) as database:
        yield Store(database)


async def test_a_partial_answer_is_read_on_another_replica_at_once(scene: Scene, replica: Store) -> None:
    claim = await scene.parked("colour", "size", "shape")
    told = await replica.answer(OWNER, claim.task_id, {"size": response()})
    state = await scene.state(claim)
    assert (state.task, state.questions) == (told, (question("colour"), question("shape")))
    told = await scene.store.answer(OWNER, claim.task_id, {"colour": response()})
    seen = await replica.get(OWNER, claim.task_id)
    assert seen is not None
    assert (seen.task, seen.questions, seen.task.status) == (told, (question("shape"),), Status.INPUT_REQUIRED)


async def test_the_last_answer_makes_a_task_ready_for_the_workers_of_any_replica(scene: Scene, replica: Store) -> None:
    claim = await scene.parked("colour", "size")
    await replica.answer(OWNER, claim.task_id, {"size": response("big")})
    await scene.store.answer(OWNER, claim.task_id, {"colour": response("red"), "size": response("small")})
    (again,) = await replica.claim(scene.worker_id, [claim.task.tool], 1)
    assert again.answers == {"colour": response("red"), "size": response("big")}
