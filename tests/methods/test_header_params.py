"""Calls whose arguments are mirrored into headers (core, "Server Behavior for Custom Headers")."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from pydantic import Field

from app.tools.registry import Registry, tool
from app.wire.revisions import LEGACY
from tests.support.rpc import DRAFT, PUBLISHED, Client, Reply
from tests.support.service import Service, serving


@tool(task="never")
async def query(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})], rows: int = 1) -> str:
    """Ask one region."""
    return f"{rows} from {region}"


@pytest.fixture
async def service(db_url: str) -> AsyncIterator[Service]:
    """The API with the one tool."""
    async with serving(db_url, Registry([query])) as running:
        yield running


async def call(client: Client, headers: dict[str, str], name: str = "query", **arguments: Any) -> Reply:
    """Call the tool with further headers."""
    body, sent = client.request("tools/call", {"name": name, "arguments": arguments})
    return await client.post(body, sent | headers)


@pytest.mark.parametrize("version", [None, DRAFT, PUBLISHED])
async def test_a_header_that_says_what_the_argument_is_is_taken(service: Service, version: str | None) -> None:
    client = service.client.with_(version=version)
    for value in ("eu", "=?base64?ZXU=?="):
        result = (await call(client, {"Mcp-Param-Region": value}, region="eu")).result
        assert result["content"] == [{"type": "text", "text": "1 from eu"}]


@pytest.mark.parametrize(("version", "number"), [(None, -32001), (DRAFT, -32001), (PUBLISHED, -32020)])
async def test_one_that_says_something_else_is_refused(service: Service, version: str | None, number: int) -> None:
    reply = await call(service.client.with_(version=version), {"Mcp-Param-Region": "us"}, region="eu")
    assert reply.refusal == (
        400,
        number,
        "Header mismatch: Mcp-Param-Region is not what arguments.region is",
    )


@pytest.mark.parametrize("version", LEGACY)
async def test_one_of_an_older_client_must_match_too(service: Service, version: str) -> None:
    client, older = service.client.with_(capabilities=None), {"MCP-Protocol-Version": version}
    assert (await call(client, older | {"Mcp-Param-Region": "us"}, region="eu")).error["code"] == -32020
    assert (await call(client, older, region="eu")).result["isError"] is False


async def test_only_the_published_revision_demands_it(service: Service) -> None:
    for version in (None, DRAFT):
        assert (await call(service.client.with_(version=version), {}, region="eu")).result["isError"] is False
    published = service.client.with_(version=PUBLISHED)
    assert (await call(published, {}, region="eu")).refusal == (
        400,
        -32020,
        "Header mismatch: the header Mcp-Param-Region is required, as arguments.region has a value",
    )


async def test_headers_come_after_the_tool_and_before_the_rest_of_the_arguments(service: Service) -> None:
    client = service.client.with_(version=PUBLISHED)
    assert (await call(client, {"Mcp-Param-Region": "us"}, "unknown", region="eu")).error["code"] == -32602
    assert (await call(client, {"Mcp-Param-Region": "us"}, region="eu", rows="x")).error["code"] == -32020
    assert (await call(client, {"Mcp-Param-Region": "eu"}, region="eu", rows="x")).result["isError"] is True


async def test_the_annotation_is_listed_as_it_is_declared(service: Service) -> None:
    [listed] = (await service.client.rpc("tools/list")).result["tools"]
    assert listed["inputSchema"]["properties"]["region"] == {"type": "string", "x-mcp-header": "Region"}
