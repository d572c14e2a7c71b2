"""fastmcp 4.1 with fastmcp-tasks: a client in wide use that bends the rules. What it does that others do not is pinned
here too, so that a new release which does it no longer is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp import Client
from fastmcp.client.client import CallToolResult
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.exceptions import ToolError
from fastmcp_tasks import call_tool_task
from fastmcp_tasks.client import MIN_POLL_INTERVAL

from tests.clients.conftest import TOOLS, Sent, Traffic
from tests.support.cable import cable_to
from tests.support.dev import running_dev
from tests.support.waiting import eventually

OUTAGE_SECONDS = 3.0


class User:
    """Answers every question in the same way, and remembers what it was asked."""

    def __init__(self, answer: Any = None) -> None:
        self.asked: list[str] = []
        self._answer = answer

    async def __call__(self, message: str, *_: object) -> Any:
        self.asked.append(message)
        return self._answer


def client_of(url: str, traffic: Traffic, user: User | None = None) -> Client[StreamableHttpTransport]:
    """A client whose traffic is kept."""
    return Client(StreamableHttpTransport(url, httpx_client_factory=traffic.http), elicitation_handler=user)


def text_of(result: CallToolResult) -> str:
    """The text of a result."""
    return str(getattr(result.content[0], "text", None))


def polls(traffic: Traffic) -> list[Sent]:
    """What was sent to follow tasks."""
    return traffic.of("tasks/get", "tasks/update", "tasks/cancel")


# -- what it is for ---------------------------------------------------------------------------------------------------


async def test_it_drives_hello_world_and_answers_its_question(url: str, traffic: Traffic) -> None:
    user = User({"name": "Luca"})
    async with client_of(url, traffic, user) as client:
        assert text_of(await client.call_tool("hello_world")) == "Hello, Luca!"
    assert user.asked == ["Please enter your name."]
    assert {each.method for each in polls(traffic)} == {"tasks/get", "tasks/update"}


async def test_a_question_that_it_declines_is_declined(url: str, traffic: Traffic) -> None:
    async with client_of(url, traffic, User(ElicitResult(action="decline"))) as client:
        assert (await client.call_tool("print_copies")).structured_content == {"copies": 0}


async def test_what_it_cancels_is_cancelled_and_stops(url: str, traffic: Traffic) -> None:
    async with client_of(url, traffic) as client:
        task = await call_tool_task(client, "hang")

        async def hangs() -> bool:
            return (await task.status()).status_message == "Hanging"

        assert await eventually(hangs)
        await task.cancel()
        assert (await task.wait(timeout=20)).status == "cancelled"
        with pytest.raises(ToolError, match="was cancelled"):
            await task.result()

        async def stopped() -> bool:
            return text_of(await client.call_tool("hanging")) == "0"

        assert await eventually(stopped)


@pytest.mark.parametrize(("how", "says"), [("tool", r"Out of paper\."), ("protocol", "No printer")])
async def test_a_failure_is_raised_with_its_reason(how: str, says: str, url: str, traffic: Traffic) -> None:
    async with client_of(url, traffic) as client:
        with pytest.raises(ToolError, match=says):
            await client.call_tool("out_of_paper", {"how": how})


async def test_a_question_before_the_task_and_one_in_it_reach_the_same_user(url: str, traffic: Traffic) -> None:
    user = User({"copies": 3})
    async with client_of(url, traffic, user) as client:
        assert text_of(await client.call_tool("confirm_first")) == "3 and 3"
    assert user.asked == ["Now?", "And then?"]


# -- what it does that others do not ----------------------------------------------------------------------------------


async def test_it_sends_no_name_with_tasks_and_is_served(url: str, traffic: Traffic) -> None:
    async with client_of(url, traffic, User({"copies": 1})) as client:
        await client.call_tool("print_copies")
        await (await call_tool_task(client, "hang")).cancel()
    assert {each.method for each in polls(traffic)} == {"tasks/get", "tasks/update", "tasks/cancel"}
    assert {each.headers["mcp-protocol-version"] for each in polls(traffic)} == {"2026-07-28"}
    assert not [each for each in polls(traffic) if "mcp-name" in each.headers]
    assert {each.status for each in polls(traffic)} == {200}


async def test_a_wrong_name_is_refused_all_the_same(url: str, traffic: Traffic) -> None:
    async with client_of(url, traffic) as client:
        task = await call_tool_task(client, "slow_compute", {"seconds": 0})
        await task.wait(timeout=20)
    sent = traffic.of("tasks/get")[-1]
    headers = dict(sent.headers) | {"mcp-name": "another"}
    del headers["content-length"]
    async with traffic.http() as http:
        response = await http.post(url, headers=headers, json=sent.message)
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)


async def test_a_capability_of_nothing_but_braces_is_what_it_takes_for_tasks(url: str, traffic: Traffic) -> None:
    async with client_of(url, traffic) as client:
        capabilities = client.session.server_capabilities
        assert capabilities is not None
        assert capabilities.extensions == {"io.modelcontextprotocol/tasks": {}}
        assert (await call_tool_task(client, "slow_compute", {"seconds": 0})).task_id


async def test_the_result_in_a_task_is_a_full_one(url: str, traffic: Traffic) -> None:
    async with client_of(url, traffic) as client:
        task = await call_tool_task(client, "slow_compute", {"seconds": 0})
        ended = await task.wait(timeout=20)
        assert ended.result is not None
        assert ended.result["resultType"] == "complete"
        assert text_of(await task.result()) == "Computing: done after 0 seconds"


async def test_polls_much_faster_than_the_interval_are_served(url: str, traffic: Traffic) -> None:
    assert MIN_POLL_INTERVAL == 0.02
    async with client_of(url, traffic) as client:
        task = await call_tool_task(client, "hello_world")  # which asks to be polled every 5 s
        assert task.create_result.poll_interval_ms == 5000
        await asyncio.gather(*(task.status() for _ in range(100)))
        await task.cancel()
    assert [each.status for each in traffic.of("tasks/get")] == [200] * 100


async def test_a_database_that_is_away_for_a_while_makes_a_poll_late_and_not_fail(
    db_url: str, traffic: Traffic, tmp_path: Path
) -> None:
    async with cable_to(db_url) as cable:
        dev = running_dev(tmp_path / "dev", cable.url, "app.examples", TOOLS)
        url = await asyncio.to_thread(dev.__enter__)
        try:
            async with client_of(url, traffic) as client:
                calling = asyncio.create_task(client.call_tool("slow_compute", {"seconds": 4}))

                async def polled() -> bool:
                    return len(traffic.of("tasks/get")) > 3

                assert await eventually(polled)
                await cable.pull_out()
                await asyncio.sleep(OUTAGE_SECONDS)
                await cable.plug_in()
                assert text_of(await calling) == "Computing: done after 4 seconds"
        finally:
            await asyncio.to_thread(dev.__exit__, None, None, None)
    assert {each.status for each in traffic.sent} == {200}


@asynccontextmanager
async def stub_of(status: int, url: str, traffic: Traffic) -> AsyncIterator[Client[StreamableHttpTransport]]:
    """A client of the service, whose polls something on the way answers with this status."""

    class OnTheWay(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if request.headers.get("mcp-method") == "tasks/get":
                return httpx2.Response(status, request=request)
            return await super().handle_async_request(request)

    factory = partial(traffic.http, transport=OnTheWay())
    async with Client(StreamableHttpTransport(url, httpx_client_factory=factory)) as client:
        yield client


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_it_gives_a_whole_call_up_at_the_first_poll_that_fails(status: int, url: str, traffic: Traffic) -> None:
    async with stub_of(status, url, traffic) as client:
        with pytest.raises(Exception, match="Server returned an error response"):
            await client.call_tool("slow_compute", {"seconds": 0})
    assert [each.status for each in traffic.of("tasks/get")] == [status]
