"""What becomes of a call, told by tasks/get as the call itself would have (Tasks, "Task Execution Errors")."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.methods.inline_tools import Stage, make_tools
from tests.support.rpc import DRAFT, PUBLISHED
from tests.support.service import Service, serving_with_worker
from tests.support.waiting import eventually


@pytest.fixture
async def service(db_url: str) -> AsyncIterator[Service]:
    """The API with a worker."""
    async with serving_with_worker(db_url, *make_tools(Stage())) as running:
        yield running


async def _outcome(service: Service, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """The task of a call, once it has ended."""
    task_id = await service.start_task(tool, **arguments)

    async def ended() -> dict[str, Any] | None:
        task = await service.read(task_id)
        return task if task["status"] in ("completed", "failed", "cancelled") else None

    return await eventually(ended)


@pytest.mark.requirement("R07", "R44", "R45", "R47")
async def test_a_tools_own_failure_completes_the_task_with_the_result_that_says_so(service: Service) -> None:
    task = await _outcome(service, "fail", how="tool")
    assert task["status"] == "completed"
    assert "error" not in task
    assert task["result"]["isError"] is True
    assert task["result"]["content"] == [{"type": "text", "text": "Out of paper."}]


@pytest.mark.requirement("R43", "R46")
async def test_an_error_of_the_protocol_fails_the_task_with_that_error_and_a_message(service: Service) -> None:
    task = await _outcome(service, "fail", how="protocol")
    assert task["status"] == "failed"
    assert "result" not in task
    assert task["error"] == {"code": 4711, "message": "Out of paper", "data": {"tray": 2}}
    assert task["statusMessage"] == "Out of paper"


@pytest.mark.requirement("R43", "R46")
async def test_a_handler_that_breaks_fails_the_task_with_an_internal_error_and_a_message(service: Service) -> None:
    task = await _outcome(service, "fail", how="crash")
    assert (task["status"], task["error"]["code"]) == ("failed", -32603)
    assert task["statusMessage"]
    assert "secret" not in str(task)


@pytest.mark.requirement("R16", "R47")
async def test_a_result_completes_the_task_and_is_the_one_that_the_call_would_have_given(service: Service) -> None:
    task = await _outcome(service, "add", a=2, b=3)
    assert task["status"] == "completed"
    called = (await service.client.with_(capabilities=None).call("add", a=2, b=3)).result
    assert task["result"] == {name: value for name, value in called.items() if name != "_meta"}


@pytest.mark.requirement("R01", "R02")
@pytest.mark.parametrize("version", [None, DRAFT, PUBLISHED])
async def test_only_a_request_that_declares_the_extension_itself_gets_a_task(
    service: Service, version: str | None
) -> None:
    declaring = service.client.with_(version=version)
    assert (await declaring.call("add", a=1, b=2)).result["resultType"] == "task"
    others: list[dict[str, Any]] = [{}, {"tasks": {}}, {"extensions": {}}, {"extensions": {"com.example/other": {}}}]
    for capabilities in others:
        result = (await declaring.with_(capabilities=capabilities).call("add", a=1, b=2)).result
        assert (result["resultType"], result["structuredContent"]) == ("complete", 3)
    assert (await declaring.call("maybe_quick")).result["resultType"] == "complete"
