"""What goes back: the one place where errors become JSON-RPC codes and HTTP statuses."""

from __future__ import annotations

from collections.abc import Mapping

import structlog
from aiohttp import web

from app.domain.task import Json
from app.errors import ErrorKind, KeyConflict, ProtocolError, Refusal, StoreUnavailable
from app.telemetry.metrics import refused
from app.wire.envelope import Message, RequestId, Unreadable, error_body, result_body
from app.wire.revisions import LEGACY, Revision, code, error_status, http_status, revision_of

log = structlog.get_logger(__name__)

_PASSING = {kind: {"Retry-After": "1"} for kind in (ErrorKind.LIMIT, ErrorKind.UNAVAILABLE)}
"""What goes with refusals that will pass: when to try again, in seconds."""


class Rejected(Exception):
    """A request that is turned away for what HTTP itself has a status for; mostly before its body is read."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


def success(request_id: RequestId, result: Json) -> web.Response:
    """The response that carries a result."""
    return _json(200, result_body(request_id, result))


def accepted() -> web.Response:
    """The response to a notification."""
    return web.Response(status=202)


def failure(error: Exception, message: Message | None, headers: Mapping[str, str]) -> web.Response:
    """The response that carries an error, with the request's id where it could be read.

    Args:
        error: what was raised; anything that is not meant for the client is logged, and told as an internal error.
        message: the request, None if it could not be read.
        headers: the request's, which may decide the error's number.
    """
    request_id, revision = None if message is None else message.id, revision_of(message, headers)
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
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
