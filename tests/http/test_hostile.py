"""What a client can do to harm others, and how far it comes: connections, heads, bodies, rates, forged lines.

Damaged messages are thrown in `test_robustness.py`, what HTTP has statuses for is in `test_endpoint.py`.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack, suppress
from typing import Any
from uuid import uuid4

import pytest
import uvloop

from app.domain.task import Json
from app.http.auth.access import Access
from app.http.auth.api_keys import ApiKeys, line, new_key
from app.methods.call import Call
from app.methods.limits import Limits
from app.telemetry import logs
from app.tools.context import ToolContext
from app.tools.registry import tool
from app.wire.tasks import MAX_ANSWERS
from tests.http.scripted import Gate, connected, said, scripted
from tests.support.rpc import PUBLISHED, TASKS
from tests.support.service import Service, serving, serving_with_worker
from tests.support.subscriber import subscribed
from tests.support.waiting import eventually

SOON_SECONDS = 20.0
HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def _in(_: Call) -> Json:
    return said("in")


# -- connections ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_too_many_is_told_so_and_closed_and_the_others_go_on(loop: str) -> None:
    async def crowd() -> None:
        async with scripted(_in, max_connections=2) as caller:
            assert (await caller.start()).status == 200
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(connected(caller))
                for _ in range(3):
                    reader, _ = await stack.enter_async_context(connected(caller))
                    answer = await asyncio.wait_for(reader.read(), SOON_SECONDS)
                    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
                    assert b"\r\nRetry-After: 1\r\n" in answer
                assert (await caller.start()).status == 200

            async def room() -> bool:
                async with connected(caller) as (reader, writer):
                    writer.write(HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}")
                    return b" 400 " in await asyncio.wait_for(reader.readline(), SOON_SECONDS)

            await eventually(room)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(crowd())


@pytest.mark.parametrize("sent", [b"", b"P", HEAD, HEAD + b"Content-Length: 2\r\n"])
async def test_a_head_that_does_not_come_is_not_waited_for(sent: bytes) -> None:
    async with scripted(_in, idle_seconds=0.3) as caller, connected(caller) as (reader, writer):
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), SOON_SECONDS) == b""


async def test_a_head_that_comes_byte_by_byte_is_not_waited_for_either() -> None:
    async with scripted(_in, idle_seconds=0.5) as caller, connected(caller) as (reader, writer):
        ended = asyncio.create_task(reader.read())

        async def trickled() -> bool:
            with suppress(ConnectionError):
                writer.write(b"X")
                await writer.drain()
            return ended.done()

        await eventually(trickled, seconds=SOON_SECONDS)


async def test_a_connection_that_is_not_used_any_more_is_closed() -> None:
    async with scripted(_in, idle_seconds=0.3) as caller, connected(caller) as (reader, writer):
        writer.write(HEAD + b"Content-Length: 2\r\n\r\n{}")
        answer = await asyncio.wait_for(reader.read(), SOON_SECONDS)
        assert answer.startswith(b"HTTP/1.1 400 ")


async def test_one_whose_answer_takes_long_is_not_closed_as_idle() -> None:
    gate = Gate()
    async with scripted(gate, idle_seconds=0.2) as caller:
        waiting = asyncio.create_task(caller.start())
        await gate.entered.wait()
        await asyncio.sleep(0.5)  # longer than a connection may be idle
        gate.open.set()
        assert (await waiting).status == 200


# -- heads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rest",
    [
        b"".join(b"X-%d: y\r\n" % number for number in range(200)) + b"\r\n",
        b"X: " + b"y" * 20_000 + b"\r\n\r\n",
        b"X" * 20_000 + b": y\r\n\r\n",
        b"X: y\r\n\x0b: z\r\n\r\n",
        b"X: a\x00b\r\n\r\n",
        b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
    ],
)
async def test_a_head_beyond_all_bounds_is_refused_and_harms_nobody(rest: bytes) -> None:
    async with scripted(_in) as caller:
        async with connected(caller) as (reader, writer):
            writer.write(HEAD + rest)
            assert b" 400 " in await asyncio.wait_for(reader.readline(), SOON_SECONDS)
        assert (await caller.start()).status == 200


async def test_an_address_beyond_all_bounds_is_refused() -> None:
    async with scripted(_in) as caller, connected(caller) as (reader, writer):
        writer.write(b"POST /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 400 " in await asyncio.wait_for(reader.readline(), SOON_SECONDS)


# -- bodies -----------------------------------------------------------------------------------------------------------

LARGE = 4_000_000
BODIES = {
    "many keys": "{" + ",".join(f'"{number}":0' for number in range(LARGE // 12)) + "}",
    "the same key": "{" + ",".join(['"a":0'] * (LARGE // 8)) + "}",
    "one long key": '{"' + "k" * LARGE + '":0}',
    "one long text": '"' + "x" * LARGE + '"',
    "many escapes": '"' + r"\u0000" * (LARGE // 6) + '"',
    "many items": "[" + "0," * (LARGE // 2) + "0]",
    "many objects": "[" + "{}," * (LARGE // 3) + "{}]",
    "a long number": "1" * LARGE,
    "a long fraction": "0." + "1" * LARGE,
    "a large exponent": "1e" + "9" * 1000,
    "deep arrays": "[" * (LARGE // 2) + "]" * (LARGE // 2),
    "deep objects": '{"a":' * (LARGE // 6) + "0" + "}" * (LARGE // 6),
    "brackets in texts": '["' + "[" * LARGE + '"]',
    "many quotes": '"' + r"\"" * (LARGE // 2) + '"',
}


@pytest.mark.parametrize("kind", BODIES)
async def test_a_large_body_of_any_kind_is_answered_soon_and_makes_no_task_of_what_it_should_not(
    service: Service, kind: str
) -> None:
    call = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"job","arguments":{"count":%s}}}'
    began = time.monotonic()
    reply = await service.client.post((call % BODIES[kind]).encode())
    assert time.monotonic() - began < SOON_SECONDS
    assert reply.status == 400 or reply.result["isError"] is True
    assert len(reply.body) < 4000
    assert await service.count_tasks() == 0


async def test_a_request_brings_only_so_many_answers(db_url: str) -> None:
    @tool(starts="request")
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        return str(await ctx.elicit("name", "Who?", {"type": "object", "properties": {"name": {"type": "string"}}}))

    many = {f"key {number}": {"action": "decline"} for number in range(MAX_ANSWERS + 1)}
    fewer = dict(list(many.items())[1:])
    async with serving_with_worker(db_url, ask) as service:
        client = service.client.with_(capabilities={"elicitation": {}} | TASKS)
        asked = (await client.call("ask")).result
        for method, params in (
            ("tools/call", {"name": "ask", "arguments": {}}),
            ("tools/call", {"name": "ask", "arguments": {}, "requestState": asked["requestState"]}),
            ("tasks/update", {"taskId": str(uuid4())}),
        ):
            reply = await client.rpc(method, params | {"inputResponses": many})
            assert (reply.status, reply.error["code"]) == (400, -32602)
            assert "params.input" in reply.error["message"]
            assert str(MAX_ANSWERS) in reply.error["message"]
        assert await service.count_tasks() == 1
        retried = {"name": "ask", "arguments": {}, "requestState": asked["requestState"], "inputResponses": fewer}
        assert (await client.rpc("tools/call", retried)).result["resultType"] == "input_required"


# -- rates ------------------------------------------------------------------------------------------------------------


async def test_who_calls_too_often_is_told_to_wait_and_may_go_on_reading(db_url: str) -> None:
    now = [1000.0]
    limits = {"calls_per_minute": 60, "clock": lambda: now[0]}
    keys = {name: new_key() for name in ("ada", "eve")}
    access = Access(ApiKeys(",".join(line(name, key) for name, key in keys.items())))
    async with serving(db_url, access=access, limits=limits) as service:
        ada, eve = (service.client.with_(token=key) for key in keys.values())
        task_id = (await ada.call("job")).result["taskId"]
        for _ in range(59):
            await ada.call("greet", name="Eve")
        reply = await ada.call("greet", name="Eve")
        assert reply.refusal == (429, -32603, "Too many calls: 60 a minute are allowed; call more slowly")
        assert reply.headers["Retry-After"] == "1"
        assert (await ada.call("no such tool")).status == 429
        for _ in range(100):
            assert (await ada.rpc("tasks/get", {"taskId": task_id})).status == 200
        assert (await ada.rpc("tools/list")).status == 200
        async with subscribed(ada, task_id) as subscriber:
            await subscriber.next()
        assert (await ada.rpc("tasks/cancel", {"taskId": task_id})).status == 200
        assert (await eve.call("greet", name="Ada")).status == 200
        now[0] += 2
        assert [(await ada.call("greet", name="Eve")).status for _ in range(3)] == [200, 200, 429]
        now[0] += 3600
        assert [(await ada.call("greet", name="Eve")).status for _ in range(61)] == [200] * 60 + [429]


async def test_owners_that_nobody_knew_before_cost_no_memory_without_end(service: Service) -> None:
    limits = Limits(service.store)
    for number in range(10_500):
        limits.call(f"owner {number}")
    assert len(limits._buckets) == 10_000


# -- forged lines -----------------------------------------------------------------------------------------------------

FORGED = 'x\r\n\r\nevent: message\ndata: {}\n\n{"level":"error","event":"forged"}\x1b[2J\u2028\x85'


@tool
async def tell(ctx: ToolContext, text: str) -> str:
    """Say something while working, and at the end."""
    await ctx.status(text)
    ctx.log.info(text, said=text)
    return text


async def test_a_status_message_cannot_end_an_event_of_a_stream(db_url: str) -> None:
    async with serving_with_worker(db_url, tell) as service:
        task_id = (await service.client.call("tell", text=FORGED)).result["taskId"]
        async with subscribed(service.client, task_id) as subscriber:  # which reads it as strictly as can be
            task = await subscriber.until(status="completed")
        assert task["result"]["content"][0]["text"] == FORGED
        waiting = service.client.with_(capabilities=None)
        body, headers = waiting.request("tools/call", {"name": "tell", "arguments": {"text": FORGED}})
        reply = await waiting.post(body, headers | {"Accept": "text/event-stream"})
        assert reply.result["content"][0]["text"] == FORGED


@pytest.mark.parametrize("style", ["console", "json"])
async def test_nothing_that_a_client_sends_forges_a_line_of_the_log(
    db_url: str, style: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure(style, "debug")
    async with serving_with_worker(db_url, tell) as service:
        await service.client.call("tell", text=FORGED)
        task_id = (await service.client.call("tell", text=FORGED)).result["taskId"]

        async def done() -> bool:
            return bool((await service.read(task_id))["status"] == "completed")

        await eventually(done)
        await service.client.rpc(FORGED)
        await service.client.rpc("tools/call", {"name": FORGED})
        await service.client.rpc("tasks/get", {"taskId": FORGED})
        await service.client.with_(version=FORGED.encode("unicode_escape").decode()).rpc("server/discover")
        encoded = service.client.with_(version=PUBLISHED)
        await encoded.rpc("tools/call", {"name": FORGED})
    written = capsys.readouterr().err
    assert "forged" in written
    for written_line in written.splitlines():
        assert written_line.isprintable(), written_line
        if style == "json":
            assert json.loads(written_line)["event"] != "forged"


@pytest.mark.parametrize("header", ["X-Odd", "Mcp-Method", "Idempotency-Key", "Accept", "Origin", "Authorization"])
@pytest.mark.parametrize(
    "value", [b"forged\xff", b"=?base64?DQpTZXQtQ29va2llOiBmb3JnZWQ=?=", b"forged, forged; q=\xe2\x80\xa8"]
)
async def test_a_header_comes_back_in_no_header(header: str, value: bytes) -> None:
    async with scripted(_in) as caller, connected(caller) as (reader, writer):
        writer.write(HEAD + header.encode() + b": " + value + b"\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
        answer = await asyncio.wait_for(reader.read(), SOON_SECONDS)
        assert answer.startswith(b"HTTP/1.1 4")
        assert b"forged" not in answer.lower()


async def test_a_header_that_is_none_is_refused_by_http_itself() -> None:
    async with scripted(_in) as caller, connected(caller) as (reader, writer):
        writer.write(HEAD + b"Authorization: Bearer z\x1b[2J\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), SOON_SECONDS)
        assert b" 400 " in answer.splitlines()[0]
        assert b"\x1b" not in answer
