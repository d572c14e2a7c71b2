"""Tools that run in the API's own process (`task="never"`)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

import app
from app.tools.registry import Registry, tool
from tests.support.rpc import TASKS
from tests.support.service import Service, serving

SERVER_INFO = {"io.modelcontextprotocol/serverInfo": {"name": "perdure", "version": app.__version__}}


def _logged(logs: list[Any], level: str) -> list[tuple[str, str]]:
    return [(line["event"], line["tool"]) for line in logs if line["log_level"] == level and "tool" in line]


async def test_the_result_is_the_reply_and_no_task_is_made(service: Service) -> None:
    result = (await service.client.call("greet", name="Ada")).result
    assert (result["resultType"], result["isError"]) == ("complete", False)
    assert result["content"] == [{"type": "text", "text": "Hello, Ada!"}]
    assert result["_meta"] == SERVER_INFO
    assert await service.count_tasks() == 0


async def test_a_results_own_metadata_is_kept(service: Service) -> None:
    assert (await service.client.call("sign")).result["_meta"] == SERVER_INFO | {"com.example/page": 2}


async def test_the_metadata_of_a_part_is_not_that_of_the_result(service: Service) -> None:
    result = (await service.client.call("sign_inside")).result
    assert result["content"][0]["_meta"] == {"com.example/page": 2}
    assert result["_meta"] == SERVER_INFO


async def test_a_text_that_looks_like_metadata_is_only_text(service: Service) -> None:
    result = (await service.client.call("greet", name='"_meta":{"a":1}')).result
    assert result["content"][0]["text"] == 'Hello, "_meta":{"a":1}!'
    assert result["_meta"] == SERVER_INFO


@pytest.mark.parametrize(("name", "main"), [("look_around", True), ("look_around_in_thread", False)])
async def test_an_async_tool_runs_on_the_loop_and_a_plain_one_in_a_thread(
    service: Service, name: str, main: bool
) -> None:
    seen = (await service.client.call(name)).result["structuredContent"]
    assert seen == {"owner": "anonymous", "capabilities": TASKS, "task_id": None, "main_thread": main}


async def test_arguments_that_do_not_fit_are_told_in_a_result(service: Service) -> None:
    result = (await service.client.call("greet", name=7)).result
    assert result["isError"] is True
    assert "name" in result["content"][0]["text"]


@pytest.mark.parametrize(("name", "how"), [("refuse", {}), ("crash", {"how": "group"})])
async def test_a_tools_error_is_a_result_that_says_so(service: Service, name: str, how: dict[str, str]) -> None:
    result = (await service.client.call(name, **how)).result
    assert result["isError"] is True
    assert result["content"] == [{"type": "text", "text": "The warehouse is closed."}]


async def test_a_tools_protocol_error_is_the_error_of_the_request(service: Service) -> None:
    reply = await service.client.call("protest")
    assert reply.status == 200
    assert reply.error == {"code": 4711, "message": "Out of paper", "data": {"tray": 2}}


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("crash", "error"),
        ("crash", "exit"),
        ("crash", "cancelled"),
        ("crash", "step"),
        ("crash_in_thread", "error"),
        ("crash_in_thread", "exit"),
        ("crash_in_thread", "stop"),
    ],
)
async def test_any_other_failure_tells_the_caller_nothing_and_the_log_everything(
    service: Service, name: str, how: str
) -> None:
    with capture_logs() as logs:
        reply = await service.client.call(name, how=how)
    assert reply.refusal == (500, -32603, "The tool failed with an internal error")
    assert b"secret" not in reply.body
    assert _logged(logs, "error") == [("tool failed", name)]
    assert (await service.client.call("greet", name="Ada")).status == 200


async def test_a_result_that_cannot_be_written_is_an_internal_error_with_a_reason(service: Service) -> None:
    with capture_logs() as logs:
        reply = await service.client.call("crash", how="unwritable")
    assert (reply.status, reply.error["code"]) == (500, -32603)
    assert _logged(logs, "error") == [("tool returned what cannot be sent", "crash")]


async def test_a_protocol_error_that_is_not_json_is_an_internal_error(service: Service) -> None:
    reply = await service.client.call("mumble")
    assert reply.refusal == (500, -32603, "Internal error")


async def test_a_client_that_hangs_up_cancels_the_tool_that_runs_for_it(db_url: str) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    @tool(task="never")
    async def linger() -> str:
        """Wait until it is cancelled."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    async with serving(db_url, Registry([linger])) as service:
        call = asyncio.create_task(service.client.call("linger"))
        await asyncio.wait_for(started.wait(), 10)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(cancelled.wait(), 10)
        assert (await service.client.rpc("tools/list")).status == 200
