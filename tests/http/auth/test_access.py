"""The Authorization header, and the challenges to the letter (RFC 6750; core, "Authorization", "Error Handling")."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.domain.scopes import Scopes
from app.domain.task import Json
from app.http.auth.access import Access
from app.http.auth.api_keys import ApiKeys, line, new_key
from app.methods.call import Call
from app.tools.registry import Registry, Tool, tool
from app.wire.revisions import LEGACY
from tests.http.scripted import Caller, said, scripted
from tests.support.rpc import DRAFT, PUBLISHED, Client
from tests.support.service import serving
from tests.support.waiting import eventually
from tests.support.worker import working

PING = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
KEY = new_key()
RESOURCE = "https://mcp.example.com/mcp"
METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"


async def _in(call: Call) -> Json:
    return said(f"in as {call.owner}")


def keys_of(*lines: str, **options: Any) -> Access:
    """Access by these lines of keys."""
    return Access(ApiKeys(",".join(lines), scopes=Scopes([("admin", "write"), ("write", "read")])), **options)


@asynccontextmanager
async def guarded(**options: Any) -> AsyncIterator[Caller]:
    """A server that lets one key in; `options` are those of Access."""
    async with scripted(_in, access=keys_of(line("ada", KEY), **options)) as caller:
        yield caller


# -- the header -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["Bearer {}", "bearer {}", "BEARER {}", "Bearer   {}"])
async def test_the_scheme_is_read_in_any_case(written: str) -> None:
    async with guarded() as caller:
        assert (await caller.post(PING, {"Authorization": written.format(KEY)})).status == 200


@pytest.mark.parametrize(
    "written",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YWRhOmxvdmVsYWNl",
        "DPoP {}",
        "Token {}",
        "{}",
        "Bearer {} {}",
        "Bearer {}, Bearer {}",
        "Bearer\t{}",
        "Bearer \u00e9{}",
        'Bearer "{}"x y',
        "Negotiate",
    ],
)
async def test_what_holds_no_bearer_token_is_no_authorization(written: str) -> None:
    async with guarded() as caller:
        reply = await caller.post(PING, {"Authorization": written.format(KEY, KEY)}, unread=True)
        assert reply.status == 401
        assert reply.headers["WWW-Authenticate"] == 'Bearer realm="perdure"'
        assert KEY.encode() not in reply.body


async def test_without_a_header_the_challenge_names_no_error() -> None:
    async with guarded(metadata_url=METADATA, scopes=["tools:call", "tasks"]) as caller:
        reply = await caller.post(PING, unread=True)
        assert reply.refusal == (401, -32600, "Unauthorized: send a token, as Authorization: Bearer …")
        assert reply.headers["WWW-Authenticate"] == f'Bearer scope="tools:call tasks", resource_metadata="{METADATA}"'


async def test_a_token_that_is_not_taken_is_named_as_the_error() -> None:
    async with guarded(metadata_url=METADATA, scopes=["tools:call"]) as caller:
        reply = await caller.post(PING, {"Authorization": f"Bearer {new_key()}"}, unread=True)
        assert reply.refusal == (401, -32600, "Unauthorized: the token is no API key of this server")
        assert reply.headers["WWW-Authenticate"] == (
            f'Bearer error="invalid_token", scope="tools:call", resource_metadata="{METADATA}"'
        )


async def test_a_token_in_the_url_is_a_bad_request_even_if_there_is_a_good_one() -> None:
    async with guarded(metadata_url=METADATA) as caller:
        for headers in ({}, {"Authorization": f"Bearer {KEY}"}):
            with capture_logs() as logs:
                reply = await caller.with_(url=f"{caller.url}?access_token={KEY}").post(PING, headers, unread=True)
            assert reply.refusal == (
                400,
                -32600,
                "Bad request: a token is sent in the Authorization header, never in the URL",
            )
            assert reply.headers["WWW-Authenticate"] == (
                f'Bearer error="invalid_request", resource_metadata="{METADATA}"'
            )
            assert KEY not in str(logs)


async def test_two_headers_are_a_bad_request_even_if_both_are_good() -> None:
    async with guarded(metadata_url=METADATA) as caller:
        twice = [("Authorization", f"Bearer {KEY}")] * 2 + [("Content-Type", "application/json")]
        async with caller.session.post(caller.url, data=PING, headers=twice) as response:
            assert response.status == 400
            assert response.headers["WWW-Authenticate"] == (
                f'Bearer error="invalid_request", resource_metadata="{METADATA}"'
            )
            assert "more than one" in (await response.json())["error"]["message"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"])
async def test_whoever_is_not_let_in_learns_nothing_else(method: str) -> None:
    async with guarded() as caller:
        async with caller.session.request(method, caller.url) as response:
            assert response.status == 401
        async with caller.session.post(caller.url, data=b"{", headers={"Content-Type": "text/plain"}) as response:
            assert response.status == 401


@pytest.mark.parametrize("version", [None, DRAFT, PUBLISHED, *LEGACY])
async def test_clients_of_every_revision_are_told_by_the_status(version: str | None) -> None:
    headers = {"MCP-Protocol-Version": version} if version else {}
    async with guarded() as caller:
        assert (await caller.post(PING, headers, unread=True)).status == 401
        assert (await caller.post(PING, headers | {"Authorization": "Bearer x"}, unread=True)).status == 401


async def test_nobody_is_asked_where_everybody_is_let_in() -> None:
    async with scripted(_in, access=Access()) as caller:
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic y"}):
            assert (await caller.post(PING, headers)).status == 200
        assert (await caller.rpc("tools/call", {"name": "it"})).result["content"][0]["text"] == "in as anonymous"


# -- scopes -----------------------------------------------------------------------------------------------------------


@tool(scopes=["read"])
async def look_up() -> str:
    """Look something up."""
    return "found"


@tool(scopes=["write", "billing"])
async def pay() -> str:
    """Pay somebody."""
    return "paid"


@tool(task="never", scopes=["read"])
async def peek(name: str = "") -> str:
    """Look something up at once."""
    return "seen"


@asynccontextmanager
async def scoped(db_url: str, *tools: Tool, needed: tuple[str, ...] = (), **granted: str) -> AsyncIterator[Any]:
    """A service with a worker, and a client for each name, who was granted the scopes behind it."""
    keys = {name: new_key() for name in granted}
    lines = [line(name, key, tuple(granted[name].split())) for name, key in keys.items()]
    access = keys_of(*lines, metadata_url=METADATA, scopes=needed)
    local = [each for each in tools if each.options.task == "never"]
    workers = [each for each in tools if each.options.task != "never"]
    async with serving(db_url, Registry(local), access=access, scopes=needed) as service, working(db_url, *workers):
        yield service, *(service.client.with_(token=key) for key in keys.values())


def challenge(scope: str) -> str:
    """What a client is told that lacks scopes."""
    return f'Bearer error="insufficient_scope", scope="{scope}", resource_metadata="{METADATA}"'


async def test_a_tools_scopes_are_asked_for_whoever_brings_the_tool(db_url: str) -> None:
    async with scoped(db_url, look_up, pay, peek, reader="read", payer="write billing", nobody="other") as scene:
        service, reader, payer, nobody = scene
        await listed(reader, ["look_up", "pay", "peek"])
        assert (await reader.call("look_up")).result["resultType"] == "task"
        assert (await reader.call("peek")).result["content"][0]["text"] == "seen"
        assert (await payer.call("pay")).result["resultType"] == "task"
        made = await service.count_tasks()
        for client, name, scope in (
            (reader, "pay", "billing write"),
            (nobody, "look_up", "read"),
            (nobody, "peek", "read"),
        ):
            reply = await client.call(name)
            assert reply.refusal == (403, -32600, f"Forbidden: this needs the scopes {scope}")
            assert reply.headers["WWW-Authenticate"] == challenge(scope)
            assert reply.message["id"] == 1
        assert await service.count_tasks() == made


async def test_a_challenge_names_all_that_the_call_needs_also_what_was_granted(db_url: str) -> None:
    async with scoped(db_url, pay, needed=("tools:call",), half="write", all="tools:call write billing") as scene:
        _, half, everything = scene
        await listed(half, ["pay"])
        assert (await half.call("pay")).headers["WWW-Authenticate"] == challenge("billing tools:call write")
        assert (await everything.call("pay")).result["resultType"] == "task"


async def test_broad_scopes_imply_narrow_ones_and_not_the_other_way_round(db_url: str) -> None:
    async with scoped(db_url, look_up, pay, admin="admin billing", writer="write", reader="read") as scene:
        _, admin, writer, reader = scene
        await listed(admin, ["look_up", "pay"])
        for client, name in ((admin, "pay"), (admin, "look_up"), (writer, "look_up"), (reader, "look_up")):
            assert (await client.call(name)).result["resultType"] == "task"
        assert (await reader.call("pay")).status == 403


async def test_a_key_without_scopes_may_call_everything(db_url: str) -> None:
    async with scoped(db_url, pay, needed=("tools:call",), owner="") as scene:
        _, owner = scene
        await listed(owner, ["pay"])
        assert (await owner.call("pay")).result["resultType"] == "task"


async def test_scopes_come_before_the_arguments_and_clients_of_older_revisions_are_told_by_the_status(
    db_url: str,
) -> None:
    async with scoped(db_url, peek, nobody="other") as (_, nobody):
        assert (await nobody.call("peek", name=7)).status == 403
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"peek"}}'
        headers = {"Authorization": f"Bearer {nobody.token}", "MCP-Protocol-Version": LEGACY[0]}
        async with nobody.session.post(
            nobody.url, data=body, headers=headers | {"Content-Type": "application/json"}
        ) as response:
            assert (response.status, response.headers["WWW-Authenticate"]) == (403, challenge("read"))


async def test_the_list_of_tools_is_for_shared_caches_only_where_everybody_is_let_in(db_url: str) -> None:
    async with scoped(db_url, peek, nobody="other") as (_, nobody):
        assert (await nobody.rpc("tools/list")).result["cacheScope"] == "private"
    async with serving(db_url) as service:
        assert (await service.client.rpc("tools/list")).result["cacheScope"] == "public"


async def listed(client: Client, names: list[str]) -> None:
    """Wait until the service knows the worker's tools."""

    async def look() -> bool:
        return [each["name"] for each in (await client.rpc("tools/list")).result["tools"]] == names

    await eventually(look)
