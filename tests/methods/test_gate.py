"""Who may use tasks at all (Tasks, "Capability Negotiation", "Protocol Errors")."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rpc import DRAFT, PUBLISHED, TASKS
from tests.support.service import Service

REQUIRED = {"requiredCapabilities": TASKS}
NUMBERS = [(None, -32003), (DRAFT, -32003), (PUBLISHED, -32021)]
METHODS: dict[str, dict[str, Any]] = {
    "tasks/get": {"taskId": "no id"},
    "tasks/update": {"taskId": "no id", "inputResponses": {}},
    "tasks/cancel": {"taskId": "no id"},
    "tools/call": {"name": "careful_job", "arguments": {}},
}


@pytest.mark.requirement("R03", "R41")
@pytest.mark.parametrize(("version", "number"), NUMBERS)
@pytest.mark.parametrize("method", METHODS)
async def test_a_client_without_the_extension_is_told_that_it_is_missing(
    service: Service, method: str, version: str | None, number: int
) -> None:
    client = service.client.with_(version=version, capabilities={"elicitation": {}})
    reply = await client.rpc(method, METHODS[method], request_id="r-1")
    assert (reply.status, reply.error["code"], reply.error["data"]) == (400, number, REQUIRED)
    assert await service.count_tasks() == 0


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_the_gate_comes_before_the_params(service: Service, method: str) -> None:
    undeclared = service.client.with_(capabilities=None)
    assert (await undeclared.rpc(method, {"taskId": 7})).error["code"] == -32003
    assert (await undeclared.rpc(method)).error["code"] == -32003
    assert (await service.client.rpc(method)).error["code"] == -32602


async def test_the_gate_comes_before_the_lookup(service: Service) -> None:
    there = await service.start_task()
    undeclared = service.client.with_(capabilities={})
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        params = {"taskId": there, "inputResponses": {}}
        real, absent = await undeclared.rpc(method, params), await undeclared.rpc(method, params | {"taskId": "absent"})
        assert real.body == absent.body
    assert (await service.read(there))["status"] == "working"


@pytest.mark.requirement("R41")
async def test_what_one_request_declares_does_not_hold_for_the_next(service: Service) -> None:
    task_id = await service.start_task()
    undeclared = service.client.with_(capabilities=None)
    assert (await undeclared.rpc("tasks/get", {"taskId": task_id})).error["code"] == -32003
    assert (await undeclared.call("careful_job")).error["code"] == -32003


@pytest.mark.requirement("R58")
async def test_the_capability_of_an_older_revision_does_not_count(service: Service) -> None:
    older = service.client.with_(capabilities={"tasks": {"requests": {"tools": {"call": {}}}}})
    assert (await older.call("careful_job")).error["code"] == -32003


@pytest.mark.requirement("R01", "R56")
@pytest.mark.parametrize("version", [None, DRAFT, PUBLISHED])
async def test_a_client_that_declares_the_extension_gets_a_task(service: Service, version: str | None) -> None:
    client = service.client.with_(version=version)
    task = (await client.call("job")).result
    assert (await client.rpc("tasks/get", {"taskId": task["taskId"]})).result["status"] == "working"
    assert (await client.rpc("tasks/update", {"taskId": task["taskId"], "inputResponses": {}})).status == 200
    assert (await client.rpc("tasks/cancel", {"taskId": task["taskId"]})).status == 200


async def test_a_tool_without_tasks_is_open_to_everybody(service: Service) -> None:
    for capabilities in (None, {}, TASKS):
        result = (await service.client.with_(capabilities=capabilities).call("greet", name="Ada")).result
        assert result["content"] == [{"type": "text", "text": "Hello, Ada!"}]
