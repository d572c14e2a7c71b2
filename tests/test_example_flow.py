"""The exchange of the section "Example Message Flow" of the Tasks extension, its bodies as they stand there.

API and worker run as they do in production, side by side on one database.
"""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from app.examples.hello_world import hello_world
from app.tools.registry import Registry
from tests.support.rpc import Client
from tests.support.service import serving
from tests.support.waiting import eventually
from tests.support.worker import working

DECLARED: dict[str, Any] = {
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}
}
QUESTION = {
    "name": {
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": "Please enter your name.",
            "requestedSchema": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
            },
        },
    }
}


async def send(client: Client, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a message of the exchange: no headers of the protocol, no version, the extension declared each time."""
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params | {"_meta": DECLARED}}
    reply = await client.post(json.dumps(message).encode())
    assert reply.message["id"] == number
    return reply.result


def task_of(result: dict[str, Any]) -> dict[str, Any]:
    """The members that the document shows beside status and times."""
    assert result["createdAt"] <= result["lastUpdatedAt"]
    return {name: result[name] for name in ("resultType", "ttlMs", "pollIntervalMs")}


@pytest.mark.requirement("R14", "R16", "R24")
async def test_the_documents_exchange_ends_with_hello_luca(db_url: str) -> None:
    async with (
        serving(db_url, Registry([hello_world])) as service,
        aiohttp.ClientSession() as session,
        working(db_url, hello_world) as _,
    ):
        client = Client(session, service.client.url)
        created = await send(client, 2, "tools/call", {"name": "hello_world", "arguments": {}})
        assert task_of(created) == {"resultType": "task", "ttlMs": 3600000, "pollIntervalMs": 5000}
        assert created["status"] == "working"
        named = {"taskId": created["taskId"]}

        async def reads(status: str) -> dict[str, Any] | None:
            result = await send(client, 4, "tasks/get", named)
            assert task_of(result) == {"resultType": "complete", "ttlMs": 3600000, "pollIntervalMs": 5000}
            return result if result["status"] == status else None

        for _ in range(2):  # read again before it is answered, the same question is there again
            asking = await eventually(lambda: reads("input_required"))
            assert asking["inputRequests"] == QUESTION
        answer = {"name": {"action": "accept", "content": {"input": "Luca"}}}
        acknowledged = await send(client, 6, "tasks/update", named | {"inputResponses": answer})
        assert {name: value for name, value in acknowledged.items() if name != "_meta"} == {"resultType": "complete"}
        done = await eventually(lambda: reads("completed"))
        assert done["result"]["content"] == [{"type": "text", "text": "Hello, Luca!"}]
        assert done["result"]["isError"] is False
        assert "inputRequests" not in done
