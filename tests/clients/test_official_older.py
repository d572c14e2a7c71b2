"""The official client, `mcp` 2.3, as older ones are: it opens with `initialize` and speaks 2025-11-25."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import ElicitResult

from tests.clients.conftest import Traffic
from tests.clients.recipe import recipe
from tests.clients.test_official import text_of


@asynccontextmanager
async def connected(url: str, traffic: Traffic) -> AsyncIterator[Client]:
    """An older client, which has all that a newer one has."""

    async def ask(context: Any, params: Any) -> ElicitResult:
        raise AssertionError("an older client cannot be asked")

    async with traffic.http() as http:
        transport = streamable_http_client(url, http_client=http)
        client = Client(transport, mode="legacy", extensions=[recipe.Tasks()], elicitation_callback=ask)
        async with client:
            yield client


async def test_it_agrees_on_its_revision_and_is_promised_nothing_that_is_not_there(url: str, traffic: Traffic) -> None:
    async with connected(url, traffic) as client:
        assert client.protocol_version == "2025-11-25"
        assert client.server_capabilities.model_dump(exclude_none=True) == {"tools": {}}
        assert client.server_info is not None
        assert client.server_info.name == "perdure"
        with pytest.warns(MCPDeprecationWarning):
            await client.send_ping()
    assert [(each.method, each.status) for each in traffic.sent] == [
        ("initialize", 200),
        ("notifications/initialized", 202),
        ("ping", 200),
    ]
    assert not any("mcp-session-id" in each.headers for each in traffic.sent)


async def test_it_lists_and_calls_the_same_tools(url: str, traffic: Traffic) -> None:
    async with connected(url, traffic) as client:
        listed = await client.list_tools()
        assert {"count", "hello_world", "out_of_paper"} <= {tool.name for tool in listed.tools}
        assert text_of(await client.call_tool("slow_compute", {"seconds": 0})) == "Computing: done after 0 seconds"


async def test_what_a_tool_reports_arrives_as_progress(url: str, traffic: Traffic) -> None:
    told = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with connected(url, traffic) as client:
        result = await client.call_tool("count", {"seconds": 3}, progress_callback=hear)
    assert text_of(result) == "counted to 3"
    assert told
    assert set(told) <= {(second, 3, f"second {second}") for second in range(3)}


@pytest.mark.parametrize("tool", ["hello_world", "print_copies", "confirm_first"])
async def test_a_tool_that_must_ask_fails_and_says_why(tool: str, url: str, traffic: Traffic) -> None:
    async with connected(url, traffic) as client:
        result = await client.call_tool(tool)
    assert result.is_error
    assert "cannot be asked" in text_of(result)


async def test_a_failure_is_told_as_to_others(url: str, traffic: Traffic) -> None:
    async with connected(url, traffic) as client:
        assert (await client.call_tool("out_of_paper", {"how": "tool"})).is_error
        with pytest.raises(MCPError) as raised:
            await client.call_tool("out_of_paper", {"how": "protocol"})
    error: Any = raised.value.error
    assert (error.code, error.message, error.data) == (4711, "No printer", {"tray": 2})
