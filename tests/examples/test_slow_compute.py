"""Taking time, telling how it goes, and being cancelled."""

from __future__ import annotations

import json

import pytest

from app.domain.task import Status, TaskState
from app.examples import slow_compute
from tests.support.waiting import eventually
from tests.support.worker import OWNER, working


async def test_it_returns_when_the_time_is_over(db_url: str) -> None:
    async with working(db_url, slow_compute) as (tasks, _):
        done = await tasks.reaches(await tasks.start(slow_compute, seconds=0.2, label="Tea"), Status.COMPLETED)
    assert done.result is not None
    assert json.loads(done.result)["content"] == [{"type": "text", "text": "Tea: done after 0.2 seconds"}]


async def test_it_tells_how_far_it_is_and_a_cancel_ends_it(db_url: str) -> None:
    async with working(db_url, slow_compute) as (tasks, _):
        task_id = await tasks.start(slow_compute, seconds=3600, label="Tea")

        async def told() -> TaskState | None:
            state = await tasks.read(task_id)
            return state if state.task.status_message else None

        state = await eventually(told)
        assert state is not None
        assert state.task.status_message == "Tea: 0 of 3600 seconds"
        await tasks.store.cancel(OWNER, task_id)
        await tasks.reaches(task_id, Status.CANCELLED)


@pytest.mark.parametrize("seconds", [-1, 1e9, "1"])
async def test_other_amounts_of_time_are_refused(db_url: str, seconds: object) -> None:
    async with working(db_url, slow_compute) as (tasks, _):
        done = await tasks.reaches(await tasks.start(slow_compute, seconds=seconds), Status.COMPLETED)
    assert done.result is not None
    assert json.loads(done.result)["isError"]
