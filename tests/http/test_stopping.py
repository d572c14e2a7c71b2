"""Requests that are being answered when the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import aiohttp
import pytest

from app.domain.task import Json
from app.http import stopping
from app.methods.call import Call
from tests.http.scripted import LARGE, Caller, Gate, connected, said, scripted, sent
from tests.support.waiting import eventually


async def test_a_stream_that_ends_within_the_grace_ends_with_its_result() -> None:
    gate = Gate()
    async with scripted(gate, keepalive_seconds=0.01) as client, client.opened() as reply:
        await reply.block()
        stopped = asyncio.create_task(client.server.stop())
        await eventually(_refuses_connections(client))
        for _ in range(3):
            await reply.block()
        gate.open.set()
        assert (await reply.rest()).result["content"][0]["text"] == "done"
        await asyncio.wait_for(stopped, 5)


async def test_a_stream_that_takes_longer_than_the_grace_ends_with_an_error_and_its_call_is_cancelled() -> None:
    gate = Gate()
    async with scripted(gate, keepalive_seconds=0.01, grace_seconds=0.05) as client, client.opened() as reply:
        await reply.block()
        await asyncio.wait_for(client.server.stop(), 5)
        assert gate.cancelled.is_set()
        error = (await reply.rest()).error
        assert (error["code"], error["message"]) == (-32603, "The server is stopping. Send the request again.")


async def test_a_call_that_takes_longer_than_the_grace_is_answered_with_an_error_when_it_has_cleaned_up() -> None:
    gate = Gate(clean_up_seconds=0.5)
    async with scripted(gate, grace_seconds=0.05) as client:
        call = asyncio.create_task(client.start())
        await gate.entered.wait()
        await asyncio.wait_for(client.server.stop(), 5)
        assert gate.cancelled.is_set()
        assert (await call).refusal == (503, -32603, "The server is stopping. Send the request again.")


async def test_a_body_that_does_not_come_does_not_hold_up_a_server_that_stops() -> None:
    async with scripted(Gate(), grace_seconds=0.05) as client, connected(client) as (reader, writer):
        writer.write(
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        assert (await client.rpc("tools/list")).status == 200
        await asyncio.wait_for(client.server.stop(), 5)
        assert (await reader.readline()).split()[1] == b"503"


async def test_neither_a_call_nor_a_client_that_will_not_end_holds_up_a_server_that_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def endless(call: Call) -> Json:
        if call.context.progress_token == "slow":
            return said("x" * LARGE)
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                entered.set()
                await released.wait()
        return said("done")

    entered, released = asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(stopping, "LAST_SECONDS", 0.1)
    async with scripted(endless, grace_seconds=0.05) as client, sent(client, progressToken="slow") as reader:
        await reader.readline()
        call = asyncio.create_task(client.start())
        await entered.wait()
        await asyncio.wait_for(client.server.stop(), 10)
        released.set()
        with suppress(OSError, aiohttp.ClientError):
            await call


def _refuses_connections(client: Caller) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        try:
            async with connected(client):
                return False
        except ConnectionError:
            return True

    return look
