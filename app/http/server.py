"""The HTTP server of an API process: what is at which path, and how it starts and stops."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any, cast

from aiohttp import HttpVersion11, StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

from app.http import connections
from app.http.auth.metadata import ResourceMetadata
from app.http.connections import Connection
from app.http.endpoint import METHOD, Endpoint
from app.http.guards import Guard
from app.http.origins import let_read, preflight
from app.http.replies import Rejected, failure
from app.telemetry import logs
from app.wire.headers import Head

PATH = "/mcp"
MAX_BODY = 4 * 1024 * 1024
"""Bytes of a message."""

MAX_CONNECTIONS = 10_000
IDLE_SECONDS = 75.0
LAST_SECONDS = 0.1
"""For requests that have not ended though they were told to, and were given their time."""


class Server:
    """Serves the protocol on one address.

    Args:
        endpoint: answers the requests.
        guard: refuses those from the wrong place.
        metadata: tells clients where to get a token; None where they need none.
        max_body: bytes that a message may have.
        max_connections: how many clients may be connected; further ones are told 503, and hung up on.
        idle_seconds: how long a connection may be there without the whole head of a request.
        grace_seconds: how long requests that are being answered get when the server stops.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        guard: Guard | None = None,
        metadata: ResourceMetadata | None = None,
        *,
        max_body: int = MAX_BODY,
        max_connections: int = MAX_CONNECTIONS,
        idle_seconds: float = IDLE_SECONDS,
        grace_seconds: float = 10.0,
    ) -> None:
        self._endpoint, self._guard, self._metadata = endpoint, guard or Guard(), metadata
        self._max_connections, self._max_body = max_connections, max_body
        self._grace_seconds = grace_seconds
        self._options: dict[str, Any] = {
            "access_log": None,
            "keepalive_timeout": idle_seconds,
            "logger": connections.logger,
            "auto_decompress": False,  # compressed bodies are refused, and not unpacked for that
        }
        self._listening: asyncio.Server | None = None
        self._server: web.Server | None = None

    async def start(self, host: str, port: int, *, reuse_port: bool = False) -> int:
        """Listen; returns the port, which the system chose if 0 was given.

        Args:
            reuse_port: let other processes listen there too.

        Raises:
            OSError: the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        # A client that hangs up cancels what runs for it alone; writes that it asked for are carried through.
        self._server = web.Server(self._handle, request_factory=self._request, handler_cancellation=True)
        self._listening = await loop.create_server(
            self._connect, host, port, backlog=1024, reuse_address=True, reuse_port=reuse_port
        )
        bound: int = self._listening.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Take no further request, and let those that are being answered end."""
        if self._listening is not None:
            self._listening.close()
        if self._server is not None:
            await asyncio.sleep(0)  # those that have come begin
            self._server.pre_shutdown()
            await self._endpoint.stop(self._grace_seconds)
            await self._server.shutdown(LAST_SECONDS)

    def _connect(self) -> asyncio.BaseProtocol:
        """What speaks with a client that has just connected."""
        if self._server is None or len(self._server.connections) >= self._max_connections:
            return _Full()
        return Connection(self._server, loop=asyncio.get_running_loop(), **self._options)

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=self._max_body)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request, with one line in the log: never a task's id, an argument, or who called."""
        started = time.perf_counter()
        status = 499  # the client left
        try:
            response = await self._response(request)
            status = response.status
        finally:
            milliseconds = round((time.perf_counter() - started) * 1000, 1)
            method = request.get(METHOD, request.method)
            logs.line(__name__, "request", method=method, status=status, ms=milliseconds)
        return response

    async def _response(self, request: web.BaseRequest) -> web.StreamResponse:
        head = Head(request.headers.items())
        if (objection := self._guard.objection(head)) is not None:
            return failure(Rejected(403, objection), None, head)
        if (expected := head.get("expect")) and not await _goes_on(request, expected):
            refusal = Rejected(417, "Expectation failed: only 100-continue is known")
        elif (response := preflight(request)) is not None:
            let_read(head, response)
            return response
        elif request.path == PATH:
            return await self._endpoint.handle(request, head)
        elif self._metadata is not None and (document := self._metadata.answer(request)) is not None:
            return document
        else:
            refusal = Rejected(404, f"Not found: messages are sent to {PATH}")
        response = failure(refusal, None, head)
        let_read(head, response)
        return response


class _Full(asyncio.Protocol):
    """Turns a client away."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say so, and hang up."""
        writing = cast(asyncio.WriteTransport, transport)  # uvloop's is none of that class
        writing.write(
            b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        writing.close()


async def _goes_on(request: web.BaseRequest, expected: str) -> bool:
    """Let a client that waits for that send its body. What else may be expected is not known."""
    if {each.strip().lower() for each in expected.split(",")} != {"100-continue"}:
        return False
    if request.version >= HttpVersion11:  # to an older one it would be the response
        with suppress(ConnectionError):  # it has left
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # the response itself has not begun
    return True
