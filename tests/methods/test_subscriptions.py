"""subscriptions/listen (core, "Subscriptions"; Tasks, "Task Status Notifications")."""

from __future__ import annotations

import pytest

from tests.support.rpc import DRAFT, PUBLISHED
from tests.support.service import DONE, Service
from tests.support.subscriber import subscribed


@pytest.mark.requirement("R35", "R55")
@pytest.mark.parametrize("request_id", ["a subscription", "7", 7, 0])
@pytest.mark.parametrize("version", [None, DRAFT, PUBLISHED])
async def test_each_change_is_sent_as_tasks_get_shows_it(
    service: Service, version: str | None, request_id: str | int
) -> None:
    client = service.client.with_(version=version)
    task_id = await service.start_task()
    async with subscribed(client, task_id, request_id=request_id) as subscriber:
        assert subscriber.honoured == {"taskIds": [task_id]}
        assert (await subscriber.next(task=await service.read(task_id)))["status"] == "working"
        claim = await service.claim()
        await service.store.status(claim, "Halfway")
        assert (await subscriber.next(task=await service.read(task_id)))["statusMessage"] == "Halfway"
        await service.store.finish(claim, DONE)
        assert (await subscriber.next(task=await service.read(task_id)))["status"] == "completed"
