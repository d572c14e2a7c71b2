"""The catalogue: what the workers of the fleet can run, by name, and for a day after the last of them."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from app.domain.task import Json
from app.storage.database import Database
from app.storage.rows import CatalogueRow
from app.storage.store import LISTED, Store
from tests.storage.racing import deadlocks, look_for_deadlocks_soon


def tool(name: str, digest: str = "1") -> CatalogueRow:
    return CatalogueRow(name, Json(f'{{ "name" : "{name}" }}'), Json('{"task":"auto","task":"auto"}'), digest)


async def forget(connection: asyncpg.Connection[Any], name: str, seconds: float) -> None:
    """Let a tool's last worker have been seen so long ago."""
    query = "UPDATE perdure.tools SET seen_at = now() - $2 * interval '1 second' WHERE name = $1"
    assert await connection.execute(query, name, seconds) == "UPDATE 1"


async def test_an_empty_catalogue_lists_nothing(store: Store) -> None:
    assert await store.read_tools() == []
    await store.publish_tools([])
    assert await store.read_tools() == []


async def test_published_tools_are_listed_by_name_byte_for_byte(store: Store) -> None:
    tools = [tool(name) for name in ("b", "a", "_x", "B", "a.1", "a-1", "a_1")]
    await store.publish_tools(tools)
    assert await store.read_tools() == sorted(tools, key=lambda t: t.name)


async def test_a_tool_that_is_published_again_is_replaced(store: Store) -> None:
    await store.publish_tools([tool("a"), tool("b")])
    await store.publish_tools([tool("a", digest="2")])
    assert await store.read_tools() == [tool("a", digest="2"), tool("b")]


async def test_a_tool_is_listed_for_a_day_after_its_last_worker(
    store: Store, connection: asyncpg.Connection[Any]
) -> None:
    await store.publish_tools([tool("old"), tool("older"), tool("new")])
    await forget(connection, "old", LISTED.total_seconds() - 60)
    await forget(connection, "older", LISTED.total_seconds())
    assert [t.name for t in await store.read_tools()] == ["new", "old"]
    await store.publish_tools([tool("older")])
    assert [t.name for t in await store.read_tools()] == ["new", "old", "older"]


async def test_workers_that_publish_the_same_tools_at_the_same_moment_do_not_deadlock(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    await look_for_deadlocks_soon(connection)
    tools = [tool(f"tool-{n}") for n in range(1000)]
    orders = (tools, tools[::-1], tools[500:] + tools[:500], tools)
    async with Database(db_url, connections=8) as database:
        store = Store(database)
        await store.publish_tools(tools)
        await asyncio.gather(*(store.publish_tools(order) for order in orders for _ in range(5)))
        assert len(await store.read_tools()) == 1000
    assert await deadlocks(connection) == 0
