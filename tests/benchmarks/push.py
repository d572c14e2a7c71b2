"""`python -m tests.benchmarks.push`: what subscriptions cost, and how soon a change is at its subscriber.

One `perdure serve` on a PostgreSQL of its own; this process is the clients and the worker, so on few processors its own
work is in the figures. A change counts from the time that its statement gives it (lastUpdatedAt), which is before its
commit, until its bytes are read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp

from app.domain.task import Claim
from app.embedded_pg import EmbeddedPostgres
from app.storage import migrate
from app.storage.database import Database
from app.storage.notifier import Notifier
from app.storage.store import Store
from app.tools.registry import Registry
from tests.support.command import Command, perdure
from tests.support.fixture_tools import job
from tests.support.rpc import TASKS, Client

MIB = 1024 * 1024


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
    body, headers = client.request("tools/call", {"name": "job", "arguments": {}})

    async def creator() -> None:
        while len(made) < count:
            made.append("")
            async with client.sending(body, headers) as response:
                made.append((await response.json())["result"]["taskId"])
                made.remove("")

    await asyncio.gather(*(creator() for _ in range(creators)))
    return made


async def created_in_a_second(client: Client, seconds: float, creators: int) -> float:
    """How many tasks are created in a second."""
    started, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - started) < seconds:
        count += len(await create(client, 200, creators))
    return count / passed


async def change(store: Store, claims: list[Claim], rate: float, seconds: float) -> int:
    """Change one task after the other at this rate; how many changes there were."""
    loop, count = asyncio.get_running_loop(), int(rate * seconds)
    started = loop.time()
    for number, claim in zip(range(count), cycle(claims), strict=False):
        await asyncio.sleep(max(0.0, started + number / rate - loop.time()))
        await store.status(claim, f"step {number}")
    return count


async def measure(url: str, database_url: str, process: Command, options: argparse.Namespace) -> list[str]:
    """All figures, as lines."""
    async with (
        Database(database_url, connections=5) as database,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        notifier = Notifier(database)
        notifying = asyncio.create_task(notifier.run())
        store, client = Store(database, notifier), Client(session, url, capabilities=TASKS)
        await store.publish_tools(Registry([job]).catalogue())
        task_ids = await create(client, options.streams, options.creators)
        claims = await store.claim(uuid4(), ["job"], len(task_ids))
        alone, before, streams = await _creation(client, options), _resident(process), Streams(url)
        async with streams.open(client, task_ids[: options.streams]):
            while streams.states < options.streams:
                await asyncio.sleep(0.01)
            per_stream, spent = (_resident(process) - before) / options.streams, _spent(process)
            await asyncio.sleep(options.seconds)
            idle = (_spent(process) - spent) / options.seconds
            beside = await _creation(client, options)
            streams.delays.clear()
            spent, started = _spent(process), time.perf_counter()
            changes = await change(store, claims, options.rate, options.seconds)
            await asyncio.sleep(1)
            busy = (_spent(process) - spent) / (time.perf_counter() - started)
        notifying.cancel()
        await asyncio.wait({notifying})
    delays = sorted(streams.delays)
    return [
        f"open streams                  {options.streams}",
        f"memory of an open stream      {per_stream / 1024:.1f} KiB",
        f"processor while they are idle {idle:.1%} of one",
        f"changes, and bytes received   {changes} at {options.rate:g}/s, {len(delays)}",
        f"from change to bytes          p50 {_at(delays, 0.5):.1f} ms, p99 {_at(delays, 0.99):.1f} ms, "
        f"max {delays[-1] * 1000:.1f} ms",
        f"processor meanwhile           {busy:.1%} of one",
        f"tasks created in a second     {alone:.0f} without streams, {beside:.0f} beside them",
    ]


async def _creation(client: Client, options: argparse.Namespace) -> float:
    return await created_in_a_second(client, options.seconds, options.creators)


def _at(delays: list[float], share: float) -> float:
    return delays[min(len(delays) - 1, int(len(delays) * share))] * 1000


def _resident(process: Command) -> int:
    """Bytes of memory that the service has."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def _spent(process: Command) -> float:
    """Seconds of processor time that the service has used."""
    fields = Path(f"/proc/{process.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@contextmanager
def service(folder: Path) -> Iterator[tuple[str, str, Command]]:
    """A service on a database of its own: its URL, that of the database, and its process."""
    folder.chmod(0o711)  # as root, the database server has another account
    with EmbeddedPostgres(folder / "postgres", throwaway=True, die_with_parent=True) as postgres:
        asyncio.run(migrate.upgrade(postgres.url()))
        settings = {"DATABASE_URL": postgres.url(), "PERDURE_LOG_FORMAT": "json", "PERDURE_MAX_STREAMS": "100000"}
        with perdure(folder / "serve", "serve", "--port", "0", **settings) as process:
            yield process.says(r'"url": ?"(http[^"]+)"'), postgres.url(), process


def main() -> int:
    """Read the command line, measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.push", description=__doc__)
    parser.add_argument("--streams", type=int, default=1000, help="how many are open (default: 1000)")
    parser.add_argument("--rate", type=float, default=100.0, help="changes in a second (default: 100)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each figure is taken (default: 10)")
    parser.add_argument("--creators", type=int, default=16, help="clients that create at once (default: 16)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as (url, database_url, process):
        print("\n".join(asyncio.run(measure(url, database_url, process, options))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
