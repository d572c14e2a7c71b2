"""Replies that take their time (core, "Receiving Messages", "Cancellation")."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from structlog.testing import capture_logs

from app.domain.task import Json
from app.errors import ErrorKind, ProtocolError, Refusal
from app.methods.call import Call
from app.methods.local import LocalTools
from app.tools.registry import tool
from tests.http.scripted import LARGE, Caller, Gate, only, progress, said, scripted, sent
from tests.support.waiting import eventually

# -- which form a reply takes -----------------------------------------------------------------------------------------


async def test_a_quick_call_is_answered_with_plain_json() -> None:
    async def quick(_: Call) -> Json:
        await asyncio.sleep(0)
        return said("done")

    async with scripted(quick, keepalive_seconds=60) as client:
        await client.start()
        connected = asyncio.all_tasks()
        reply = await client.start()
        assert reply.headers["Content-Type"] == "application/json"
        assert reply.result["content"][0]["text"] == "done"
        await eventually(only(connected))  # nothing waits to keep it alive


async def test_a_slow_call_becomes_a_stream_that_says_that_it_lives() -> None:
    gate = Gate()
    clock = asyncio.get_running_loop().time
    async with scripted(gate, keepalive_seconds=0.05) as client:
        started = clock()
        async with client.opened() as reply:
            assert [await reply.block() for _ in range(3)] == [b": keep-alive\n\n"] * 3
            assert clock() - started > 0.14
            headers = reply.response.headers
            gate.open.set()
            whole = await reply.rest()
    assert whole.result["content"][0]["text"] == "done"
    assert whole.keepalives >= 3
    assert headers["Content-Type"] == "text/event-stream"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Accel-Buffering"] == "no"


async def test_notifications_come_at_once_and_in_order_before_the_response() -> None:
    gate = Gate()

    async def steps(call: Call) -> Json:
        for reached in range(50):
            await call.notify(progress(call, reached))
        return await gate(call)

    async with scripted(steps) as client, client.opened(progressToken="p") as reply:
        for reached in range(50):
            data = (await reply.block()).split(b"data: ")[1]
            assert json.loads(data)["params"] == {"progressToken": "p", "progress": reached}
        assert not gate.open.is_set()
        gate.open.set()
        whole = await reply.rest()
    assert [each["params"]["progress"] for each in whole.notifications] == list(range(50))
    assert whole.keepalives == 0


async def test_notifications_from_many_sides_are_whole_events() -> None:
    text = "x" * 100_000

    async def steps(call: Call) -> Json:
        reached = iter(range(100))

        async def side() -> None:
            for _ in range(10):
                message = json.loads(progress(call, next(reached)))
                message["params"]["message"] = text
                await call.notify(Json(json.dumps(message)))

        await asyncio.gather(*(side() for _ in range(10)))
        return said("done")

    async with scripted(steps, keepalive_seconds=0.001) as client:
        reply = await client.start(progressToken=1)
    assert [each["params"]["progress"] for each in reply.notifications] == list(range(100))


async def test_a_tool_that_gives_up_on_a_notification_harms_no_other() -> None:
    async def steps(call: Call) -> Json:
        sides = [asyncio.ensure_future(call.notify(_large(call, reached))) for reached in range(2)]
        await asyncio.wait(sides, timeout=0.1)
        sides[0].cancel()
        await asyncio.sleep(0)
        unread.set()
        await sides[1]
        return said("done")

    unread = asyncio.Event()
    async with scripted(steps) as client, client.opened(progressToken=1) as reply:
        await unread.wait()
        whole = await reply.rest()
    assert [each["params"]["progress"] for each in whole.notifications] == [0, 1]


async def test_notifications_do_not_pile_up_for_a_client_that_does_not_read() -> None:
    async def steps(call: Call) -> Json:
        sides = [asyncio.ensure_future(call.notify(_large(call, reached))) for reached in range(3)]
        await asyncio.wait(sides, timeout=0.1)
        unread.set()
        return said("done")

    unread = asyncio.Event()
    async with scripted(steps) as client, client.opened(progressToken=1) as reply:
        await unread.wait()
        whole = await reply.rest()
    assert [each["params"]["progress"] for each in whole.notifications] == [0]


def _large(call: Call, reached: float) -> Json:
    message = json.loads(progress(call, reached))
    message["params"]["message"] = "x" * (LARGE // 2)
    return Json(json.dumps(message))


async def test_a_client_that_takes_only_json_gets_it_however_long_it_takes() -> None:
    gate = Gate()

    async def steps(call: Call) -> Json:
        if call.context.progress_token:
            await call.notify(progress(call, 1))
        return await gate(call)

    async with scripted(steps, keepalive_seconds=0.01) as client, client.opened() as beside:
        entered = asyncio.create_task(_opened_with_json(client, gate))
        for _ in range(10):
            await beside.block()
        gate.open.set()
        await entered


async def _opened_with_json(client: Caller, gate: Gate) -> None:
    async with client.opened("application/json", progressToken="p") as reply:
        assert gate.open.is_set()  # not even the head of the reply came before
        whole = await reply.rest()
        assert whole.headers["Content-Type"] == "application/json"
        assert whole.result["content"][0]["text"] == "done"


async def test_a_client_that_takes_only_streams_gets_results_in_streams_and_errors_with_their_status() -> None:
    async def quick(_: Call) -> Json:
        return said("done")

    only = {"Accept": "text/event-stream"}
    async with scripted(quick) as client:
        for method, params in (("tools/call", {"name": "it"}), ("tools/list", {})):
            body, headers = client.request(method, params)
            reply = await client.post(body, headers | only)
            assert reply.streamed
            assert reply.keepalives == 0
        body, headers = client.request("no/such/method", {})
        assert (await client.post(body, headers | only)).refusal[:2] == (404, -32601)


async def test_only_calls_are_streamed() -> None:
    async with scripted(Gate(), keepalive_seconds=0.0) as client:
        reply = await client.rpc("tools/list")
        assert not reply.streamed


async def test_a_client_that_speaks_http_1_0_gets_a_stream_that_ends_with_the_connection() -> None:
    gate = Gate()
    async with scripted(gate, keepalive_seconds=0.01) as client, sent(client, http="1.0") as reader:
        await reader.readuntil(b"\r\n\r\n: keep-alive\n\n")
        gate.open.set()
        rest = await asyncio.wait_for(reader.read(), 10)
        assert rest.split(b"data: ")[1].endswith(b"}\n\n")


async def test_one_that_would_keep_the_connection_gets_the_same() -> None:
    async def steps(call: Call) -> Json:
        await call.notify(progress(call, 1))
        return said("done")

    async with (
        scripted(steps) as client,
        sent(client, http="1.0", connection="keep-alive", progressToken="p") as reader,
    ):
        reply = await asyncio.wait_for(reader.read(), 10)
        assert reply.startswith(b"HTTP/1.0 200 OK\r\n")
        assert reply.split(b"data: ")[2].endswith(b"}\n\n")


# -- what is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["a\nb", "a\rb", "a\r\n\r\nb", "\n\ndata: {}\n\n", "\u2028\u2029\x85", "\x00", "\U0001f600"]
)
async def test_no_text_can_end_an_event(text: str) -> None:
    async def steps(call: Call) -> Json:
        message = json.loads(progress(call, 1))
        message["params"]["message"] = text
        await call.notify(Json(json.dumps(message, ensure_ascii=False)))
        return said(text)

    async with scripted(steps) as client:
        reply = await client.start(progressToken=1)
    assert reply.result["content"][0]["text"] == text
    assert [each["params"]["message"] for each in reply.notifications] == [text]


async def test_a_result_that_was_stored_with_line_breaks_is_one_event() -> None:
    async def steps(call: Call) -> Json:
        await call.notify(progress(call, 1))
        return Json(json.dumps(json.loads(said("done")), indent=1).replace("\n", "\r\n"))

    async with scripted(steps) as client:
        reply = await client.start(progressToken=1)
    assert reply.streamed
    assert reply.result["content"][0]["text"] == "done"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refusal(ErrorKind.INVALID_PARAMS, "Wrong"), -32602),
        (ProtocolError(4711, "Out of paper", {"tray": 2}), 4711),
        (RuntimeError("secret-detail"), -32603),
    ],
)
async def test_an_error_after_the_stream_has_begun_is_its_last_event(error: Exception, code: int) -> None:
    async def fails(call: Call) -> Json:
        await call.notify(progress(call, 1))
        raise error

    async with scripted(fails) as client:
        reply = await client.start(progressToken=1)
        assert (reply.status, reply.streamed, reply.error["code"]) == (200, True, code)
        assert "secret" not in str(reply.error)


async def test_an_error_before_anything_was_sent_has_its_status() -> None:
    async def fails(_: Call) -> Json:
        raise Refusal(ErrorKind.INVALID_PARAMS, "Wrong")

    async with scripted(fails) as client:
        assert (await client.start(progressToken=1)).refusal == (400, -32602, "Wrong")


async def test_what_is_notified_after_the_response_is_dropped() -> None:
    left = []

    async def leaves_something_behind(call: Call) -> Json:
        async def later() -> None:
            await gone.wait()
            await call.notify(progress(call, 2))

        await call.notify(progress(call, 1))
        left.append(asyncio.create_task(later()))
        return said("done")

    gone = asyncio.Event()
    async with scripted(leaves_something_behind) as client:
        reply = await client.start(progressToken=1)
        gone.set()
        await asyncio.gather(*left)
        assert len(reply.notifications) == 1
        assert (await client.rpc("tools/list")).status == 200


async def test_streams_of_one_server_do_not_disturb_each_other() -> None:
    gates = {"a": Gate(), "b": Gate()}

    async def steps(call: Call) -> Json:
        token = str(call.context.progress_token)
        for reached in range(10):
            await call.notify(progress(call, reached))
        await gates[token](call)
        await call.notify(progress(call, 10))
        return said(token)

    async with scripted(steps) as client, client.opened(progressToken="a") as a, client.opened(progressToken="b") as b:
        for _ in range(10):
            assert b'"a"' in await a.block()
            assert b'"b"' in await b.block()
        for token, opened in (("b", b), ("a", a)):
            gates[token].open.set()
            reply = await opened.rest()
            assert reply.result["content"][0]["text"] == token
            assert len(reply.notifications) == 11


# -- clients that leave -----------------------------------------------------------------------------------------------


async def test_a_client_that_leaves_before_anything_was_sent_cancels_the_call() -> None:
    gate = Gate()
    async with scripted(gate) as client:
        call = asyncio.create_task(client.start())
        await gate.entered.wait()
        call.cancel()
        await asyncio.wait_for(gate.cancelled.wait(), 10)


async def test_a_client_that_leaves_in_the_middle_of_a_stream_cancels_the_call() -> None:
    gate = Gate()
    async with scripted(gate, keepalive_seconds=0.01) as client:
        async with client.opened() as reply:
            await reply.block()
            assert not gate.cancelled.is_set()
        await asyncio.wait_for(gate.cancelled.wait(), 10)


async def test_a_tool_sees_that_its_caller_has_left_and_may_clean_up(caplog: pytest.LogCaptureFixture) -> None:
    seen = asyncio.Event()
    entered = asyncio.Event()

    @tool(task="never")
    async def wait() -> str:
        """Wait for nothing."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            seen.set()
        return ""

    local = LocalTools(threads=1)
    with capture_logs() as logs, caplog.at_level(logging.INFO, "app.http.server"):
        async with scripted(lambda call: local.run(call, wait, {})) as client:
            call = asyncio.create_task(client.start())
            await entered.wait()
            call.cancel()
            await asyncio.wait_for(seen.wait(), 10)
    local.close()
    assert [(line["event"], line["method"], line["status"]) for line in logs] == [("request", "tools/call", 499)]


