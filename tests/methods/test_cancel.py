"""tasks/cancel (Tasks, "Task Cancellation")."""

from __future__ import annotations

import pytest

from tests.methods.test_update import FORM
from tests.support.rpc import Reply
from tests.support.service import DONE, Service


async def _cancel(service: Service, task_id: str) -> Reply:
    reply = await service.client.rpc("tasks/cancel", {"taskId": task_id})
    assert set(reply.result) == {"resultType", "_meta"}
    return reply


@pytest.mark.requirement("R31", "R34")
async def test_a_task_that_nobody_runs_is_cancelled_at_once(service: Service) -> None:
    task_id = await service.start_task()
    await _cancel(service, task_id)
    assert (await service.read(task_id))["status"] == "cancelled"


async def test_a_task_that_asks_is_cancelled_and_asks_no_more(service: Service) -> None:
    task_id = await service.ask(name=FORM)
    await _cancel(service, task_id)
    task = await service.read(task_id)
    assert task["status"] == "cancelled"
    assert "inputRequests" not in task


@pytest.mark.requirement("R33")
async def test_a_running_task_is_told_and_may_still_finish(service: Service) -> None:
    task_id = await service.start_task()
    claim = await service.claim()
    await _cancel(service, task_id)
    assert (await service.read(task_id))["status"] == "working"
    [holding] = await service.store.holdings(claim.worker_id)
    assert holding.cancel_requested
    await service.store.finish(claim, DONE)
    assert (await service.read(task_id))["status"] == "completed"


@pytest.mark.requirement("R54")
async def test_a_second_cancel_is_acknowledged_with_the_same_bytes(service: Service) -> None:
    task_id = await service.start_task()
    assert (await _cancel(service, task_id)).body == (await _cancel(service, task_id)).body


@pytest.mark.requirement("R54")
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_a_cancel_after_the_end_is_acknowledged_and_changes_nothing(service: Service, end: str) -> None:
    task_id = await service.end_task(end)
    before = await service.read(task_id)
    await _cancel(service, task_id)
    after = await service.read(task_id)
    assert (after["status"], after["lastUpdatedAt"]) == (end, before["lastUpdatedAt"])
