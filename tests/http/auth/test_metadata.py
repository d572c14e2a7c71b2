"""The document that tells clients which authorization server to go to (RFC 9728)."""

from __future__ import annotations

import json

import pytest

from app.domain.task import Json
from app.http.auth.access import Access
from app.http.auth.api_keys import ApiKeys, line, new_key
from app.http.auth.metadata import ResourceMetadata
from app.methods.call import Call
from tests.http.scripted import said, scripted

ISSUER = "https://auth.example.com/tenant"


async def _in(_: Call) -> Json:
    return said("in")


def access(metadata: ResourceMetadata) -> Access:
    return Access(ApiKeys(line("ada", new_key())), metadata_url=metadata.url)


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        ("https://mcp.example.com/mcp", "/mcp"),
        ("https://mcp.example.com:8443/tools/mcp", "/tools/mcp"),
        ("https://mcp.example.com", ""),
        ("https://mcp.example.com/", ""),
    ],
)
async def test_it_is_at_both_of_its_places_and_anyone_may_read_it(resource: str, path: str) -> None:
    metadata = ResourceMetadata(resource, ISSUER, ["tools:call", "tasks"])
    async with scripted(_in, access=access(metadata), metadata=metadata) as caller:
        origin = caller.url.removesuffix("/mcp")
        for place in (f"/.well-known/oauth-protected-resource{path}", "/.well-known/oauth-protected-resource"):
            async with caller.session.get(origin + place) as response:
                assert response.status == 200
                assert response.headers["Content-Type"] == "application/json"
                assert response.headers["Access-Control-Allow-Origin"] == "*"
                assert response.headers["Cache-Control"] == "public, max-age=300"
                assert json.loads(await response.read()) == {
                    "resource": resource,
                    "authorization_servers": [ISSUER],
                    "bearer_methods_supported": ["header"],
                    "resource_name": "Perdure",
                    "scopes_supported": ["tools:call", "tasks"],
                }


async def test_it_can_only_be_read() -> None:
    metadata = ResourceMetadata("https://mcp.example.com/mcp", ISSUER, [])
    async with scripted(_in, access=access(metadata), metadata=metadata) as caller:
        url = caller.url.removesuffix("/mcp") + "/.well-known/oauth-protected-resource"
        async with caller.session.head(url) as response:
            assert (response.status, await response.read()) == (200, b"")
        async with caller.session.post(url, headers={"Origin": "http://localhost:3000"}) as response:
            assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
            assert response.headers["Access-Control-Allow-Origin"] == "*"
            assert "Cache-Control" not in response.headers


async def test_the_challenge_leads_to_it() -> None:
    metadata = ResourceMetadata("https://mcp.example.com/tools/mcp", ISSUER, [])
    async with scripted(_in, access=access(metadata), metadata=metadata) as caller:
        async with caller.session.post(caller.url, data=b"{}") as response:
            assert response.status == 401
            assert response.headers["WWW-Authenticate"] == (
                'Bearer resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/tools/mcp"'
            )
        place = metadata.url.removeprefix("https://mcp.example.com")
        async with caller.session.get(caller.url.removesuffix("/mcp") + place) as response:
            assert "scopes_supported" not in await response.json()


async def test_there_is_none_where_there_is_no_authorization_server() -> None:
    async with scripted(_in) as caller:
        url = caller.url.removesuffix("/mcp") + "/.well-known/oauth-protected-resource"
        async with caller.session.get(url) as response:
            assert response.status == 404


async def test_it_is_only_told_under_a_name_that_the_server_is_known_by() -> None:
    metadata = ResourceMetadata("https://mcp.example.com/mcp", ISSUER, [])
    async with scripted(_in, access=access(metadata), metadata=metadata) as caller:
        url = caller.url.removesuffix("/mcp") + "/.well-known/oauth-protected-resource"
        async with caller.session.get(url, headers={"Host": "evil.example"}) as response:
            assert response.status == 403
