"""Faults of the database: those that pass are invisible to the caller, all others are told at once."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from app.errors import StoreUnavailable
from app.storage.database import Database
from tests.storage.racing import RUNNING_SLEEP, kill_connections, seen
from tests.support.cable import Cable, cable_to


@pytest.fixture
async def cable(db_url: str) -> AsyncIterator[Cable]:
    """A cable to the test's own database."""
    async with cable_to(db_url) as cable:
        yield cable


class Mute(Cable):
    """A cable through which nothing comes any more, though nothing breaks either: a firewall, a frozen server."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.silent = False

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._there.host, self._there.port)
        await asyncio.gather(self._pass_on(reader, far_writer), self._pass_on(far_reader, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if not self.silent:
                    writer.write(data)
        writer.transport.abort()


def nothing_listens() -> str:
    """A URL that nothing answers at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"postgresql://nobody@127.0.0.1:{free.getsockname()[1]}/none"


# -- faults that pass -------------------------------------------------------------------------------------------------


async def test_idle_connections_that_are_killed_are_replaced_unseen(
    database: Database, connection: asyncpg.Connection[Any]
) -> None:
    await asyncio.gather(*(database.fetch("SELECT pg_sleep(0.001)") for _ in range(10)))
    for _ in range(5):
        await kill_connections(connection)
        assert [r[0] for r in await asyncio.gather(*(database.fetchrow("SELECT 7") for _ in range(10))) if r] == [
            7
        ] * 10


async def test_a_connection_that_is_killed_under_a_statement_is_invisible_to_the_caller(
    database: Database, connection: asyncpg.Connection[Any]
) -> None:
    sleeping = asyncio.create_task(database.fetchrow("SELECT pg_sleep($1), 7 AS seven", 0.5))
    await seen(connection, RUNNING_SLEEP, 1)
    await kill_connections(connection)
    row = await sleeping
    assert row is not None
    assert row["seven"] == 7


async def test_a_statement_that_is_cut_off_is_repeated_when_the_database_is_back(
    cable: Cable, connection: asyncpg.Connection[Any]
) -> None:
    async with Database(cable.url, connections=2) as database:
        sleeping = asyncio.create_task(database.fetchrow("SELECT pg_sleep($1), 7 AS seven", 0.2))
        await seen(connection, RUNNING_SLEEP, 1)
        await cable.pull_out()
        waiting = asyncio.create_task(database.fetchrow("SELECT 8 AS seven"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.3)
        await cable.plug_in()
        rows = await asyncio.gather(sleeping, waiting)
        assert [row["seven"] for row in rows if row] == [7, 8]


async def test_after_the_patience_a_clear_error_tells_nothing_of_the_inside(cable: Cable) -> None:
    async with Database(cable.url, patience_seconds=0.3) as database:
        await cable.pull_out()
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"^The task store cannot be reached\. Try again later\.$"):
            await database.fetch("SELECT $1::text", "secret")
        assert 0.2 < time.monotonic() - started < 5


async def test_a_database_that_is_not_there_at_the_start_is_a_clear_error() -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        async with Database(nothing_listens(), patience_seconds=0.2):
            raise AssertionError("there is no database")


async def test_a_statement_that_takes_too_long_is_ended_and_in_the_end_unavailable(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    async with Database(db_url, statement_seconds=0.2, patience_seconds=0.3) as database:
        with pytest.raises(StoreUnavailable):
            await database.fetch("SELECT pg_sleep(60)")
        assert await connection.fetchval(RUNNING_SLEEP) == 0
        assert await database.fetchrow("SELECT 1") is not None


async def test_a_server_that_falls_silent_is_no_reason_to_wait_for_ever(db_url: str) -> None:
    cable = Mute(db_url)
    await cable.plug_in()
    async with Database(cable.url, statement_seconds=0.2, patience_seconds=0.3) as database:
        cable.silent = True
        async with asyncio.timeout(30):
            with pytest.raises(StoreUnavailable):
                await database.fetch("SELECT 1")
    await cable.pull_out()


# -- faults that do not pass ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "arguments", "error"),
    [
        ("SELECT $1::int", ["seven"], asyncpg.DataError),
        ("SELECT $1::int", [2**40], asyncpg.DataError),
        ("SELECT $1::text", ["\ud800"], asyncpg.DataError),
        ("SELECT $1::uuid", [object()], asyncpg.DataError),
        ("SELECT $1::int", [], asyncpg.InterfaceError),
        ("SELECT $1::int", [1, 2], asyncpg.InterfaceError),
        ("SELECT $1::text", ["\x00"], asyncpg.CharacterNotInRepertoireError),
        ("SELECT $1::json", ["NaN"], asyncpg.InvalidTextRepresentationError),
        ("SELECT 1/0", [], asyncpg.DivisionByZeroError),
        ("SELEC", [], asyncpg.PostgresSyntaxError),
        ("SELECT none", [], asyncpg.UndefinedColumnError),
        ("INSERT INTO perdure.tools (name) VALUES ('a')", [], asyncpg.NotNullViolationError),
    ],
)
async def test_a_mistake_is_told_at_once_and_leaves_the_pool_as_it_was(
    database: Database, statement: str, arguments: list[object], error: type[Exception]
) -> None:
    started = time.monotonic()
    with pytest.raises(error) as raised:
        await database.fetch(statement, *arguments)
    assert type(raised.value) is error
    assert time.monotonic() - started < 5
    assert await database.fetchrow("SELECT 1") is not None


async def test_a_closed_database_says_so_at_once(db_url: str) -> None:
    async with Database(db_url) as database:
        pass
    with pytest.raises(asyncpg.InterfaceError, match="pool is clos"):
        await asyncio.wait_for(database.fetch("SELECT 1"), 5)
