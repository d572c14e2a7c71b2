"""What goes back: the one place where errors become JSON-RPC codes and HTTP statuses."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache

import structlog
from aiohttp import HttpVersion11, web

from app.errors import ErrorKind, KeyConflict, ProtocolError, Refusal, StoreUnavailable
from app.http.accept import JSON
from app.http.origins import SERVER
from app.telemetry.metrics import refused
from app.wire.envelope import Message, RequestId, Unreadable, error_body
from app.wire.headers import Head
from app.wire.revisions import LEGACY, Revision, code, error_status, http_status, revision_of

log = structlog.get_logger(__name__)

_SERVER = {"Server": SERVER}
_PASSING = {kind: {"Retry-After": "1"} for kind in (ErrorKind.LIMIT, ErrorKind.UNAVAILABLE)}
"""What goes with refusals that will pass: when to try again, in seconds."""


class Rejected(Exception):
    """A request that is turned away for what HTTP itself has a status for; mostly before its body is read."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


class Whole(web.StreamResponse):
    """A result, sent in one piece to a client of HTTP/1.1 that keeps its connection and is no page of a browser.

    Nearly all replies are that, and a third of the time of a small one would go into a head that is always the same.
    """

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self._whole = b"%b%d\r\n\r\n%b" % (_head(int(time.time())), len(body), body)

    @classmethod
    def fits(cls, request: web.BaseRequest, head: Head) -> bool:
        """Whether a request can be answered so."""
        return request.version == HttpVersion11 and request.keep_alive and "origin" not in head

    @property
    def keep_alive(self) -> bool:
        """The connection stays."""
        return True

    async def prepare(self, request: web.BaseRequest) -> None:
        """Send it."""
        if request.transport is None or request.transport.is_closing():
            raise ConnectionResetError
        request.transport.write(self._whole)

    async def write_eof(self, data: bytes = b"") -> None:
        """There is nothing more."""


@lru_cache(maxsize=2)
def _head(second: int) -> bytes:
    date = formatdate(second, usegmt=True)
    return f"HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nDate: {date}\r\nServer: {SERVER}\r\nContent-Length: ".encode()


def result(body: bytes) -> web.Response:
    """The response with this body, to whatever client."""
    return _json(200, body)


def accepted() -> web.Response:
    """The response to a notification."""
    return web.Response(status=202, headers=_SERVER)


def failure(error: Exception, message: Message | None, head: Head) -> web.Response:
    """The response that carries an error, with the request's id where it could be read.

    Args:
        error: what was raised; anything that is not meant for the client is logged, and told as an internal error.
        message: the request, None if it could not be read.
        head: the request's headers, which may decide the error's number.
    """
    request_id, revision = None if message is None else message.id, revision_of(message, head)
    if isinstance(error, Rejected):
        refused(f"http_{error.status}")
        kind = ErrorKind.INVALID_REQUEST if error.status < 500 else ErrorKind.UNAVAILABLE
        body = error_body(request_id, code(kind, revision), str(error))
        return _json(error.status, body, error.headers)
    if isinstance(error, ProtocolError):
        refused("tool")
        return _protocol_error(error, request_id, revision)
    refusal = _refusal(error)
    refused(refusal.kind.name.lower())
    if isinstance(refusal, Unreadable):
        request_id = refusal.request_id
    body = error_body(request_id, code(refusal.kind, revision), refusal.message, refusal.data)
    return _json(_status(http_status(refusal.kind), request_id, revision), body, _PASSING.get(refusal.kind))


def _refusal(error: Exception) -> Refusal:
    match error:
        case Refusal():
            return error
        case KeyConflict():
            return Refusal(ErrorKind.INVALID_PARAMS, str(error))
        case StoreUnavailable():
            return Refusal(ErrorKind.UNAVAILABLE, str(error))
        case _:
            log.error("a request failed", exc_info=error)
            return Refusal(ErrorKind.INTERNAL, "Internal error")


def _protocol_error(error: ProtocolError, request_id: RequestId | None, revision: Revision | None) -> web.Response:
    """A tool's own error. To HTTP the exchange went well, unless the error is one of the protocol's."""
    try:
        body = error_body(request_id, error.code, error.message, error.data)
        return _json(_status(error_status(error.code, revision), request_id, revision), body)
    except (TypeError, ValueError):
        log.exception("a tool raised a ProtocolError that is not JSON")
    internal = error_body(request_id, code(ErrorKind.INTERNAL, revision), "Internal error")
    return _json(_status(http_status(ErrorKind.INTERNAL), request_id, revision), internal)


def _status(status: int, request_id: RequestId | None, revision: Revision | None) -> int:
    """The HTTP status of an error: clients of the older revisions take any but 200 for a failure of the transport."""
    return 200 if request_id is not None and revision in LEGACY else status


def _json(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=body, content_type=JSON, headers={**_SERVER, **(headers or {})})
