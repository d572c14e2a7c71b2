"""Calls that are made again under the same key: one task, however often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.methods.inline_tools import Stage, make_tools
from tests.methods.test_inline import text
from tests.support.database import age_task
from tests.support.rpc import TASKS, Client, Reply
from tests.support.service import Service, serving_with_worker
from tests.support.waiting import eventually

META = "dev.perdure/idempotencyKey"


@pytest.fixture
async def service(db_url: str, stage: Stage) -> AsyncIterator[Service]:
    """The API with a worker."""
    async with serving_with_worker(db_url, *make_tools(stage)) as running:
        yield running


async def keyed(client: Client, key: Any, tool: str = "wait_for_go", /, **arguments: Any) -> Reply:
    """Call a tool under a key."""
    return await client.rpc("tools/call", {"name": tool, "arguments": arguments, "_meta": {META: key}})


async def test_the_same_call_is_the_same_task(service: Service) -> None:
    first, again = await keyed(service.client, "k", label="a"), await keyed(service.client, "k", label="a")
    assert first.result["taskId"] == again.result["taskId"]
    assert await service.count_tasks() == 1
    other_key, other_tool = await keyed(service.client, "l", label="a"), await keyed(service.client, "k", "report")
    assert len({reply.result["taskId"] for reply in (first, other_key, other_tool)}) == 3


async def test_a_key_in_the_header_is_the_same_key(service: Service) -> None:
    first = await keyed(service.client, "k")
    body, headers = service.client.request("tools/call", {"name": "wait_for_go", "arguments": {}})
    again = await service.client.post(body, headers | {"Idempotency-Key": "k"})
    assert again.result["taskId"] == first.result["taskId"]
    body, headers = service.client.request("tools/call", {"name": "wait_for_go", "arguments": {}, "_meta": {META: "k"}})
    assert (await service.client.post(body, headers | {"Idempotency-Key": "l"})).refusal[:2] == (400, -32001)


async def test_another_request_under_the_same_key_is_a_conflict(service: Service) -> None:
    await keyed(service.client, "k", label="a")
    reply = await keyed(service.client, "k", label="b")
    assert reply.refusal == (
        400,
        -32602,
        "The idempotency key was used for another request. Give each request its own.",
    )
    assert await service.count_tasks() == 1


@pytest.mark.parametrize("key", ["", "x" * 256, 7, None, {}])
async def test_a_key_that_is_none_is_refused(service: Service, key: Any) -> None:
    reply = await keyed(service.client, key)
    assert reply.refusal[:2] == (400, -32602)
    assert META in reply.error["message"]
    assert await service.count_tasks() == 0


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_a_header_that_is_none_is_refused_by_its_name(service: Service, key: str) -> None:
    body, headers = service.client.request("tools/call", {"name": "wait_for_go", "arguments": {}})
    reply = await service.client.post(body, headers | {"Idempotency-Key": key})
    assert reply.refusal == (400, -32602, "Invalid params: the header Idempotency-Key must have 1 to 255 characters")
    assert await service.count_tasks() == 0


async def test_calls_at_the_same_moment_make_one_task(service: Service) -> None:
    replies = await asyncio.gather(*(keyed(service.client, "k", label="a") for _ in range(20)))
    assert len({reply.result["taskId"] for reply in replies}) == 1
    assert await service.count_tasks() == 1


async def test_a_key_is_free_again_when_its_task_has_expired(service: Service, stage: Stage) -> None:
    stage.go.set()
    first = (await keyed(service.client, "k", label="a")).result["taskId"]
    await eventually(lambda: _completed(service, first))
    assert (await keyed(service.client, "k", label="a")).result["taskId"] == first
    await age_task(service.connection, first, 90_000)
    second = (await keyed(service.client, "k", label="b")).result["taskId"]
    assert second != first


async def test_a_call_whose_connection_was_lost_is_made_again_for_its_result(service: Service, stage: Stage) -> None:
    undeclared = service.client.with_(capabilities=None)
    calling = asyncio.create_task(keyed(undeclared, "k", label="once"))
    await eventually(lambda: _seen(stage, "started"))
    calling.cancel()
    again = asyncio.create_task(keyed(undeclared, "k", label="once"))
    await asyncio.sleep(0.2)  # a cancel, if there were one, would have been passed on by now
    assert not stage.seen["stopped: cancel"]
    stage.go.set()
    assert text((await again).result) == "gone once"
    assert await service.count_tasks() == 1


async def test_a_client_that_learns_of_tasks_gets_the_handle_of_its_own_call(service: Service, stage: Stage) -> None:
    calling = asyncio.create_task(keyed(service.client.with_(capabilities=None), "k"))
    await eventually(lambda: _seen(stage, "started"))
    task = (await keyed(service.client.with_(capabilities=TASKS), "k")).result
    assert task["resultType"] == "task"
    assert await service.connection.fetchval("SELECT reply FROM perdure.tasks") == "task"
    stage.go.set()
    assert text((await calling).result) == "gone"


async def _completed(service: Service, task_id: str) -> bool:
    return bool((await service.read(task_id))["status"] == "completed")


async def _seen(stage: Stage, what: str) -> bool:
    return stage.seen[what] > 0
