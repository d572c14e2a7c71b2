"""Traces, by OpenTelemetry's API: without an SDK, which whoever runs Perdure brings and sets up, they cost next to
nothing, and the context of a call still travels to whoever works on it.

    tools/call NAME       of a request; child of what the client sends in `_meta`, else in the headers
    execute_tool NAME     of an attempt, in the worker; a trace of its own, linked to the request that made the task

Names and attributes are those of OpenTelemetry's conventions for MCP and generative AI. None holds an argument, a
result, a task's id or an owner. The trace's id is in the lines that are logged meanwhile.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from typing import ParamSpec, TypeVar

import structlog
from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

METHOD = "mcp.method.name"
PROTOCOL = "mcp.protocol.version"
TOOL = "gen_ai.tool.name"
OPERATION = "gen_ai.operation.name"
ERROR = "error.type"
ATTEMPT = "perdure.attempt"
OUTCOME = "perdure.outcome"

LOOK_SECONDS = 1.0
"""How long it may take until it is seen that an SDK was set up while requests came."""

P = ParamSpec("P")
T = TypeVar("T")

_tracer = trace.get_tracer("perdure")
_context, _baggage = TraceContextTextMapPropagator(), W3CBaggagePropagator()


class Spanned:
    """A piece of work and its span; what is set where nobody records is dropped."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def named(self, method: str, tool: str) -> None:
        """What it was named with at first was not known yet."""
        self._span.update_name(f"{method} {tool}")
        self._span.set_attribute(TOOL, tool)

    def failed(self, error_type: str) -> None:
        """It ended in an error of this type."""
        self._span.set_attribute(ERROR, error_type)
        self._span.set_status(Status(StatusCode.ERROR))

    def ended(self, outcome: str, *, failed: bool) -> None:
        """It ended like this, which is an error or not."""
        self._span.set_attribute(OUTCOME, str(outcome))
        if failed:
            self.failed(str(outcome))


def request(method: str, tool: str, protocol: str | None, sent: Mapping[str, str]) -> AbstractContextManager[Spanned]:
    """The span of a request, current while this is entered.

    Args:
        method: one that is served, or `_OTHER`.
        tool: one that is listed; "" for none.
        protocol: the version that the request declares.
        sent: the trace context that came with it.
    """
    if not sent and not _is_set_up():
        return _UNSEEN
    attributes: dict[str, AttributeValue] = {METHOD: method}
    if protocol is not None:
        attributes[PROTOCOL] = protocol
    if tool:
        attributes |= {TOOL: tool, OPERATION: "execute_tool"}
    name = f"{method} {tool}" if tool else method
    return _spanned(name, SpanKind.SERVER, _read(sent), attributes)


class Attempted:
    """An attempt's span, from when this is made: current in all that `run` starts, and so the parent of the handler's
    own."""

    def __init__(self, span: AbstractContextManager[Spanned]) -> None:
        self._context, self._span = copy_context(), span
        self._spanned = self._context.run(span.__enter__)

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call this in the span's context, in which lines that are logged have the trace's id."""
        return self._context.run(call, *args, **kwargs)

    def ended(self, outcome: str, *, failed: bool) -> None:
        """It ended like this, which is an error or not. To be called by `run`."""
        self._spanned.ended(outcome, failed=failed)
        self._span.__exit__(None, None, None)


class _Unrecorded(Attempted):
    """Of an attempt that nobody records."""

    def __init__(self) -> None:
        pass

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return call(*args, **kwargs)

    def ended(self, outcome: str, *, failed: bool) -> None:
        pass


def attempt(tool: str, epoch: int, stored: str | None) -> Attempted:
    """The span of an attempt.

    Args:
        epoch: the number of the attempt.
        stored: the trace context of the request that made the task, as JSON text.
    """
    if stored is None and not _is_set_up():
        return _UNRECORDED
    sent = json.loads(stored) if stored else {}
    there = trace.get_current_span(_context.extract(sent, Context())).get_span_context()
    links = [Link(there)] if there.is_valid else []
    attributes: dict[str, AttributeValue] = {OPERATION: "execute_tool", TOOL: tool, ATTEMPT: epoch}
    around = _baggage.extract(sent, Context())
    return Attempted(_spanned(f"execute_tool {tool}", SpanKind.CONSUMER, around, attributes, links))


def outgoing(sent: Mapping[str, str]) -> dict[str, str]:
    """The trace context for a task that the current span makes, where there is one; else what came with the request."""
    if not sent and not _is_set_up():
        return {}
    carrier = dict(sent)
    _context.inject(carrier)
    return carrier


@contextmanager
def _spanned(
    name: str, kind: SpanKind, around: Context, attributes: dict[str, AttributeValue], links: Sequence[Link] = ()
) -> Iterator[Spanned]:
    token = attach(around)  # for its baggage; the span is made current in it
    try:
        with _tracer.start_as_current_span(
            name, None, kind, attributes, links, record_exception=False, set_status_on_exception=False
        ) as span:
            _log_with(span, around, links)
            yield Spanned(span)
    finally:
        detach(token)


def _log_with(span: Span, around: Context, links: Sequence[Link]) -> None:
    """Put the trace's id into what is logged from now on in this asyncio task, which is the request's or the attempt's
    own: its last line comes when the span has ended."""
    seen = [
        span.get_span_context(),
        trace.get_current_span(around).get_span_context(),
        *(link.context for link in links),
    ]
    if (there := next((each for each in seen if each.is_valid), None)) is not None:
        structlog.contextvars.bind_contextvars(trace_id=trace.format_trace_id(there.trace_id))


def _read(sent: Mapping[str, str]) -> Context:
    return _baggage.extract(sent, _context.extract(sent, Context()))


def _is_set_up() -> bool:
    """Whether somebody records. Looked at once a second until then: it takes as long as all else that a request that
    nobody records has to do with traces."""
    global _set_up, _looked_at
    if not _set_up and (now := time.monotonic()) - _looked_at >= LOOK_SECONDS:
        _set_up, _looked_at = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider), now
    return _set_up


_set_up, _looked_at = False, float("-inf")
_UNSEEN = nullcontext(Spanned(trace.INVALID_SPAN))
_UNRECORDED = _Unrecorded()
