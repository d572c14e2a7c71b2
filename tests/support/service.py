"""An API process's worth of objects on a free port, on the test's own database, without any worker.

What a worker would do, a test does itself through the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import asyncpg
import pytest

from app.domain.task import Claim, Json, Question
from app.http.auth.access import Access
from app.http.endpoint import Endpoint
from app.http.guards import Guard
from app.http.server import PATH, Server
from app.methods.companions import companion_tools
from app.methods.dispatch import Methods
from app.methods.inline import Inline
from app.methods.limits import Limits
from app.methods.local import LocalTools
from app.methods.request_state import RequestStates
from app.methods.subscriptions import Subscriptions
from app.methods.tasks import Tasks
from app.methods.tools import Tools
from app.storage.database import Database
from app.storage.listener import Listener
from app.storage.store import Store
from app.storage.watches import Watches
from app.tools.catalogue import Catalogue
from app.tools.registry import Registry, Tool
from app.wire.envelope import dumps
from tests.support.fixture_tools import registry
from tests.support.rpc import TASKS, Client
from tests.support.waiting import eventually
from tests.support.worker import notifying, working

HOST = "127.0.0.1"
KEY = b"a key of the tests, of no worth at all"
DONE = Json('{"content":[{"type":"text","text":"done"}],"isError":false,"resultType":"complete"}')
OUT_OF_PAPER = Json('{"code":4711,"message":"Out of paper","data":{"b":1,"a":[1.50]}}')


@dataclass(frozen=True)
class Service:
    """A running API, and the ways in and around it.

    Attributes:
        client: declares the Tasks extension, and no version.
        store: the API's own store, to do what a worker does.
        connection: a connection of the test's own, which sees only what is committed.
        watches: the API's own.
        server: the API's HTTP server.
    """

    client: Client
    store: Store
    connection: asyncpg.Connection[Any]
    watches: Watches
    server: Server

    async def start_task(self, tool: str = "job", /, **arguments: Any) -> str:
        """Call a tool over HTTP and return the task's id."""
        task_id: str = (await self.client.call(tool, **arguments)).result["taskId"]
        return task_id

    async def claim(self, tool: str = "job") -> Claim:
        """Take the one task that waits, as a worker does."""
        [claim] = await self.store.claim(uuid4(), [tool], 1)
        return claim

    async def ask(self, **requests: dict[str, Any]) -> str:
        """Make a task that has asked these questions; returns its id."""
        task_id = await self.start_task()
        questions = [Question(key, dumps(request)) for key, request in requests.items()]
        await self.store.ask(await self.claim(), questions)
        return task_id

    async def end_task(self, end: str) -> str:
        """Make a task that has ended as completed, failed or cancelled; returns its id."""
        task_id = await self.start_task()
        match end:
            case "completed":
                await self.store.finish(await self.claim(), DONE)
            case "failed":
                await self.store.fail(await self.claim(), OUT_OF_PAPER, "It was out of paper")
            case _:
                await self.client.rpc("tasks/cancel", {"taskId": task_id})
        return task_id

    async def read(self, task_id: str) -> dict[str, Any]:
        """What tasks/get says."""
        return (await self.client.rpc("tasks/get", {"taskId": task_id})).result

    async def recorded(self, task_id: str) -> dict[str, Json]:
        """The answers of a task as they are stored, by key."""
        rows = await self.connection.fetch(
            "SELECT key, response::text AS response FROM perdure.task_input_responses WHERE task_id = $1", UUID(task_id)
        )
        return {row["key"]: Json(row["response"]) for row in rows}

    async def count_tasks(self) -> int:
        """How many tasks there are."""
        count: int = await self.connection.fetchval("SELECT count(*) FROM perdure.tasks")
        return count


@asynccontextmanager
async def serving(
    db_url: str,
    tools: Registry | None = None,
    *,
    guard: Guard | None = None,
    patience_seconds: float = 30.0,
    lenient_task_names: bool = True,
    body_seconds: float = 60.0,
    keepalive_seconds: float = 5.0,
    wait_seconds: float | None = None,
    companions: bool = False,
    listens: bool = False,
    poll_seconds: float = 0.05,
    stream_seconds: float = 3600.0,
    fresh_seconds: float = 5.0,
    limits: dict[str, Any] | None = None,
    access: Access | None = None,
    scopes: Sequence[str] = (),
    **options: Any,
) -> AsyncIterator[Service]:
    """Start the API with these tools loaded and published, and stop it.

    Args:
        listens: it tells others of changes, and hears of them; else it polls.
        scopes: what every call of a tool needs.
    """
    tools = registry() if tools is None else tools
    async with (
        Database(db_url, connections=5, patience_seconds=patience_seconds) as database,
        notifying(database, listens) as notifier,
        listening(db_url, listens) as listener,
    ):
        store, local = Store(database, notifier), LocalTools(threads=2)
        await store.publish_tools(tools.catalogue())
        watches = Watches(listener, poll_seconds=poll_seconds)
        loaded = Registry([*tools, *(companion_tools(store, watches) if companions else ())])
        catalogue = Catalogue(store, loaded, fresh_seconds=fresh_seconds)
        inline = Inline(store, watches, RequestStates([KEY]), companions=companions, wait_seconds=wait_seconds)
        limited = Limits(store, **limits or {})
        subscriptions = Subscriptions(store, watches, catalogue, limited, seconds=stream_seconds)
        callable_tools = Tools(
            store, catalogue, local, inline, limited, scopes=scopes, private=not (access is None or access.open)
        )
        endpoint = Endpoint(
            Methods(callable_tools, Tasks(store), subscriptions),
            access,
            lenient_task_names=lenient_task_names,
            body_seconds=body_seconds,
            keepalive_seconds=keepalive_seconds,
        )
        server = Server(endpoint, guard, **options)
        port = await server.start(HOST, 0)
        connection = await asyncpg.connect(db_url)
        try:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
                client = Client(session, f"http://{HOST}:{port}{PATH}", capabilities=TASKS)
                yield Service(client, store, connection, watches, server)
        finally:
            await connection.close(timeout=5)
            await server.stop()
            await catalogue.close()
            local.close()


@asynccontextmanager
async def listening(db_url: str, listens: bool) -> AsyncIterator[Listener | None]:
    """A listener that hears, and listens again soon when its connection is lost; or none."""
    if not listens:
        yield None
        return
    listener = Listener(db_url, reconnect_seconds=0.3)
    running = asyncio.create_task(listener.run())

    async def hears() -> bool:
        return listener.hearing

    try:
        await eventually(hears)
        yield listener
    finally:
        running.cancel()
        await asyncio.wait({running})


@pytest.fixture
async def service(db_url: str) -> AsyncIterator[Service]:
    """The API with the tools of `tests.support.fixture_tools`."""
    async with serving(db_url) as running:
        yield running


@asynccontextmanager
async def serving_with_worker(db_url: str, *tools: Tool, **options: Any) -> AsyncIterator[Service]:
    """Start the API and a worker that has these tools, both in this loop; `options` are those of `serving`."""
    async with (
        serving(db_url, Registry(tools), **options) as service,
        working(db_url, *[tool for tool in tools if tool.options.task != "never"]),
    ):
        yield service
