"""What goes over a connection, in bytes: replies in their order and with their heads, and clients that hang up."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

import pytest

from app.domain.task import Json
from app.methods.call import Call
from tests.http.scripted import Caller, connected, only, progress, said, scripted
from tests.support.raw_http import Answer, receive
from tests.support.waiting import eventually

SOON_SECONDS = 10.0
PAGE = "http://localhost:3000"
ORIGIN = f"Origin: {PAGE}\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def _in(call: Call) -> Json:
    if call.context.progress_token is not None:
        await call.notify(progress(call, 1))
    return said("in")


def message(method: str, request_id: int | None = 1, **meta: str) -> bytes:
    named = {} if request_id is None else {"id": request_id}
    return json.dumps({"jsonrpc": "2.0", **named, "method": method, "params": {"name": "it", "_meta": meta}}).encode()


def request(
    body: bytes | None = None, *more: str, line: str = "POST /mcp HTTP/1.1", kind: str = "application/json"
) -> bytes:
    """A request in bytes; `more` are further headers, each with its end."""
    body = message("tools/list") if body is None else body
    head = f"{line}\r\nHost: localhost\r\nContent-Type: {kind}\r\n{''.join(more)}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunked(body: bytes, *more: str) -> bytes:
    """One whose body does not say how long it is, and comes in one chunk."""
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{''.join(more)}"
    return b"%bTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (head.encode(), len(body), body)


LARGE = b" " * 2001
STREAM = message("tools/call", progressToken="p")

# -- replies ----------------------------------------------------------------------------------------------------------


async def test_a_result_says_who_sent_it_and_when_and_the_connection_goes_on() -> None:
    async with scripted(_in) as caller, connected(caller) as (reader, writer):
        for number in (1, 2):
            writer.write(request(message("tools/list", number)))
            answer = await asyncio.wait_for(receive(reader), SOON_SECONDS)
            assert (answer.status, json.loads(answer.body)["id"]) == (200, number)
            assert sorted(answer.headers) == ["Content-Length", "Content-Type", "Date", "Server"]
            assert answer.headers["Content-Type"] == "application/json"
            assert answer.headers["Server"] == "Perdure"
            assert abs(parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()) < 5


async def test_requests_that_are_sent_at_once_are_answered_in_their_order() -> None:
    sent = [
        (request(message("tools/list", 1)), 200, 1),
        (chunked(message("tools/call", 2)), 200, 2),
        (request(b"{"), 400, None),
        (request(message("notifications/heard", None)), 202, None),
        (request(message("tools/list", 3), ORIGIN), 200, 3),
        (request(message("tools/list", 4), line="POST /other HTTP/1.1"), 404, None),
        (chunked(LARGE), 413, None),
        (request(message("tools/list", 5)), 200, 5),
    ]
    async with scripted(_in, max_body=2000) as caller, connected(caller) as (reader, writer):
        writer.write(b"".join(each for each, _, _ in sent))
        for _, status, request_id in sent:
            answer = await asyncio.wait_for(receive(reader), SOON_SECONDS)
            assert answer.status == status
            assert (json.loads(answer.body).get("id") if answer.body else None) == request_id


@pytest.mark.parametrize(("line", "more"), [("HTTP/1.0", ""), ("HTTP/1.1", "Connection: close\r\n")])
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("/mcp", message("tools/list"), 200), ("/mcp", b"{", 400), ("/mcp", STREAM, 200), ("/other", b"", 404)],
)
async def test_a_client_that_does_not_keep_its_connection_gets_its_reply_and_the_connection_ends(
    line: str, more: str, path: str, body: bytes, status: int
) -> None:
    async with scripted(_in) as caller, connected(caller) as (reader, writer):
        writer.write(request(body, more, line=f"POST {path} {line}"))
        answer = await asyncio.wait_for(reader.read(), SOON_SECONDS)
        assert answer.startswith(f"{line} {status} ".encode())
        assert b"jsonrpc" in answer


async def test_an_older_client_may_keep_its_connection() -> None:
    sent = request(None, "Connection: keep-alive\r\n", line="POST /mcp HTTP/1.0")
    async with scripted(_in) as caller, connected(caller) as (reader, writer):
        for _ in range(2):
            writer.write(sent)
            answer = await asyncio.wait_for(receive(reader), SOON_SECONDS)
            assert (answer.status, answer.headers["Connection"]) == (200, "keep-alive")


@pytest.mark.parametrize("path", ["/mcp", "/other"])
async def test_a_reply_to_head_has_no_body(path: str) -> None:
    async with scripted(_in) as caller, connected(caller) as (reader, writer):
        writer.write(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() + request())
        assert b"\r\nContent-Length: " in await reader.readuntil(b"\r\n\r\n")
        assert (await asyncio.wait_for(receive(reader), SOON_SECONDS)).status == 200


@pytest.mark.parametrize("line", ["GET / HTTP/1.1", "POST /mcp/ HTTP/1.1", "DELETE /x HTTP/1.1", "OPTIONS * HTTP/1.1"])
async def test_another_path_is_not_found_and_the_right_one_is_named(line: str) -> None:
    answer = await _answer(request(b"", line=line))
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"]) == (404, -32600)
    assert error["message"].endswith("/mcp")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request(None, ORIGIN), 200),
        (request(message("notifications/heard", None), ORIGIN), 202),
        (request(b"{", ORIGIN), 400),
        (request(None, ORIGIN, line="POST /other HTTP/1.1"), 404),
        (request(None, ORIGIN, line="GET /mcp HTTP/1.1"), 405),
        (request(None, ORIGIN, "Accept: text/html\r\n"), 406),
        (request(LARGE, ORIGIN), 413),
        (chunked(LARGE, ORIGIN), 413),
        (request(None, ORIGIN, kind="text/plain"), 415),
        (request(None, ORIGIN, "Content-Encoding: gzip\r\n"), 415),
        (request(None, ORIGIN, "Expect: tea\r\n"), 417),
    ],
)
async def test_a_page_may_read_a_reply_of_any_kind(sent: bytes, status: int) -> None:
    answer = await _answer(sent)
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (status, PAGE)
    assert (answer.headers["Vary"], answer.headers["Server"]) == ("Origin", "Perdure")
    assert answer.headers["Date"]


async def test_a_page_may_read_a_stream() -> None:
    async with scripted(_in) as caller, connected(caller) as (reader, writer):
        writer.write(request(STREAM, ORIGIN))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SOON_SECONDS)
        assert f"\r\nAccess-Control-Allow-Origin: {PAGE}\r\n".encode() in head


async def _answer(sent: bytes) -> Answer:
    async with scripted(_in, max_body=2000) as caller, connected(caller) as (reader, writer):
        writer.write(sent)
        return await asyncio.wait_for(receive(reader), SOON_SECONDS)


async def test_a_body_of_unknown_length_that_comes_with_its_head_is_held_to_the_limit() -> None:
    assert (await _answer(chunked(message("tools/list").ljust(2000)))).status == 200
    answer = await _answer(chunked(message("tools/list").ljust(2001)))
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (413, -32600)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"NONSENSE\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n\r\n",
        request(None, "Host: localhost\r\n"),
        request(None, "Content-Type: text/plain\r\n"),
    ],
)
async def test_what_is_no_request_learns_nothing_of_what_answers(sent: bytes) -> None:
    answer = await _answer(sent)
    assert (answer.status, answer.headers["Server"]) == (400, "Perdure")


# -- bodies that wait to be asked for ---------------------------------------------------------------------------------


@pytest.mark.parametrize("expect", ["100-continue", "100-Continue", "100-continue, 100-continue"])
async def test_a_client_that_waits_to_send_its_body_is_told_to(expect: str) -> None:
    head, _, body = request(None, f"Expect: {expect}\r\n").partition(b"\r\n\r\n")
    async with scripted(_in) as caller, connected(caller) as (reader, writer):
        writer.write(head + b"\r\n\r\n")
        assert await asyncio.wait_for(reader.readexactly(len(CONTINUE)), SOON_SECONDS) == CONTINUE
        writer.write(body)
        assert (await asyncio.wait_for(receive(reader), SOON_SECONDS)).status == 200


@pytest.mark.parametrize(("line", "expect"), [("HTTP/1.1", ""), ("HTTP/1.0", "100-continue")])
async def test_one_that_does_not_wait_gets_only_its_reply(line: str, expect: str) -> None:
    assert (await _answer(request(None, f"Expect: {expect}\r\n", line=f"POST /mcp {line}"))).status == 200


# -- clients that hang up ---------------------------------------------------------------------------------------------


async def _at_once(caller: Caller, sent: bytes) -> None:
    async with connected(caller) as (_, writer):
        writer.write(sent)


async def _half(caller: Caller, sent: bytes) -> None:
    async with connected(caller) as (reader, writer):
        writer.write(sent)
        writer.write_eof()
        await asyncio.wait_for(reader.read(), SOON_SECONDS)


async def _in_the_middle(caller: Caller, sent: bytes) -> None:
    async with connected(caller) as (reader, writer):
        writer.write(sent)
        await asyncio.wait_for(reader.read(1), SOON_SECONDS)


@pytest.mark.parametrize("leaves", [_at_once, _half, _in_the_middle])
@pytest.mark.parametrize(
    "sent",
    [
        request(),
        request(None, ORIGIN),
        request(STREAM),
        request(STREAM, line="POST /mcp HTTP/1.0"),
        request(None, "Accept: text/event-stream\r\n"),
        request(None, "Expect: 100-continue\r\n"),
        request(b"{"),
        request(LARGE),
        request(line="POST /other HTTP/1.1"),
        request() * 50,
        request(STREAM) * 10,
    ],
)
async def test_clients_that_hang_up_leave_nothing_behind_and_are_no_error_of_ours(
    leaves: Callable[[Caller, bytes], asyncio.Future[None]], sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted(_in, max_body=2000) as caller:
        before = asyncio.all_tasks()
        await asyncio.gather(*(leaves(caller, sent) for _ in range(12)))
        await eventually(only(before))
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
