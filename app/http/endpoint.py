"""POST /mcp: one message in, one response out (core, "Sending Messages")."""

from __future__ import annotations

import asyncio

from aiohttp import web

from app.errors import ErrorKind, Refusal
from app.http.auth import owner_of
from app.http.replies import Rejected, accepted, failure, success
from app.methods.call import Call
from app.methods.dispatch import Methods
from app.wire.envelope import Message, printable, read_message
from app.wire.revisions import read_context

METHOD = web.RequestKey("method", str)
"""What a request is, for its log line."""


class Endpoint:
    """Answers every request to the one path of the protocol.

    Args:
        methods: what is served.
        lenient_task_names: accept `tasks/*` without the header `Mcp-Name`, which a client in wide use never sends.
        body_seconds: how long a client may take to send a body.
    """

    def __init__(self, methods: Methods, *, lenient_task_names: bool = True, body_seconds: float = 60.0) -> None:
        self._methods = methods
        self._lenient_task_names = lenient_task_names
        self._body_seconds = body_seconds

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request; whatever goes wrong, the answer is an HTTP response with a JSON-RPC error."""
        message = None
        try:
            owner = owner_of(request)
            message = read_message(await _body(request, self._body_seconds))
            request[METHOD] = printable(message.method, 64)
            return await self._answer(message, request, owner)
        except Exception as error:  # noqa: BLE001  # failure() logs what it does not expect
            return failure(error, message, request.headers)

    async def _answer(self, message: Message, request: web.Request, owner: str) -> web.Response:
        if message.id is None:
            return self._notified(message)
        context = read_context(message, request.headers, lenient_task_names=self._lenient_task_names)
        return success(message.id, await self._methods.answer(Call(message, context, owner)))

    def _notified(self, message: Message) -> web.Response:
        """Nothing that a client notifies us of has an effect; but a request must not be taken for a notification."""
        if message.method in self._methods.table:
            raise Refusal(ErrorKind.INVALID_REQUEST, "Invalid request: id is missing, which only notifications may be")
        return accepted()


async def _body(request: web.Request, seconds: float) -> bytes:
    _check_head(request)
    try:
        async with asyncio.timeout(seconds):
            return await request.read()
    except TimeoutError:
        raise Rejected(408, f"Request timeout: a body must be sent within {seconds:g} seconds") from None
    except web.HTTPRequestEntityTooLarge:
        raise _too_large(request) from None
    except web.RequestPayloadError:
        raise Refusal(ErrorKind.PARSE, "Parse error: the body cannot be decoded as its headers say") from None


def _check_head(request: web.Request) -> None:
    """Refuse what no body could make right."""
    if request.method != "POST":
        raise Rejected(405, "Method not allowed: send messages with POST", {"Allow": "POST"})
    if request.content_type != "application/json":
        raise Rejected(415, "Unsupported media type: the Content-Type must be application/json")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Rejected(415, "Unsupported media type: send messages without a Content-Encoding")
    if (request.content_length or 0) > request.client_max_size:
        raise _too_large(request)


def _too_large(request: web.Request) -> Rejected:
    return Rejected(413, f"Content too large: a message may have {request.client_max_size} bytes")
