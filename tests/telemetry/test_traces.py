"""Traces: from the client's span to the request's, and from there, over processes, to whoever works on the task."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from app.telemetry import traces
from tests.support.command import Command, perdure
from tests.support.rpc import PUBLISHED, TASKS, Client
from tests.support.scraped import is_ready, ops_url
from tests.support.service import Service
from tests.support.waiting import eventually

SET_UP = """
import os
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from app import tool
from app.errors import ToolError

if path := os.environ.get("SPANS"):
    exporter = ConsoleSpanExporter(out=open(path, "a"), formatter=lambda span: span.to_json(indent=None) + "\\n")
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
"""
LOCAL = (
    SET_UP
    + '''
@tool(task="never")
async def near() -> str:
    """Run beside the API."""
    return "near"
'''
)
REMOTE = (
    SET_UP
    + '''
@tool
async def far(word: str) -> str:
    """Make a span of its own."""
    with trace.get_tracer("author").start_as_current_span("inside") as span:
        span.set_attribute("who", str(baggage.get_baggage("who")))
        return word

@tool
def far_in_thread() -> str:
    """Make a span of its own, in a thread."""
    with trace.get_tracer("author").start_as_current_span("inside a thread"):
        return "far"

@tool
async def wrong() -> str:
    """Fail."""
    raise ToolError("word of the tool's")
'''
)
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "baggage": "who=me"}
SECRET = "a word that is nobody's business"


class Fleet:
    """An API process and a worker, and the spans that each has ended."""

    def __init__(self, folder: Path, serve: Command, worker: Command) -> None:
        self.folder, self.serve, self.worker = folder, serve, worker

    def spans(self, role: str) -> list[dict[str, Any]]:
        """The spans of a process, in the order of their ends."""
        path = self.folder / f"{role}.spans"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    async def span(self, role: str, name: str) -> dict[str, Any]:
        """Wait for the one span of this name."""

        async def look() -> dict[str, Any] | None:
            found = [span for span in self.spans(role) if span["name"] == name]
            assert len(found) <= 1
            return found[0] if found else None

        return await eventually(look)


@contextmanager
def fleet(db_url: str, folder: Path, *, recorded: bool = True) -> Iterator[Fleet]:
    (folder / "near_tools.py").write_text(LOCAL)
    (folder / "far_tools.py").write_text(REMOTE)

    def environment(role: str) -> dict[str, str]:
        spans = {"SPANS": str(folder / f"{role}.spans")} if recorded else {}
        return {"DATABASE_URL": db_url, "PERDURE_OPS_PORT": "0", "PERDURE_LOG_LEVEL": "debug"} | spans

    with ExitStack() as stack:
        serving = ("serve", "--tools", folder / "near_tools.py", "--port", "0")
        serve = stack.enter_context(perdure(folder / "serve", *serving, **environment("serve")))
        working = ("worker", "--tools", folder / "far_tools.py")
        worker = stack.enter_context(perdure(folder / "worker", *working, **environment("worker")))
        yield Fleet(folder, serve, worker)


@asynccontextmanager
async def calling(fleet: Fleet) -> AsyncIterator[Client]:
    for process in (fleet.serve, fleet.worker):
        await is_ready(ops_url(process))
    url = fleet.serve.says(r'"url": "(http://[^"]+/mcp)"')
    async with ClientSession() as session:
        yield Client(session, url, version=PUBLISHED, capabilities=TASKS)


async def call(client: Client, tool: str, meta: dict[str, str], **arguments: Any) -> dict[str, Any]:
    return (await client.rpc("tools/call", {"name": tool, "arguments": arguments, "_meta": meta})).result


def identity(span: dict[str, Any]) -> tuple[str, str]:
    return span["context"]["trace_id"], span["context"]["span_id"]


def logged(process: Command, event: str, **having: Any) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in process.err.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event and having.items() <= line.items()]


async def test_a_client_s_span_is_followed_to_the_worker_over_processes(db_url: str, tmp_path: Path) -> None:
    with fleet(db_url, tmp_path) as processes:
        async with calling(processes) as client:
            task_id = (await call(client, "far", PARENT, word=SECRET))["taskId"]
        attempt = await processes.span("worker", "execute_tool far")
        inside = await processes.span("worker", "inside")
        asked = await processes.span("serve", "tools/call far")

        async def told() -> bool:
            return bool(logged(processes.worker, "attempt"))

        await eventually(told)
        assert identity(asked)[0] == f"0x{TRACE}"
        assert (asked["parent_id"], asked["kind"]) == (f"0x{SPAN}", "SpanKind.SERVER")
        assert asked["attributes"] == {
            "mcp.method.name": "tools/call",
            "mcp.protocol.version": PUBLISHED,
            "gen_ai.tool.name": "far",
            "gen_ai.operation.name": "execute_tool",
        }
        [link] = attempt["links"]
        assert (link["context"]["trace_id"], link["context"]["span_id"]) == identity(asked)
        assert (attempt["parent_id"], attempt["kind"]) == (None, "SpanKind.CONSUMER")
        assert identity(attempt)[0] != identity(asked)[0]
        assert attempt["attributes"] == {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "far",
            "perdure.attempt": 1,
            "perdure.outcome": "completed",
        }
        assert (identity(inside)[0], inside["parent_id"]) == (identity(attempt)[0], identity(attempt)[1])
        assert inside["attributes"] == {"who": "me"}
        assert [line["trace_id"] for line in logged(processes.serve, "request", method="tools/call")] == [TRACE]
        assert [f"0x{line['trace_id']}" for line in logged(processes.worker, "attempt")] == [identity(attempt)[0]]
        everything = "".join(json.dumps(processes.spans(role)) for role in ("serve", "worker"))
        assert SECRET not in everything
        assert task_id not in everything
        assert "anonymous" not in everything


async def test_failures_threads_and_tools_beside_the_api_have_their_spans(db_url: str, tmp_path: Path) -> None:
    with fleet(db_url, tmp_path) as processes:
        async with calling(processes) as client:
            await call(client, "near", PARENT)
            await call(client, "far_in_thread", {})
            await call(client, "wrong", {})
            body, headers = client.request("tools/call", {"name": "far", "arguments": {"word": "x"}})
            await client.post(body, headers | {"traceparent": PARENT["traceparent"]})
            assert (await client.call("made-up")).error["code"] == -32602
        near = await processes.span("serve", "tools/call near")
        assert (identity(near)[0], near["parent_id"]) == (f"0x{TRACE}", f"0x{SPAN}")
        thread = await processes.span("worker", "execute_tool far_in_thread")
        inside = await processes.span("worker", "inside a thread")
        assert inside["parent_id"] == identity(thread)[1]
        wrong = await processes.span("worker", "execute_tool wrong")
        assert wrong["status"] == {"status_code": "ERROR"}
        assert wrong["attributes"]["error.type"] == wrong["attributes"]["perdure.outcome"] == "tool_error"
        assert wrong["events"] == [], "an exception's text is a result"
        asked = await processes.span("serve", "tools/call far")
        assert (identity(asked)[0], asked["parent_id"]) == (f"0x{TRACE}", f"0x{SPAN}"), "from the headers"
        unknown = await processes.span("serve", "tools/call _OTHER")
        assert unknown["attributes"]["error.type"] == "-32602"


async def test_without_a_recorder_the_trace_is_still_in_the_log_lines_of_both(db_url: str, tmp_path: Path) -> None:
    with fleet(db_url, tmp_path, recorded=False) as processes:
        async with calling(processes) as client:
            await call(client, "far", PARENT, word="x")
            await client.rpc("tools/list")

        async def told() -> bool:
            return bool(logged(processes.worker, "attempt"))

        await eventually(told)
        assert [line["trace_id"] for line in logged(processes.worker, "attempt")] == [TRACE]
        requests = {line["method"]: line.get("trace_id") for line in logged(processes.serve, "request")}
        assert requests == {"tools/call": TRACE, "tools/list": None}


async def test_the_trace_context_of_the_body_goes_before_that_of_the_headers(service: Service) -> None:
    other = PARENT["traceparent"].replace("4bf9", "0000")
    body, headers = service.client.request("tools/call", {"name": "job", "_meta": PARENT})
    await service.client.post(body, headers | {"traceparent": other, "tracestate": "a=1"})
    assert await stored(service) == PARENT
    body, headers = service.client.request("tools/call", {"name": "job"})
    await service.client.post(body, headers | {"traceparent": other, "tracestate": "a=1"})
    assert await stored(service) == {"traceparent": other, "tracestate": "a=1"}


async def test_a_trace_context_that_is_too_long_is_not_carried_on(service: Service) -> None:
    await call(service.client, "job", {"traceparent": "x" * 257, "tracestate": "a" * 513, "baggage": "b" * 8193})
    assert await stored(service) is None
    await call(service.client, "job", {"traceparent": "nonsense"})
    assert await stored(service) == {"traceparent": "nonsense"}


async def stored(service: Service) -> dict[str, str] | None:
    newest = "SELECT trace_context::text FROM perdure.task_requests ORDER BY task_id DESC LIMIT 1"
    text = await service.connection.fetchval(newest)
    return None if text is None else dict(json.loads(text))


@pytest.mark.parametrize("sent", ["{}", None, '{"traceparent":"nonsense"}', '{"baggage":"%%%"}'])
def test_an_attempt_runs_whatever_the_request_brought(sent: str | None) -> None:
    span = traces.attempt("job", 1, sent)
    assert span.run(lambda: "done") == "done"
    span.run(span.ended, "completed", failed=False)


def test_the_modules_of_telemetry_import_nothing_of_the_rest() -> None:
    for path in Path(traces.__file__).parent.glob("*.py"):
        assert not re.search(r"^\s*(from|import) app\b", path.read_text(), re.MULTILINE)