async def test_nothing_of_a_call_is_left_when_its_client_has(caplog: pytest.LogCaptureFixture) -> None:
    async def notifies_to_the_end(call: Call) -> Json:
        try:
            await gate(call)
        finally:
            await call.notify(progress(call, 1))
        raise AssertionError("it was not cancelled")

    gate = Gate()
    with capture_logs() as logs, caplog.at_level(logging.INFO, "app.http.server"):
        async with scripted(notifies_to_the_end, keepalive_seconds=0.01) as client:
            before = asyncio.all_tasks()
            async with client.opened(progressToken=1) as reply:
                await reply.block()
            await eventually(only(before))
    assert [line["log_level"] for line in logs] == ["info"]


async def test_a_client_that_does_not_read_holds_up_nobody_and_not_for_ever() -> None:
    ended = asyncio.Event()

    async def floods(call: Call) -> Json:
        if call.context.progress_token == "quick":
            return said("done")
        try:
            await call.notify(_large(call, 1))
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("it was not cancelled")

    async with scripted(floods, write_seconds=1.0) as client, sent(client, progressToken="slow") as reader:
        await reader.readline()
        assert (await client.start(progressToken="quick")).status == 200
        assert not ended.is_set()
        await asyncio.wait_for(ended.wait(), 10)


async def test_a_large_plain_reply_that_nobody_reads_is_not_kept_for_ever() -> None:
    async def large(_: Call) -> Json:
        return said("x" * LARGE)

    async with scripted(large, write_seconds=0.2) as client:
        before = asyncio.all_tasks()
        async with sent(client, accept="application/json") as reader:
            await reader.readline()
            await eventually(only(before))


async def test_a_client_that_reads_slowly_gets_all_of_a_large_reply() -> None:
    async def large(_: Call) -> Json:
        return said("x" * LARGE)

    async with scripted(large, write_seconds=0.3) as client, client.opened() as reply:
        started, read = asyncio.get_running_loop().time(), 0
        while some := await reply.response.content.read(256 * 1024):
            read += len(some)
            await asyncio.sleep(0.02)
        assert read > LARGE
        assert asyncio.get_running_loop().time() - started > 2 * 0.3
