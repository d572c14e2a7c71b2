"""Clients that open with `initialize`: they are served without a session, and find only what they know."""

from __future__ import annotations

import json
from typing import Any

import pytest

import app
from app.wire.revisions import LEGACY
from tests.support.rpc import DRAFT, PUBLISHED, Client, Reply
from tests.support.service import Service

NEWEST = "2025-11-25"
ERAS = [None, *LEGACY]


async def send(client: Client, version: str | None, method: str, params: dict[str, Any] | None = None) -> Reply:
    """Send a request as an older client does: its revision is in the header, and nothing about it in the body."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    return await client.post(json.dumps(body).encode(), {} if version is None else {"MCP-Protocol-Version": version})


def opening(version: Any) -> dict[str, Any]:
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "older", "version": "1"}}


@pytest.mark.parametrize("version", LEGACY)
async def test_an_older_revision_is_agreed_to(service: Service, version: str) -> None:
    for header in (None, version):
        assert (await send(service.client, header, "initialize", opening(version))).result == {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "perdure", "version": app.__version__},
        }


@pytest.mark.parametrize("version", ["2024-11-05", "2099-01-01", PUBLISHED, DRAFT, "", "x" * 5000])
async def test_any_other_is_answered_with_the_newest_that_is_opened_this_way(service: Service, version: str) -> None:
    assert (await send(service.client, None, "initialize", opening(version))).result["protocolVersion"] == NEWEST


@pytest.mark.parametrize("version", [None, 7, True, ["2025-11-25"], {}])
async def test_a_version_that_is_no_text_is_refused(service: Service, version: Any) -> None:
    reply = await send(service.client, None, "initialize", opening(version))
    assert reply.refusal == (400, -32602, "Invalid params: params.protocolVersion must be a string")


async def test_a_version_is_required(service: Service) -> None:
    assert (await send(service.client, None, "initialize")).error["code"] == -32602


async def test_no_session_is_made(service: Service) -> None:
    opened = await send(service.client, None, "initialize", opening(NEWEST))
    body = b'{"jsonrpc":"2.0","id":2,"method":"ping"}'
    used = await service.client.post(body, {"MCP-Protocol-Version": NEWEST, "Mcp-Session-Id": "someone-elses"})
    assert used.result == {}
    assert not any("session" in name.lower() for reply in (opened, used) for name in reply.headers)


@pytest.mark.parametrize("version", ERAS)
async def test_a_ping_is_answered(service: Service, version: str | None) -> None:
    assert (await send(service.client, version, "ping")).result == {}


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("method", ["notifications/initialized", "notifications/cancelled"])
async def test_their_notifications_are_accepted(service: Service, method: str, version: str | None) -> None:
    body = json.dumps({"jsonrpc": "2.0", "method": method, "params": {"requestId": 1}}).encode()
    reply = await service.client.post(body, {} if version is None else {"MCP-Protocol-Version": version})
    assert (reply.status, reply.body) == (202, b"")


@pytest.mark.parametrize("version", [PUBLISHED, DRAFT])
@pytest.mark.parametrize("method", ["initialize", "ping"])
async def test_newer_revisions_have_no_such_method(service: Service, method: str, version: str) -> None:
    reply = await service.client.with_(version=version).rpc(method, opening(NEWEST))
    assert reply.refusal == (404, -32601, f"Method not found: {method}")


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("method", ["server/discover", "tasks/get", "tasks/update", "tasks/cancel", "tasks/list"])
async def test_older_revisions_have_no_newer_methods(service: Service, method: str, version: str) -> None:
    task_id = await service.start_task()
    reply = await send(service.client, version, method, {"taskId": task_id})
    assert (reply.error["code"], reply.error["message"]) == (-32601, f"Method not found: {method}")
    assert (await service.read(task_id))["status"] == "working"


@pytest.mark.parametrize("version", LEGACY)
async def test_older_clients_list_and_call_tools(service: Service, version: str) -> None:
    listed = (await send(service.client, version, "tools/list")).result["tools"]
    assert "greet" in [each["name"] for each in listed]
    called = await send(service.client, version, "tools/call", {"name": "greet", "arguments": {"name": "Ada"}})
    assert called.result["content"] == [{"type": "text", "text": "Hello, Ada!"}]


async def test_a_request_that_declares_nothing_finds_every_method(service: Service) -> None:
    task_id = await service.start_task()
    assert (await service.client.rpc("tasks/get", {"taskId": task_id})).status == 200
    assert (await service.client.rpc("server/discover")).status == 200
    assert (await service.client.rpc("ping")).status == 200
    assert (await service.client.rpc("initialize", opening(NEWEST))).status == 200
