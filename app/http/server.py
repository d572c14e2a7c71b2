"""The HTTP server of an API process: its application, and how it starts and stops."""

from __future__ import annotations

import asyncio
import time
from typing import cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from app.http import connections
from app.http.auth.metadata import ResourceMetadata
from app.http.endpoint import METHOD, Endpoint
from app.http.guards import Guard
from app.http.origins import FOREIGN, finish_head, preflight
from app.http.replies import Rejected, failure
from app.telemetry import logs

PATH = "/mcp"
MAX_BODY = 4 * 1024 * 1024
"""Bytes of a message."""

MAX_CONNECTIONS = 10_000
IDLE_SECONDS = 75.0


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
        app = web.Application(client_max_size=max_body, middlewares=[log_requests, _guarded(guard or Guard())])
        app.router.add_route("*", PATH, endpoint.handle, expect_handler=_go_on)
        if metadata is not None:
            metadata.add_to(app)

        async def end_requests(_: web.Application) -> None:
            await endpoint.stop(grace_seconds)

        app.on_shutdown.append(end_requests)
        app.on_response_prepare.append(finish_head)
        self._max_connections = max_connections
        self._listening: asyncio.Server | None = None
        # A client that hangs up cancels what runs for it alone; writes that it asked for are carried through.
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=idle_seconds,
            shutdown_timeout=0.1,  # for what has not ended though it was told to, and was given its time
            logger=connections.logger,
            auto_decompress=False,  # compressed bodies are refused, and not unpacked for that
        )

    async def start(self, host: str, port: int, *, reuse_port: bool = False) -> int:
        """Listen; returns the port, which the system chose if 0 was given.

        Args:
            reuse_port: let other processes listen there too.

        Raises:
            OSError: the address cannot be had.
        """
        await self._runner.setup()
        try:
            loop = asyncio.get_running_loop()
            self._listening = await loop.create_server(
                self._connect, host, port, backlog=1024, reuse_address=True, reuse_port=reuse_port
            )
        except BaseException:
            await self._runner.cleanup()
            raise
        bound: int = self._listening.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Take no further request, and let those that are being answered end."""
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()

    def _connect(self) -> asyncio.BaseProtocol:
        """What speaks with a client that has just connected."""
        server = self._runner.server
        if server is None or len(server.connections) >= self._max_connections:
            return _Full()
        return server()


class _Full(asyncio.Protocol):
    """Turns a client away."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say so, and hang up."""
        writing = cast(asyncio.WriteTransport, transport)  # uvloop's is none of that class
        writing.write(
            b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        writing.close()


@web.middleware
async def log_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """One line a request: never a task's id, an argument, or who called."""
    started = time.perf_counter()
    status = 499  # the client left
    try:
        response = await handler(request)
        status = response.status
    except web.HTTPException as error:
        status = error.status
        raise
    else:
        return response
    finally:
        milliseconds = round((time.perf_counter() - started) * 1000, 1)
        logs.line(__name__, "request", method=request.get(METHOD, request.method), status=status, ms=milliseconds)


async def _go_on(request: web.Request) -> web.StreamResponse | None:
    """Let a client that waits for that send its body. aiohttp's own answer to what else may be expected is a text, and
    a fault of the server where the header holds bytes that are no UTF-8."""
    if request.headers.get("Expect", "").lower() != "100-continue":
        return failure(Rejected(417, "Expectation failed: only 100-continue is known"), None, request.headers)
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the response itself has not begun
    return None


def _guarded(guard: Guard) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        objection = guard.objection(request.headers)
        if objection is not None:
            request[FOREIGN] = True
            return failure(Rejected(403, objection), None, request.headers)
        return preflight(request) or await handler(request)

    return check
