"""tools/call for tools that become tasks (Tasks, "Task Creation"; core, "Calling Tools")."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.support.rpc import DRAFT, PUBLISHED, TASKS, Reply
from tests.support.service import Service
from tests.support.waiting import eventually

REQUEST = """
SELECT r.*, t.owner, t.tool, t.priority, t.reply
FROM perdure.task_requests AS r
JOIN perdure.tasks AS t ON t.task_id = r.task_id"""
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


async def _request(service: Service) -> asyncpg.Record:
    row: asyncpg.Record | None = await service.connection.fetchrow(REQUEST)
    assert row is not None
    return row


@pytest.mark.requirement("R05", "R50")
async def test_the_handle_is_flat_and_has_no_outcome(service: Service) -> None:
    handle = (await service.client.call("job")).result
    assert set(handle) == {
        "resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "_meta",
    }  # fmt: skip
    assert (handle["resultType"], handle["status"], handle["ttlMs"]) == ("task", "working", None)
    assert UUID(handle["taskId"]).version == 7


@asynccontextmanager
async def _blocked(service: Service, db_url: str) -> AsyncIterator[asyncio.Task[Reply]]:
    """A call whose task cannot be committed before the block ends."""
    blocker = await asyncpg.connect(db_url)
    try:
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE perdure.task_requests IN SHARE MODE")
            call = asyncio.create_task(service.client.call("job"))
            await eventually(lambda: service.connection.fetchval(BLOCKED))
            yield call
    finally:
        await blocker.close()


@pytest.mark.requirement("R08")
async def test_the_task_is_committed_before_the_reply(service: Service, db_url: str) -> None:
    async with _blocked(service, db_url) as call:
        assert not call.done()
        assert await service.count_tasks() == 0
    task_id = (await call).result["taskId"]
    assert await service.connection.fetchval("SELECT task_id FROM perdure.tasks") == UUID(task_id)


async def test_a_task_is_created_though_its_client_hangs_up(service: Service, db_url: str) -> None:
    async with _blocked(service, db_url) as call:
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        # The next request is served after the server has noticed: what it does about it has happened by then.
        assert (await service.client.rpc("tools/list")).status == 200
    assert await eventually(service.count_tasks) == 1


async def test_what_is_stored_is_the_call_and_nothing_of_its_envelope(service: Service) -> None:
    client = service.client.with_(version=PUBLISHED, capabilities=TASKS | {"sampling": {}})
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01", "baggage": "a=b"}
    params = {
        "name": "job",
        "arguments": {"count": 3},
        "_meta": trace | {"progressToken": "p-1"},
        "inputResponses": {"name": {"action": "decline"}},
        "task": {"ttl": 1},
        "other": 1,
    }
    assert (await client.rpc("tools/call", params)).result["resultType"] == "task"
    row = await _request(service)
    assert row["params"] == '{"name":"job","arguments":{"count":3}}'
    assert json.loads(row["capabilities"]) == TASKS | {"sampling": {}}
    assert json.loads(row["trace_context"]) == trace
    assert (row["method"], row["revision"], row["reply"]) == ("tools/call", PUBLISHED, "task")
    assert (row["owner"], row["tool"]) == ("anonymous", "job")


async def test_a_call_without_arguments_has_none(service: Service) -> None:
    assert (await service.client.rpc("tools/call", {"name": "job"})).status == 200
    row = await _request(service)
    assert row["params"] == '{"name":"job","arguments":{}}'
    assert (row["revision"], row["trace_context"]) == (None, None)


@pytest.mark.parametrize("version", [None, DRAFT, PUBLISHED])
async def test_the_revision_is_stored_as_it_was_declared(service: Service, version: str | None) -> None:
    await service.client.with_(version=version).call("job")
    assert (await _request(service))["revision"] == version


async def test_the_policy_of_the_tool_is_copied_to_the_task(service: Service) -> None:
    await service.client.call("careful_job")
    row = await _request(service)
    assert (row["priority"], row["retention_ms"], row["answer_within_ms"]) == (3, 600_000, 604_800_000)


@pytest.mark.parametrize(
    "note",
    [
        r'"\u0000"',
        r'"a\u0000b\u001f\u007f"',
        "18446744073709551616",
        "-9223372036854775809",
        "1" + "0" * 400,
        "0.1",
        "1e-7",
        "-0.0",
        '"😀 \u202e שלום"',
        '{"":{"":[[]]},"b":1,"a":2}',
        "null",
        '"' + "x" * 1_000_000 + '"',
    ],
    ids=lambda text: text[:20].encode("ascii", "backslashreplace").decode(),
)
async def test_arguments_reach_the_worker_as_they_were_sent(service: Service, note: str) -> None:
    reply = await _raw_call(service, f'{{"note":{note}}}')
    assert reply.result["resultType"] == "task"
    claim = await service.claim()
    assert json.loads(claim.params) == json.loads(f'{{"name":"job","arguments":{{"note":{note}}}}}')
    assert claim.params.endswith(f'"note":{_unescaped(note)}}}}}')


async def _raw_call(service: Service, arguments: str) -> Reply:
    meta = json.dumps({"io.modelcontextprotocol/clientCapabilities": TASKS})
    params = f'{{"name":"job","arguments":{arguments},"_meta":{meta}}}'
    return await service.client.post(f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode())


def _unescaped(text: str) -> str:
    """As compact JSON is written: only what must be escaped is."""
    return text.replace(r"\u007f", "\x7f").replace("1e-7", "1e-07")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ('{"count":"three"}', "count"),
        ('{"count":1.5}', "count"),
        ('{"unknown":1}', "unknown"),
        (r'{"note":"\ud800"}', "note"),
        (r'{"note":{"deep":["\udfff"]}}', "note.deep[0]"),
    ],
)
async def test_arguments_that_do_not_fit_are_told_in_a_result_and_make_no_task(
    service: Service, arguments: str, field: str
) -> None:
    result = (await _raw_call(service, arguments)).result
    assert result["isError"] is True
    assert result["resultType"] == "complete"
    assert field in result["content"][0]["text"]
    assert "three" not in result["content"][0]["text"]
    assert await service.count_tasks() == 0


@pytest.mark.parametrize("arguments", ["null", "[]", '"count=1"', "7", "true"])
async def test_arguments_that_are_no_object_are_refused(service: Service, arguments: str) -> None:
    reply = await _raw_call(service, arguments)
    assert (reply.status, reply.error["code"]) == (400, -32602)
    assert "params.arguments" in reply.error["message"]
    assert await service.count_tasks() == 0


@pytest.mark.parametrize("version", [None, DRAFT, PUBLISHED])
@pytest.mark.parametrize("capabilities", [None, TASKS])
async def test_an_unknown_tool_is_refused_by_its_name(
    service: Service, version: str | None, capabilities: dict[str, Any] | None
) -> None:
    reply = await service.client.with_(version=version, capabilities=capabilities).call("invalid_tool_name")
    assert reply.refusal == (400, -32602, "Unknown tool: invalid_tool_name")


@pytest.mark.parametrize("name", ["", "Job", "job ", "\x00", "\ud800", "\n" * 10, "x" * 100_000])
async def test_a_name_that_cannot_be_a_tools_is_an_unknown_tool(service: Service, name: str) -> None:
    reply = await service.client.call(name)
    assert (reply.status, reply.error["code"]) == (400, -32602)
    assert reply.error["message"].startswith("Unknown tool: ")


@pytest.mark.parametrize("name", [None, 7, [], {}])
async def test_a_name_that_is_no_string_is_refused(service: Service, name: object) -> None:
    reply = await service.client.rpc("tools/call", {"name": name})
    assert (reply.status, reply.error["code"]) == (400, -32602)
    assert "params.name" in reply.error["message"]
