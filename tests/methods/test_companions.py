"""The tools through which clients without tasks reach one whose call took too long to be waited for."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from tests.methods.inline_tools import Stage, make_tools
from tests.methods.test_inline import text
from tests.support.database import age_task
from tests.support.rpc import Client
from tests.support.service import Service, serving, serving_with_worker
from tests.support.waiting import eventually

COMPANIONS = {"task_result", "task_answer", "task_cancel"}


@pytest.fixture
async def service(db_url: str, stage: Stage) -> AsyncIterator[Service]:
    """The API with a worker and companion tools; it waits for no call for long."""
    async with serving_with_worker(db_url, *make_tools(stage), companions=True, wait_seconds=0.3) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Client:
    """A client that has never heard of tasks."""
    return service.client.with_(capabilities=None)


async def given_up(client: Client, tool: str = "wait_for_go", **arguments: Any) -> str:
    """Make a call that is not waited for to its end; the task's id, as its result tells it."""
    result = (await client.call(tool, **arguments)).result
    assert result["isError"] is False
    found = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", text(result))
    assert found is not None, result
    return found[0]


async def listed(client: Client) -> set[str]:
    return {tool["name"] for tool in (await client.rpc("tools/list")).result["tools"]}


async def test_they_are_offered_only_where_they_are_enabled(client: Client, db_url: str) -> None:
    assert await listed(client) >= COMPANIONS
    async with serving(db_url) as without:
        assert not await listed(without.client) & COMPANIONS


async def test_work_that_takes_too_long_goes_on_and_its_result_is_fetched(
    client: Client, service: Service, stage: Stage
) -> None:
    task_id = await given_up(client, label="all the same")
    still = (await client.call("task_result", task_id=task_id, wait_seconds=0)).result
    assert "still working" in text(still)
    stage.go.set()
    done = (await client.call("task_result", task_id=task_id, wait_seconds=20)).result
    assert (text(done), done["isError"]) == ("gone all the same", False)
    assert await service.connection.fetchval("SELECT reply FROM perdure.tasks") == "task"


async def test_a_question_is_told_and_answered(client: Client, service: Service, stage: Stage) -> None:
    asking = service.client  # declares tasks, and so gets a handle: its task asks as a task does
    task_id = (await asking.call("greet_by_name")).result["taskId"]
    told = text((await client.call("task_result", task_id=task_id)).result)
    assert "What is your name?" in told
    assert 'key "name"' in told
    answer = {"task_id": task_id, "key": "name", "action": "accept", "content": {"name": "Ada"}}
    wrong = (await client.call("task_answer", **(answer | {"key": "age"}))).result
    assert (wrong["isError"], "does not ask that" in text(wrong)) == (True, True)
    assert (await client.call("task_answer", **answer)).result["isError"] is False
    assert text((await client.call("task_result", task_id=task_id)).result) == "Hello, Ada!"


async def test_a_task_is_stopped(client: Client, stage: Stage) -> None:
    task_id = await given_up(client)
    assert (await client.call("task_cancel", task_id=task_id)).result["isError"] is False
    ended = (await client.call("task_result", task_id=task_id)).result
    assert (ended["isError"], text(ended)) == (True, "The task was cancelled.")


async def test_a_failure_is_told_without_its_inside(client: Client, service: Service) -> None:
    task_id = (await service.client.call("fail", how="crash")).result["taskId"]
    ended = (await client.call("task_result", task_id=task_id)).result
    assert (ended["isError"], text(ended)) == (True, "The task failed: The tool failed with an internal error")


async def test_what_is_not_the_callers_does_not_exist(client: Client, service: Service) -> None:
    foreign = uuid4()
    for tool, more in (("task_result", {}), ("task_cancel", {}), ("task_answer", {"key": "name", "action": "accept"})):
        for task_id in (str(foreign), "no id", str(foreign).upper()):
            result = (await client.call(tool, task_id=task_id, **more)).result
            assert (result["isError"], text(result)) == (True, "Task not found.")


async def test_an_expired_task_is_told_apart(client: Client, service: Service, stage: Stage) -> None:
    stage.go.set()
    task_id = (await service.client.call("wait_for_go")).result["taskId"]
    await eventually(lambda: _completed(service, task_id))
    await age_task(service.connection, task_id, 90_000)
    result = (await client.call("task_result", task_id=task_id)).result
    assert text(result) == "The task has expired: its result is no longer kept."


async def _completed(service: Service, task_id: str) -> bool:
    return bool((await service.read(task_id))["status"] == "completed")
