"""tools/list and server/discover (core, "Listing Tools", "Discovery", "Caching")."""

from __future__ import annotations

import pytest

import app
from app.tools.registry import Tool, tool
from app.wire.revisions import SUPPORTED
from tests.support.fixture_tools import LOCAL, SHARED
from tests.support.rpc import DRAFT, PUBLISHED
from tests.support.service import Service, serving


def _named(name: str) -> Tool:
    @tool(name=name, description="Nothing")
    async def nothing() -> None: ...

    return nothing


async def test_tools_are_listed_in_the_order_of_their_names_wherever_they_run(service: Service) -> None:
    result = (await service.client.rpc("tools/list")).result
    assert [each["name"] for each in result["tools"]] == sorted(each.name for each in (*LOCAL, *SHARED))
    assert (result["ttlMs"], result["cacheScope"]) == (60_000, "public")
    assert "nextCursor" not in result


async def test_the_order_does_not_depend_on_the_language_of_the_database(db_url: str) -> None:
    from app.tools.registry import Registry

    names = ["Z", "a", "B", "_", "a.b", "a-b", "a1"]
    async with serving(db_url, Registry(map(_named, names))) as service:
        listed = (await service.client.rpc("tools/list")).result["tools"]
    assert [each["name"] for each in listed] == sorted(names)


async def test_a_tool_is_listed_as_it_is_declared(service: Service) -> None:
    listed = {each["name"]: each for each in (await service.client.rpc("tools/list")).result["tools"]}
    for each in (*LOCAL, *SHARED):
        assert listed[each.name] == each.definition


@pytest.mark.parametrize("cursor", ["next", "", 7])
async def test_a_cursor_that_was_never_given_out_is_refused(service: Service, cursor: object) -> None:
    reply = await service.client.rpc("tools/list", {"cursor": cursor})
    assert (reply.status, reply.error["code"]) == (400, -32602)
    assert "cursor" in reply.error["message"]


@pytest.mark.parametrize("version", [None, DRAFT, PUBLISHED])
async def test_the_list_is_the_same_for_every_client(service: Service, version: str | None) -> None:
    expected = (await service.client.rpc("tools/list")).result
    assert (await service.client.with_(version=version, capabilities={}).rpc("tools/list")).result == expected


@pytest.mark.requirement("R58")
@pytest.mark.parametrize("version", [None, DRAFT, PUBLISHED])
async def test_discovery_tells_versions_capabilities_and_name(service: Service, version: str | None) -> None:
    result = (await service.client.with_(version=version, capabilities={}).rpc("server/discover")).result
    assert result["supportedVersions"] == list(SUPPORTED)
    assert result["capabilities"] == {
        "tools": {"listChanged": True},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "perdure", "version": app.__version__}
    assert result["cacheScope"] == "public"
