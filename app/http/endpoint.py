"""POST /mcp: one message in, one reply out (core, "Sending Messages")."""

from __future__ import annotations

import asyncio

from aiohttp import web

from app.domain.principal import Principal
from app.errors import ErrorKind, InsufficientScope, Refusal
from app.http.accept import JSON, SSE, Accept, read_accept
from app.http.auth.access import Access
from app.http.replies import Rejected, accepted, failure
from app.http.stopping import OpenRequests
from app.http.streams import KEEPALIVE_SECONDS, WRITE_SECONDS, Exchange
from app.methods.call import Call, unheard
from app.methods.dispatch import Methods
from app.wire.envelope import Message, printable, read_message, result_body
from app.wire.headers import Head
from app.wire.revisions import read_context

METHOD = web.RequestKey("method", str)
"""What a request is, for its log line."""

STREAMED = {"tools/call": 1.0, "subscriptions/listen": 3.0}
"""The methods that can take long, and so may be answered with a stream; and how many times as long as usual it may be
silent: there are many more subscriptions than calls that wait."""


class Endpoint:
    """Answers every request to the one path of the protocol.

    Args:
        methods: what is served.
        access: says on whose behalf a request is made; by default everybody is let in.
        lenient_task_names: accept `tasks/*` without the header `Mcp-Name`, which a client in wide use never sends.
        body_seconds: how long a client may take to send a body.
        keepalive_seconds: silence after which a reply that is waited for becomes a stream, and says that it lives.
        write_seconds: how long a client may take nothing of a reply.
    """

    def __init__(
        self,
        methods: Methods,
        access: Access | None = None,
        *,
        lenient_task_names: bool = True,
        body_seconds: float = 60.0,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        self._methods, self._access = methods, access or Access()
        self._lenient_task_names = lenient_task_names
        self._body_seconds = body_seconds
        self._keepalive_seconds, self._write_seconds = keepalive_seconds, write_seconds
        self._open = OpenRequests()

    async def handle(self, request: web.BaseRequest, head: Head) -> web.StreamResponse:
        """Answer a request; whatever goes wrong, the answer is an HTTP response with a JSON-RPC error.

        Args:
            head: the request's headers.
        """
        accept = read_accept(head.get("accept"))
        exchange = Exchange(
            request, head, accept, keepalive_seconds=self._keepalive_seconds, write_seconds=self._write_seconds
        )
        return await exchange.end(await self._answer(request, head, accept, exchange))

    async def stop(self, grace_seconds: float) -> None:
        """Let the requests that are being answered end, and end those that take longer than this."""
        self._methods.stop()
        await self._open.end(grace_seconds)

    async def _answer(
        self, request: web.BaseRequest, head: Head, accept: Accept, exchange: Exchange
    ) -> bytes | web.Response:
        message = None
        try:
            with self._open.until_stopped():
                principal = await self._access.principal(request)
                _check_head(request, head, accept)
                message = read_message(await _body(request, self._body_seconds))
                request[METHOD] = printable(message.method, 64)
                return await self._result(message, head, principal, exchange)
        except InsufficientScope as lacking:
            return failure(self._access.insufficient(lacking), message, head)
        except Exception as error:  # noqa: BLE001  # failure() logs what it does not expect
            return failure(error, message, head)

    async def _result(
        self, message: Message, head: Head, principal: Principal, exchange: Exchange
    ) -> bytes | web.Response:
        context = read_context(message, head, lenient_task_names=self._lenient_task_names)
        if message.id is None:
            return self._notified(message)
        call = Call(message, context, principal, exchange.notify if exchange.streams else unheard)
        patience = STREAMED.get(message.method)
        if patience is None:
            return result_body(message.id, await self._methods.answer(call))
        exchange.begin(patience=patience)
        try:
            return result_body(message.id, await self._methods.answer(call))
        finally:
            await exchange.finish()

    def _notified(self, message: Message) -> web.Response:
        """Nothing that a client notifies us of has an effect; but a request must not be taken for a notification."""
        if message.method in self._methods.table:
            raise Refusal(ErrorKind.INVALID_REQUEST, "Invalid request: id is missing, which only notifications may be")
        return accepted()


async def _body(request: web.BaseRequest, seconds: float) -> bytes:
    try:
        if request.content.is_eof():  # it came with the head, as most do
            body = request.content.read_nowait()
            if len(body) > request.client_max_size:
                raise _too_large(request)
            return body
        async with asyncio.timeout(seconds):
            return await request.read()
    except TimeoutError:
        raise Rejected(408, f"Request timeout: a body must be sent within {seconds:g} seconds") from None
    except web.HTTPRequestEntityTooLarge:
        raise _too_large(request) from None
    except web.RequestPayloadError:
        raise Refusal(ErrorKind.PARSE, "Parse error: the body cannot be decoded as its headers say") from None


def _check_head(request: web.BaseRequest, head: Head, accept: Accept) -> None:
    """Refuse what no body could make right."""
    if request.method != "POST":
        raise Rejected(405, "Method not allowed: send messages with POST", {"Allow": "POST"})
    if head.get("content-type") != JSON:  # as most send it
        if request.content_type != JSON:
            raise Rejected(415, f"Unsupported media type: the Content-Type must be {JSON}")
        if (request.charset or "utf-8").lower() not in ("utf-8", "utf8"):
            raise Rejected(415, "Unsupported media type: JSON is sent in UTF-8")
    if head.get("content-encoding", "identity").lower() != "identity":
        raise Rejected(415, "Unsupported media type: send messages without a Content-Encoding")
    if not (accept.json or accept.sse):
        raise Rejected(406, f"Not acceptable: the Accept header must take {JSON} or {SSE}")
    if (request.content_length or 0) > request.client_max_size:
        raise _too_large(request)


def _too_large(request: web.BaseRequest) -> Rejected:
    return Rejected(413, f"Content too large: a message may have {request.client_max_size} bytes")
