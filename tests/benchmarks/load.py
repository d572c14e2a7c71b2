"""The load: connections that each send a request, wait for its reply, and send the next.

HTTP/1.1 is spoken by hand and replies are searched, not parsed, so that the load costs less than what it measures. A
reply that is not the expected one counts as a failure, and a run with failures says so.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from tests.support.rpc import PUBLISHED, TASKS

_ids = itertools.count(1)
_META = json.dumps(
    {
        "io.modelcontextprotocol/protocolVersion": PUBLISHED,
        "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, **TASKS},
    }
)
ENDED = (b'"status":"completed"', b'"status": "completed"')


@dataclass(frozen=True)
class Figures:
    """What one run came to; times in milliseconds."""

    count: int
    seconds: float
    p50: float
    p99: float
    failures: Counter[str]

    @property
    def rate(self) -> float:
        """Operations in a second."""
        return self.count / self.seconds


class Unexpected(Exception):
    """A reply that is none of those that a run is about."""


class Connection(asyncio.Protocol):
    """One connection, kept alive, with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._reply: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def connection_lost(self, error: Exception | None) -> None:
        """It is closed; who waits for a reply gets none."""
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error or ConnectionResetError("closed by the server"))

    def data_received(self, data: bytes) -> None:
        """Some of a reply: hand it over once its body is complete."""
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        if not head.startswith(b"HTTP/1.1 200 "):
            self._fail(head.split(b"\r\n", 1)[0].decode())
        elif (length := _length(head)) is None:
            self._fail("a reply without a length")
        elif len(body) >= length and self._reply is not None:
            self._received = b""
            if not self._reply.done():
                self._reply.set_result(body)

    async def send(self, request: bytes) -> bytes:
        """The body of the reply to a request."""
        assert self._transport is not None
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._reply

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, says: str) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(Unexpected(says))
        self.close()


def _length(head: bytes) -> int | None:
    start = head.lower().find(b"content-length:")
    return int(head[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else None


@dataclass(frozen=True)
class Target:
    """An endpoint that speaks the protocol, and what to send it."""

    url: str

    async def connect(self) -> Connection:
        """A connection to it."""
        where = urlsplit(self.url)
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, where.hostname or "", where.port or 80))[1]

    def call(self, tool: str, arguments: dict[str, Any]) -> bytes:
        """The request that calls a tool."""
        return self._request("tools/call", tool, f'"name":"{tool}","arguments":{json.dumps(arguments)}')

    def get(self, task_id: str) -> bytes:
        """The request that reads a task."""
        return self._request("tasks/get", task_id, f'"taskId":"{task_id}"')

    def plain(self) -> bytes:
        """A request without a message, for what is no more than HTTP."""
        return self._http("", b"{}")

    def _request(self, method: str, name: str, params: str) -> bytes:
        body = f'{{"jsonrpc":"2.0","id":{next(_ids)},"method":"{method}","params":{{{params},"_meta":{_META}}}}}'
        routing = f"MCP-Protocol-Version: {PUBLISHED}\r\nMcp-Method: {method}\r\nMcp-Name: {name}\r\n"
        return self._http(routing, body.encode())

    def _http(self, headers: str, body: bytes) -> bytes:
        where = urlsplit(self.url)
        head = (
            f"POST {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


Step = Callable[[Connection], Awaitable[object]]


def task_id_of(reply: bytes) -> str:
    """The id in the reply to a call that made a task."""
    _, found, rest = reply.partition(b'"taskId":')
    if not found:
        raise Unexpected(reply[:200].decode(errors="replace"))
    return rest.lstrip(b' "').split(b'"', 1)[0].decode()


def must_hold(reply: bytes, words: Iterable[bytes]) -> bytes:
    """The reply, if it has one of these words in it."""
    if not any(word in reply for word in words):
        raise Unexpected(reply[:200].decode(errors="replace"))
    return reply


async def ended(target: Target, connection: Connection, task_id: str, *, poll: float, patience: float = 60.0) -> None:
    """Look again after each pause until a task is completed."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        await asyncio.sleep(poll)
        reply = await connection.send(target.get(task_id))
        if any(word in reply for word in ENDED):
            return
        must_hold(reply, (b'"working"',))
    raise Unexpected("a task did not end in time")


async def closed_loop(target: Target, step: Step, *, connections: int, seconds: float) -> Figures:
    """Every connection repeats the step until the time is over."""
    took: list[float] = []
    failures: Counter[str] = Counter()
    until = time.perf_counter() + seconds

    async def repeat() -> None:
        connection = await target.connect()
        while (started := time.perf_counter()) < until:
            try:
                await step(connection)
            except (Unexpected, OSError) as failure:
                failures[f"{type(failure).__name__}: {failure}"[:200]] += 1
                connection = await target.connect()
            else:
                took.append(time.perf_counter() - started)
        connection.close()

    started = time.perf_counter()
    await asyncio.gather(*(repeat() for _ in range(connections)))
    spent = time.perf_counter() - started
    took.sort()
    return Figures(len(took), spent, 1000 * _at(took, 0.5), 1000 * _at(took, 0.99), failures)


def _at(times: list[float], share: float) -> float:
    return times[min(len(times) - 1, int(len(times) * share))] if times else float("nan")
