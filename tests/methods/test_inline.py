"""Calls that are answered on their own request, by the durable task behind them (core, "Streamable HTTP")."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.methods.inline_tools import Stage, make_tools
from tests.support.rpc import DRAFT, PUBLISHED, TASKS, Client
from tests.support.service import Service, serving_with_worker
from tests.support.waiting import eventually

MODERN = [None, DRAFT, PUBLISHED]


@pytest.fixture
async def service(db_url: str, stage: Stage) -> AsyncIterator[Service]:
    """The API with a worker."""
    async with serving_with_worker(db_url, *make_tools(stage)) as running:
        yield running


@pytest.fixture
def undeclared(service: Service) -> Client:
    """A client that has never heard of tasks."""
    return service.client.with_(capabilities=None)


async def rows(service: Service) -> list[tuple[str, str, str]]:
    """Tool, status and reply of all tasks."""
    found = await service.connection.fetch("SELECT tool, status, reply FROM perdure.tasks ORDER BY created_at")
    return [tuple(row) for row in found]


def text(result: dict[str, Any]) -> str:
    """The one text of a result."""
    [block] = result["content"]
    told: str = block["text"]
    return told


@pytest.mark.parametrize("version", MODERN)
async def test_a_client_without_tasks_gets_the_outcome_of_a_durable_task(
    service: Service, undeclared: Client, version: str | None
) -> None:
    reply = await undeclared.with_(version=version).call("add", a=2, b=3)
    assert reply.headers["Content-Type"].startswith("application/json")
    assert reply.result["structuredContent"] == 5
    assert reply.result["resultType"] == "complete"
    assert "taskId" not in reply.result
    assert await rows(service) == [("add", "completed", "request")]


async def test_a_slow_call_is_kept_alive_until_its_result(db_url: str, stage: Stage) -> None:
    async with serving_with_worker(db_url, *make_tools(stage), keepalive_seconds=0.1) as service:
        asyncio.get_running_loop().call_later(1.0, stage.go.set)
        reply = await service.client.with_(capabilities=None).call("wait_for_go", label="at last")
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    assert reply.keepalives >= 1
    assert reply.notifications == []
    assert text(reply.result) == "gone at last"


async def test_progress_is_told_where_a_token_was_given(service: Service, undeclared: Client, stage: Stage) -> None:
    reply = await _step_by_step(undeclared, stage, {"progressToken": "p-1"})
    told = [note["params"] for note in reply.notifications]
    assert told == [
        {"progressToken": "p-1", "progress": done, "total": 2, "message": f"part {done}"} for done in (0, 1, 2)
    ]
    assert text(reply.result) == "told"


async def test_status_messages_are_counted_as_progress(service: Service, undeclared: Client, stage: Stage) -> None:
    reply = await _step_by_step(undeclared, stage, {"progressToken": 7}, text=True)
    told = [note["params"] for note in reply.notifications]
    assert told == [{"progressToken": 7, "progress": n + 1, "message": f"part {n}"} for n in (0, 1, 2)]


async def test_no_progress_is_told_without_a_token(service: Service, undeclared: Client, stage: Stage) -> None:
    reply = await _step_by_step(undeclared, stage, {})
    assert reply.notifications == []
    assert text(reply.result) == "told"


async def _step_by_step(client: Client, stage: Stage, meta: dict[str, Any], **arguments: Any) -> Any:
    """Call `report`; it may go on once the client must have been told: the row says so, and a keep-alive came after."""
    params = {"name": "report", "arguments": arguments, "_meta": meta}
    calling = asyncio.create_task(client.rpc("tools/call", params))
    for done in (1, 2, 3):
        await eventually(lambda done=done: _is(stage.seen["told"] == done))  # type: ignore[misc]
        await asyncio.sleep(0.6)  # longer than the throttle and a poll: each message is one of its own
        stage.go.set()
    return await calling


@pytest.mark.parametrize("version", MODERN)
async def test_failures_are_told_as_a_plain_call_would(undeclared: Client, version: str | None) -> None:
    client = undeclared.with_(version=version)
    told = (await client.call("fail", how="tool")).result
    assert (told["isError"], text(told)) == (True, "Out of paper.")
    reply = await client.call("fail", how="protocol")
    assert (*reply.refusal, reply.error["data"]) == (200, 4711, "Out of paper", {"tray": 2})
    assert (await client.call("fail", how="missing")).refusal == (400, -32602, "No such tray")
    status, code, message = (await client.call("fail", how="crash")).refusal
    assert (status, code) == (500, -32603)
    assert "secret" not in message


async def test_closing_the_connection_cancels_the_task(service: Service, undeclared: Client, stage: Stage) -> None:
    calling = asyncio.create_task(undeclared.call("wait_for_go"))
    await eventually(lambda: _is(stage.seen["started"] == 1))
    calling.cancel()
    await eventually(lambda: _is(stage.seen["stopped: cancel"] == 1))
    await eventually(lambda: _ended(service, "cancelled"))


async def test_closing_the_connection_of_a_handle_cancels_nothing(service: Service, stage: Stage) -> None:
    async with aiohttp.ClientSession() as session:
        task_id = (await service.client.with_(session=session).call("wait_for_go")).result["taskId"]
    await eventually(lambda: _is(stage.seen["started"] == 1))
    stage.go.set()
    await eventually(lambda: _ended(service, "completed"))
    assert text((await service.read(task_id))["result"]) == "gone"


async def test_a_hidden_task_that_someone_cancels_answers_with_an_error(
    service: Service, undeclared: Client, stage: Stage
) -> None:
    calling = asyncio.create_task(undeclared.call("wait_for_go"))
    await eventually(lambda: _is(stage.seen["started"] == 1))
    task_id = await service.connection.fetchval("SELECT task_id FROM perdure.tasks")
    await service.client.rpc("tasks/cancel", {"taskId": str(task_id)})
    result = (await calling).result
    assert (result["isError"], text(result)) == (True, "The task was cancelled.")


@pytest.mark.requirement("R03")
@pytest.mark.parametrize(("version", "number"), [(None, -32003), (DRAFT, -32003), (PUBLISHED, -32021)])
async def test_a_tool_that_needs_a_task_is_refused_to_those_without(
    service: Service, undeclared: Client, version: str | None, number: int
) -> None:
    client = undeclared.with_(version=version)
    for tool in ("only_as_task", "confirm_then_task"):
        reply = await client.call(tool)
        assert (reply.status, reply.error["code"]) == (400, number)
        assert reply.error["data"] == {"requiredCapabilities": TASKS}
    assert [row[0] for row in await rows(service)] == ["confirm_then_task"]
    assert text((await client.call("confirm_then_task", work=False)).result) == "done"


@pytest.mark.requirement("R01")
async def test_a_result_within_the_budget_comes_instead_of_a_handle(service: Service, stage: Stage) -> None:
    assert text((await service.client.call("maybe_quick")).result) == "quick"
    assert (await service.client.call("maybe_quick", how="fail")).refusal == (200, 4711, "Quickly failed")
    asking = (await service.client.call("maybe_quick", how="ask")).result
    assert (asking["resultType"], asking["status"]) == ("task", "input_required")
    slow = (await service.client.call("maybe_quick", how="slow")).result
    assert (slow["resultType"], slow["status"]) == ("task", "working")
    assert {row[2] for row in await rows(service)} == {"task"}
    stage.go.set()
    await eventually(lambda: _has_ended(service, slow["taskId"]))
    assert text((await service.read(slow["taskId"]))["result"]) == "slow"


async def test_a_wait_that_is_too_long_ends_the_task_and_says_what_is_missing(db_url: str, stage: Stage) -> None:
    async with serving_with_worker(db_url, *make_tools(stage), wait_seconds=0.5) as service:
        reply = await service.client.with_(capabilities=None).call("wait_for_go")
        assert (reply.status, reply.error["code"]) == (400, -32003)
        assert reply.error["data"] == {"requiredCapabilities": TASKS}
        assert "longer than a request may" in reply.error["message"]
        await eventually(lambda: _ended(service, "cancelled"))


async def test_a_wait_that_is_too_long_gives_a_handle_to_those_who_can_use_it(db_url: str, stage: Stage) -> None:
    async with serving_with_worker(db_url, *make_tools(stage), wait_seconds=0.5) as service:
        client = service.client.with_(capabilities=TASKS | {"elicitation": {}})
        asked = (await client.call("confirm_first")).result
        answer = {"sure": {"action": "accept", "content": {"sure": True}}}
        params = {"name": "confirm_first", "inputResponses": answer, "requestState": asked["requestState"]}
        task = (await client.rpc("tools/call", params)).result
        assert task["resultType"] == "task"
        stage.go.set()
        await eventually(lambda: _has_ended(service, task["taskId"]))


async def _is(condition: bool) -> bool:
    return condition


async def _ended(service: Service, status: str) -> bool:
    return [row[1] for row in await rows(service)] == [status]


async def _has_ended(service: Service, task_id: str) -> bool:
    return (await service.read(task_id))["status"] in ("completed", "failed", "cancelled")
