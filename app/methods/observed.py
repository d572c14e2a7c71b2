"""What operators see of a request: its place in the metrics, and its span."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from app.domain.task import Json
from app.errors import ErrorKind, InsufficientScope, KeyConflict, ProtocolError, Refusal, StoreUnavailable
from app.methods.call import Call
from app.telemetry import metrics, traces
from app.tools.results import says_error
from app.wire.revisions import Revision, code

TOOL_ERROR = "tool_error"
"""The error.type of a result with isError, as OpenTelemetry has it."""

CANCELLED = "cancelled"
"""The error.type of a request whose client has left, or that ended because the process stopped."""

_CODES = {code(kind, revision) for kind in ErrorKind for revision in Revision}


async def observed(call: Call, method: str, label: Callable[[], str], answer: Callable[[], Awaitable[Json]]) -> Json:
    """Await the answer to a call, and tell of it what may be told.

    Args:
        method: one that is served, else `metrics.OTHER`: what a caller made up is no label.
        label: the tool, if it is listed, else `metrics.OTHER`; "" for a method that names none. It is asked again at
            the end, when a tool that had just been brought is listed.
    """
    started, tool = time.perf_counter(), label()
    error = ""
    with traces.request(method, tool, call.context.declared, call.context.trace) as span:
        try:
            result = await answer()
            error = TOOL_ERROR if tool and says_error(result) else ""
        except asyncio.CancelledError:
            error = CANCELLED
            raise
        except Exception as fault:
            error = _error_type(fault, call.context.revision)
            raise
        else:
            return result
        finally:
            if tool == metrics.OTHER and (tool := label()) != metrics.OTHER:
                span.named(method, tool)
            metrics.operation(method, tool, error, time.perf_counter() - started)
            if error:
                span.failed(error)


def _error_type(error: Exception, revision: Revision) -> str:
    """The code that the client gets; a tool can choose any, and those that are none of the protocol's count as one."""
    match error:
        case ProtocolError():
            return str(error.code) if error.code in _CODES else metrics.OTHER
        case Refusal():
            kind = error.kind
        case KeyConflict():
            kind = ErrorKind.INVALID_PARAMS
        case InsufficientScope():
            kind = ErrorKind.INVALID_REQUEST
        case StoreUnavailable():
            kind = ErrorKind.UNAVAILABLE
        case _:
            kind = ErrorKind.INTERNAL
    return str(code(kind, revision))
