"""The official client, `mcp` 2.3, subscribes: to the tools by its own API, to tasks by a request that we make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.extension import NotificationBinding
from mcp_types import (
    SubscriptionFilter,
    SubscriptionsListenRequest,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from pydantic import BaseModel, ConfigDict

from tests.clients.recipe import recipe
from tests.support.dev import running_dev


class Task(BaseModel):
    """What it is told of a task."""

    model_config = ConfigDict(extra="allow")

    taskId: str  # noqa: N815  # as it is written
    status: str


class Pushed(recipe.Tasks):  # type: ignore[misc]  # the recipe is loaded from the documentation
    """The recipe, and a handler for what is pushed."""

    def __init__(self) -> None:
        self.seen: list[Task] = []

    def notifications(self) -> list[NotificationBinding[Task]]:
        """Those of tasks."""
        return [NotificationBinding(method="notifications/tasks", params_type=Task, handler=self._hear)]

    async def _hear(self, task: Task) -> None:
        self.seen.append(task)


@pytest.fixture
def short_url(db_url: str, tmp_path: Path) -> Iterator[str]:
    """A service whose streams soon are old."""
    with running_dev(tmp_path / "dev", db_url, "app.examples", PERDURE_STREAM_SECONDS="4") as url:
        yield url


async def test_it_subscribes_to_tools_and_takes_the_end_of_a_stream_for_a_graceful_one(short_url: str) -> None:
    async with Client(short_url) as client, client.listen(tools_list_changed=True, prompts_list_changed=True) as heard:
        assert heard.honored.model_dump(exclude_none=True) == {"tools_list_changed": True}
        assert [event async for event in heard] == []  # a stream that is lost would raise


async def test_it_hears_of_a_task_until_it_has_ended(short_url: str) -> None:
    pushed = Pushed()
    async with Client(short_url, extensions=[pushed]) as client:
        handle: Any = await client.session.call_tool("slow_compute", {"seconds": 1}, allow_claimed=True)
        wanted = SubscriptionFilter.model_validate({"taskIds": [handle.task_id]})
        request = SubscriptionsListenRequest(params=SubscriptionsListenRequestParams(notifications=wanted))
        result = await client.session.send_request(request, SubscriptionsListenResult)
        assert result.result_type == "complete"
        assert {task.taskId for task in pushed.seen} == {handle.task_id}
        assert [task.status for task in pushed.seen].count("completed") == 1
        shown = await recipe.send(client.session, "tasks/get", taskId=handle.task_id)
    last = next(task for task in pushed.seen if task.status == "completed")
    assert last.model_dump()["result"] == shown["result"]
