"""The reply to one request: one JSON object, or a stream of events that ends with it (core, "Receiving Messages").

Nothing is streamed before there is something to say: a reply that comes before the first notification or keep-alive is
plain JSON with an HTTP status of its own. Closing the connection is how a client cancels; aiohttp then cancels the
handler, and what it awaits, and nothing more is sent.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

from aiohttp import HttpVersion11, web

from app.domain.task import Json
from app.http.accept import SSE, Accept
from app.http.connections import Connection
from app.http.origins import SERVER, let_read
from app.http.replies import Whole, result
from app.methods.call import carry_through
from app.wire.headers import Head

KEEPALIVE_SECONDS = 5.0
"""Silence after which a stream says that it lives: hosts in wide use give up after 60 s without a byte."""

WRITE_SECONDS = 30.0
"""How long a client may take nothing of what is sent to it; at twice this its connection has been closed."""

AT_ONCE = 16_384
"""Bytes of a reply that a connection takes without waiting for its client."""

_HEADERS = {"Content-Type": SSE, "Cache-Control": "no-store", "X-Accel-Buffering": "no", "Server": SERVER}
_KEEPALIVE = b": keep-alive\n\n"


class Exchange:
    """A request and its reply, whichever form it takes.

    Args:
        head: the request's headers.
        accept: the forms that the client takes.
        keepalive_seconds: silence after which a stream carries a comment; the first one opens it.
        write_seconds: how long a client may take nothing.
    """

    def __init__(
        self,
        request: web.BaseRequest,
        head: Head,
        accept: Accept,
        *,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        self._request, self._head, self._accept, self._transport = request, head, accept, request.transport
        self._keepalive_seconds, self._write_seconds = keepalive_seconds, write_seconds
        self._stream: web.StreamResponse | None = None
        self._streaming = False
        self._connection = cast(Connection, request.protocol)
        self._alive: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._written_at = asyncio.get_running_loop().time()

    @property
    def streams(self) -> bool:
        """Whether the client takes a stream."""
        return self._accept.sse

    def begin(self, *, patience: float = 1.0) -> None:
        """From now on there may be notifications and keep-alives, if the client takes a stream; until `finish`.

        Args:
            patience: how many times as long as usual a silence may be.
        """
        if self._accept.sse:
            self._streaming = True
            seconds = patience * self._keepalive_seconds
            self._connection.remind(seconds, partial(self._grow_old, seconds))

    async def finish(self) -> None:
        """There is nothing more to say but the reply."""
        self._streaming = False
        self._connection.forget()
        if self._alive is not None:
            self._alive.cancel()
            await asyncio.wait({self._alive})

    async def notify(self, message: Json) -> None:
        """Send a notification of this request; it is dropped where there is no stream, or no longer.

        Never raises because of the connection: who has lost it is cancelled.
        """
        await self._write(_event(message.encode()))

    async def end(self, answer: bytes | web.Response) -> web.StreamResponse:
        """Send the answer, as the last event if there is a stream, and say what was sent.

        Args:
            answer: the message with a result, or any other response.
        """
        if isinstance(answer, bytes):
            body, plain = answer, self._stream is None and self._accept.json
        else:
            body = answer.body if isinstance(answer.body, bytes) else b""
            plain = self._stream is None and (answer.status != 200 or self._accept.json)
        if plain and len(body) <= AT_ONCE and not self._writing.locked() and self._is_idle():
            if isinstance(answer, bytes) and Whole.fits(self._request, self._head):
                return Whole(answer)
            return self._finished(answer)  # aiohttp sends it, and has nothing to wait for
        async with self._writing:
            response = self._finished(answer) if plain and self._stream is None else self._opened()
            async with self._written():
                await response.prepare(self._request)
                if response is self._stream:
                    await response.write(_event(body))
                await response.write_eof()
        return response

    def _grow_old(self, seconds: float) -> None:
        """The first silence is over: most requests have been answered before."""
        self._alive = asyncio.create_task(self._keep_alive(seconds))

    def _is_idle(self) -> bool:
        """Whether the client has taken all that was sent to it on this connection."""
        return self._transport is not None and not self._transport.get_write_buffer_size()

    async def _keep_alive(self, seconds: float) -> None:
        clock = asyncio.get_running_loop().time
        while self._streaming:
            silence = self._written_at + seconds - clock()
            await (asyncio.sleep(silence) if silence > 0 else self._write(_KEEPALIVE))

    async def _write(self, event: bytes) -> None:
        # aiohttp leaves a cancelled wait for the client behind, which would cancel the next write too.
        if self._streaming:
            await carry_through(self._write_through(event))

    async def _write_through(self, event: bytes) -> None:
        async with self._writing:
            if not self._streaming:
                return
            async with self._written():
                stream = self._opened()
                await stream.prepare(self._request)
                await stream.write(event)
            self._written_at = asyncio.get_running_loop().time()

    def _opened(self) -> web.StreamResponse:
        if self._stream is None:
            self._stream = web.StreamResponse(headers=_HEADERS)
            let_read(self._head, self._stream)
            if self._request.version < HttpVersion11:
                self._stream.force_close()  # only that ends it, also for a client that would keep the connection
        return self._stream

    def _finished(self, answer: bytes | web.Response) -> web.Response:
        response = result(answer) if isinstance(answer, bytes) else answer
        let_read(self._head, response)
        return response

    @asynccontextmanager
    async def _written(self) -> AsyncIterator[None]:
        """Write in here: a client that is gone is no error, and one that takes nothing for too long is made to go."""
        self._look_again(sys.maxsize)
        try:
            yield
        except ConnectionError:
            self._streaming = False
        finally:
            self._watch.cancel()

    def _look_again(self, unsent: int) -> None:
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(self._write_seconds, self._look, unsent)

    def _look(self, before: int) -> None:
        """Close the connection of a client that takes nothing; that ends the write, and cancels the handler."""
        if self._transport is None:
            return
        if (unsent := self._transport.get_write_buffer_size()) < before:
            self._look_again(unsent)
        else:
            self._transport.abort()


def _event(message: bytes) -> bytes:
    """The one event that carries a message. JSON has line breaks only between its tokens, where they mean nothing."""
    line = message.replace(b"\r", b" ").replace(b"\n", b" ")
    return b"event: message\ndata: " + line + b"\n\n"
