"""The official client, `mcp` 2.3, on revision 2026-07-28: with tasks, by the recipe of docs/clients.md, and without."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from tests.clients.conftest import Traffic
from tests.clients.recipe import recipe
from tests.support.waiting import eventually


class User:
    """Answers every question in the same way, and remembers what it was asked."""

    def __init__(self, action: Any = "accept", **content: Any) -> None:
        self.asked: list[str] = []
        self._answer = ElicitResult(action=action, content=content or None)

    async def __call__(self, _: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        return self._answer


@asynccontextmanager
async def connected(url: str, traffic: Traffic, *, tasks: bool = True, **options: Any) -> AsyncIterator[Client]:
    """A client whose traffic is kept; with tasks as the recipe has them, or without."""
    extensions = [recipe.Tasks()] if tasks else None
    async with (
        traffic.http() as http,
        Client(streamable_http_client(url, http_client=http), extensions=extensions, **options) as client,
    ):
        yield client


def text_of(result: Any) -> str:
    """The text of a result."""
    return str(result.content[0].text)


async def nothing_hangs(client: Client) -> None:
    """Wait until no tool of the service hangs any more."""

    async def look() -> bool:
        return text_of(await client.call_tool("hanging")) == "0"

    assert await eventually(look)


# -- with tasks -------------------------------------------------------------------------------------------------------


async def test_it_drives_hello_world_and_answers_its_question(url: str, traffic: Traffic) -> None:
    user = User(name="Luca")
    async with connected(url, traffic, elicitation_callback=user) as client:
        assert client.protocol_version == "2026-07-28"
        assert text_of(await client.call_tool("hello_world")) == "Hello, Luca!"
    assert user.asked == ["Please enter your name."]
    sent = traffic.of("tasks/get", "tasks/update")
    assert {each.method for each in sent} == {"tasks/get", "tasks/update"}
    for each in sent:
        assert (each.status, each.headers["mcp-name"]) == (200, each.message["params"]["taskId"])


async def test_a_question_that_it_declines_is_declined(url: str, traffic: Traffic) -> None:
    async with connected(url, traffic, elicitation_callback=User("decline")) as client:
        assert (await client.call_tool("print_copies")).structured_content == {"copies": 0}


async def test_what_it_cancels_is_cancelled_and_stops(url: str, traffic: Traffic) -> None:
    async with connected(url, traffic) as client:
        handle: Any = await client.session.call_tool("hang", allow_claimed=True)

        async def hangs() -> bool:
            task = await recipe.send(client.session, "tasks/get", taskId=handle.task_id)
            return bool(task.get("statusMessage") == "Hanging")

        assert await eventually(hangs)
        await recipe.send(client.session, "tasks/cancel", taskId=handle.task_id)
        with pytest.raises(RuntimeError, match=r"The task was cancelled\."):
            await recipe.follow(client.session, handle.task_id)
        await nothing_hangs(client)


async def test_a_tool_s_failure_is_its_result_and_a_protocol_error_an_exception(url: str, traffic: Traffic) -> None:
    async with connected(url, traffic) as client:
        failed = await client.call_tool("out_of_paper", {"how": "tool"})
        assert (failed.is_error, text_of(failed)) == (True, "Out of paper.")
        with pytest.raises(MCPError) as raised:
            await client.call_tool("out_of_paper", {"how": "protocol"})
    error = raised.value.error
    assert (error.code, error.message, error.data) == (4711, "No printer", {"tray": 2})


async def test_a_question_before_the_task_and_one_in_it_reach_the_same_user(url: str, traffic: Traffic) -> None:
    user = User(copies=3)
    async with connected(url, traffic, elicitation_callback=user) as client:
        assert text_of(await client.call_tool("confirm_first")) == "3 and 3"
    assert user.asked == ["Now?", "And then?"]
    assert len(traffic.of("tools/call")) == 2
    assert len(traffic.of("tasks/update")) == 1


# -- without ----------------------------------------------------------------------------------------------------------


async def test_without_tasks_it_is_asked_and_answered_on_the_request(url: str, traffic: Traffic) -> None:
    user = User(copies=2)
    async with connected(url, traffic, tasks=False, elicitation_callback=user) as client:
        assert (await client.call_tool("print_copies")).structured_content == {"copies": 2}
        assert text_of(await client.call_tool("confirm_first")) == "2 and 2"
    assert user.asked == ["How many?", "Now?", "And then?"]
    assert not traffic.of("tasks/get", "tasks/update")


async def test_without_tasks_an_error_is_that_of_the_call(url: str, traffic: Traffic) -> None:
    async with connected(url, traffic, tasks=False) as client:
        assert (await client.call_tool("out_of_paper", {"how": "tool"})).is_error
        with pytest.raises(MCPError, match="No printer"):
            await client.call_tool("out_of_paper", {"how": "protocol"})


async def test_a_user_who_cannot_be_asked_is_not_asked(url: str, traffic: Traffic) -> None:
    async with connected(url, traffic, tasks=False) as client:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("print_copies")
    assert raised.value.error.code == -32021
    assert raised.value.error.data["requiredCapabilities"].keys() == {"elicitation"}


async def test_without_tasks_what_a_tool_reports_arrives_as_progress(url: str, traffic: Traffic) -> None:
    told = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with connected(url, traffic, tasks=False) as client:
        result = await client.call_tool("count", {"seconds": 3}, progress_callback=hear)
    assert text_of(result) == "counted to 3"
    assert told
    assert set(told) <= {(second, 3, f"second {second}") for second in range(3)}
    assert traffic.of("tools/call")[-1].kind == "text/event-stream"


async def test_keep_alives_hold_a_silent_call_on_either_revision(url: str, traffic: Traffic) -> None:
    async def wait(mode: str) -> None:
        http = traffic.http(timeout=httpx2.Timeout(30, read=9))
        async with http, Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            result = await client.call_tool("slow_compute", {"seconds": 12})
        assert text_of(result) == "Computing: done after 12 seconds"

    async with anyio.create_task_group() as group:
        group.start_soon(wait, "auto")
        group.start_soon(wait, "legacy")


async def test_a_call_that_it_leaves_is_cancelled(url: str, traffic: Traffic) -> None:
    async with connected(url, traffic, tasks=False) as client:
        with anyio.CancelScope() as leaving:

            async def hear(progress: float, total: float | None, message: str | None) -> None:
                leaving.cancel()

            await client.call_tool("hang", progress_callback=hear)
        assert leaving.cancelled_caught
        await nothing_hangs(client)
