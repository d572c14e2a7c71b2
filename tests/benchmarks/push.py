"""What subscriptions cost, and how soon a change is at its subscriber.

One `perdure serve`; this process is the clients and the worker, so its own work is in the figures. A change counts from
the time that its statement gives it (lastUpdatedAt), which is before its commit, until its bytes are read.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
import uvloop

from app.domain.task import Claim
from app.storage.database import Database
from app.storage.notifier import Notifier
from app.storage.store import Store
from tests.benchmarks.stage import Stage, spent
from tests.support.command import Command
from tests.support.rpc import TASKS, Client

CREATORS = 16
"""Clients that create at once."""

RATE, SECONDS = 100.0, 10.0
"""Changes in a second, and how long each figure is taken."""


@dataclass
class Streams:
    """Open subscriptions, each read by bytes.

    Attributes:
        delays: seconds from change to bytes.
        states: how many tasks have been received.
    """

    url: str
    delays: list[float] = field(default_factory=list)
    states: int = 0

    @asynccontextmanager
    async def open(self, client: Client, task_ids: list[str]) -> AsyncIterator[None]:
        """One subscription for each task."""
        async with AsyncExitStack() as stack:
            for task_id in task_ids:
                reader = await stack.enter_async_context(self._connected(client, task_id))
                reading = asyncio.create_task(self._read(reader))
                stack.callback(reading.cancel)
            yield

    @asynccontextmanager
    async def _connected(self, client: Client, task_id: str) -> AsyncIterator[asyncio.StreamReader]:
        where = urlsplit(self.url)
        body, headers = client.request("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
        headers |= {"Host": "localhost", "Content-Type": "application/json", "Accept": "text/event-stream"}
        lines = [f"{name}: {value}" for name, value in headers.items()]
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        head = "\r\n".join([f"POST {where.path} HTTP/1.1", *lines, f"Content-Length: {len(body)}", "", ""])
        writer.write(head.encode() + body)
        try:
            yield reader
        finally:
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            now = time.time()
            if line.startswith(b'data: {"jsonrpc":"2.0","method":"notifications/tasks"'):
                self.states += 1
                task = json.loads(line[6:])["params"]
                if "statusMessage" in task:
                    self.delays.append(now - datetime.fromisoformat(task["lastUpdatedAt"]).timestamp())


async def create(client: Client, count: int, creators: int) -> list[str]:
    """Create so many tasks over HTTP, so many at a time; their ids."""
    made: list[str] = []
    body, headers = client.request("tools/call", {"name": "noop", "arguments": {"label": "x"}})

    async def creator() -> None:
        while len(made) < count:
            made.append("")
            async with client.sending(body, headers) as response:
                made.append((await response.json())["result"]["taskId"])
                made.remove("")

    await asyncio.gather(*(creator() for _ in range(creators)))
    return made


async def created_in_a_second(client: Client) -> float:
    """How many tasks are created in a second."""
    started, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - started) < SECONDS:
        count += len(await create(client, 200, CREATORS))
    return count / passed


async def change(store: Store, claims: list[Claim]) -> int:
    """Change one task after the other at this rate; how many changes there were."""
    loop, count = asyncio.get_running_loop(), int(RATE * SECONDS)
    started = loop.time()
    for number, claim in zip(range(count), cycle(claims), strict=False):
        await asyncio.sleep(max(0.0, started + number / RATE - loop.time()))
        await store.status(claim, f"step {number}")
    return count


async def measure(url: str, database_url: str, process: Command, count: int) -> list[str]:
    """All figures, as lines."""
    async with (
        Database(database_url, connections=5) as database,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        notifier = Notifier(database)
        notifying = asyncio.create_task(notifier.run())
        store, client = Store(database, notifier), Client(session, url, capabilities=TASKS)
        task_ids = await create(client, count, CREATORS)
        claims = await store.claim(uuid4(), ["noop"], len(task_ids))
        alone, before, streams = await created_in_a_second(client), _resident(process), Streams(url)
        async with streams.open(client, task_ids[:count]):
            while streams.states < count:
                await asyncio.sleep(0.01)
            per_stream, used = (_resident(process) - before) / count, spent(process.process.pid)
            await asyncio.sleep(SECONDS)
            idle = (spent(process.process.pid) - used) / SECONDS
            beside = await created_in_a_second(client)
            streams.delays.clear()
            used, started = spent(process.process.pid), time.perf_counter()
            changes = await change(store, claims)
            await asyncio.sleep(1)
            busy = (spent(process.process.pid) - used) / (time.perf_counter() - started)
        notifying.cancel()
        await asyncio.wait({notifying})
    delays = sorted(streams.delays)
    return [
        f"open streams                  {count}",
        f"memory of an open stream      {per_stream / 1024:.1f} KiB",
        f"processor while they are idle {idle:.1%} of one",
        f"changes, and bytes received   {changes} at {RATE:g}/s, {len(delays)}",
        f"from change to bytes          p50 {_at(delays, 0.5):.1f} ms, p99 {_at(delays, 0.99):.1f} ms, "
        f"max {delays[-1] * 1000:.1f} ms",
        f"processor meanwhile           {busy:.1%} of one",
        f"tasks created in a second     {alone:.0f} without streams, {beside:.0f} beside them",
    ]


def _at(delays: list[float], share: float) -> float:
    return delays[min(len(delays) - 1, int(len(delays) * share))] * 1000


def _resident(process: Command) -> int:
    """Bytes of memory that the service has."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def run(on: Stage, streams: int) -> list[str]:
    """Start a service on the stage and measure; the figures as lines."""
    database_url = on.database("push", perdure=True)
    process = on.perdure("serve", "push")
    url = process.says(r'"url": ?"(http[^"]+)"')
    return uvloop.run(measure(url, database_url, process, streams))
