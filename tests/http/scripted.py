"""An API whose one tool is a function of the test's, without a database: what HTTP itself does with a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from app.domain.task import Json
from app.http.auth.access import Access
from app.http.endpoint import Endpoint
from app.http.server import PATH, Server
from app.methods.call import Call, Handler
from app.methods.dispatch import ALWAYS, Method, Methods
from app.wire.envelope import dumps
from app.wire.server_info import RESULT_META
from tests.support.rpc import PUBLISHED, Client, Reply
from tests.support.service import HOST

LARGE = 32 * 1024 * 1024
"""Bytes that no socket's buffers hold."""


class Gate:
    """A tool that waits until the test lets it go on, and notes what happens to it."""

    def __init__(self, clean_up_seconds: float = 0) -> None:
        self._clean_up_seconds = clean_up_seconds
        self.entered, self.open, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, call: Call) -> Json:
        self.entered.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(self._clean_up_seconds)
            self.cancelled.set()
            raise
        return said("done")


class Scripted(Methods):
    """Serves tools/call as the test says, and an empty tools/list."""

    def __init__(self, call: Handler) -> None:
        self._stops = ()
        self._label = _any_tool
        self.table = {"tools/call": Method(call, ALWAYS), "tools/list": Method(_no_tools, ALWAYS)}


class Opened:
    """A reply that is read piece by piece."""

    def __init__(self, client: Client, response: aiohttp.ClientResponse, body: bytes, headers: dict[str, str]) -> None:
        self.response = response
        self._client, self._body, self._headers = client, body, headers
        self._received = b""

    async def block(self) -> bytes:
        """The next event or comment of the stream."""
        block = await self.response.content.readuntil(b"\n\n")
        self._received += block
        return block

    async def rest(self) -> Reply:
        """The whole reply, checked, once the server has ended it."""
        return await self._client.receive(self.response, self._body, self._headers, received=self._received)


@dataclass(frozen=True)
class Caller(Client):
    """A client of the published revision that calls the one tool.

    Attributes:
        server: what it calls.
    """

    server: Server = field(kw_only=True)

    async def start(self, **meta: Any) -> Reply:
        """Call it, and wait for the reply."""
        return await self.rpc("tools/call", {"name": "it", "_meta": meta})

    @asynccontextmanager
    async def opened(self, accept: str | None = None, **meta: Any) -> AsyncIterator[Opened]:
        """Call it, and read the reply piece by piece; leaving closes the connection."""
        body, headers = self.request("tools/call", {"name": "it", "_meta": meta})
        headers |= {"Accept": accept} if accept else {}
        async with self.sending(body, headers) as response:
            yield Opened(self, response, body, headers)
            response.close()


@asynccontextmanager
async def scripted(
    call: Handler,
    *,
    access: Access | None = None,
    keepalive_seconds: float = 5.0,
    write_seconds: float = 30.0,
    grace_seconds: float = 10.0,
    **options: Any,
) -> AsyncIterator[Caller]:
    """Serve a function as tools/call, and stop; `options` are the server's."""
    endpoint = Endpoint(Scripted(call), access, keepalive_seconds=keepalive_seconds, write_seconds=write_seconds)
    server = Server(endpoint, grace_seconds=grace_seconds, **options)
    port = await server.start(HOST, 0)
    try:
        async with aiohttp.ClientSession() as session:
            yield Caller(session, f"http://{HOST}:{port}{PATH}", version=PUBLISHED, capabilities={}, server=server)
    finally:
        await server.stop()


def said(text: str) -> Json:
    """The result that says this."""
    content = [{"type": "text", "text": text}]
    return dumps({"resultType": "complete", "content": content, "_meta": RESULT_META})


def progress(call: Call, reached: float) -> Json:
    """A notification of the call's progress."""
    params = {"progressToken": call.context.progress_token, "progress": reached}
    return dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def _any_tool(_: dict[str, Any]) -> str:
    return "scripted"


async def _no_tools(_: Call) -> Json:
    for _round in range(5):
        await asyncio.sleep(0)
    return dumps({"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "public", "_meta": RESULT_META})


def only(tasks: set[asyncio.Task[object]]) -> Callable[[], Awaitable[bool]]:
    """Whether no task runs beside these."""

    async def look() -> bool:
        return asyncio.all_tasks() <= tasks

    return look


@asynccontextmanager
async def sent(
    client: Caller, accept: str = "*/*", http: str = "1.1", connection: str = "", **meta: str
) -> AsyncIterator[asyncio.StreamReader]:
    """Call the tool on a connection of its own, for a test that reads what it wants of the reply."""
    body, headers = client.request("tools/call", {"name": "it", "_meta": meta})
    headers |= {"Host": "localhost", "Content-Type": "application/json", "Accept": accept, "Connection": connection}
    lines = [f"{name}: {value}" for name, value in headers.items()]
    async with connected(client) as (reader, writer):
        head = "\r\n".join([f"POST /mcp HTTP/{http}", *lines, f"Content-Length: {len(body)}", "", ""])
        writer.write(head.encode() + body)
        yield reader


@asynccontextmanager
async def connected(client: Caller) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(HOST, urlsplit(client.url).port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()
