"""The database: first come, first served; faults that pass are invisible, others are told at once."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from app.errors import SettingsError, StoreUnavailable
from app.storage.database import Database, asyncpg_dsn
from tests.storage.racing import kill_connections
from tests.support.cable import Cable, cable_to
from tests.support.waiting import eventually

OURS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'perdure'"
IDLE = f"{OURS} AND state = 'idle'"
IN_TRANSACTION = f"{OURS} AND state LIKE 'idle in transaction%'"
RUNNING_SLEEP = f"{OURS} AND state = 'active' AND query LIKE '%pg_sleep%'"


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


async def seen(connection: asyncpg.Connection[Any], query: str, count: int) -> None:
    """Wait until a query counts so many."""

    async def look() -> bool:
        return int(await connection.fetchval(query)) == count

    await eventually(look)


def nothing_listens() -> str:
    """A URL that nothing answers at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"postgresql://nobody@127.0.0.1:{free.getsockname()[1]}/none"


# -- URLs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg", "postgresql+psycopg"])
def test_any_postgresql_url_is_read(scheme: str) -> None:
    url = f"{scheme}://me:p%40ss%2F@db.example:6432/tasks?sslmode=require"
    assert asyncpg_dsn(url) == "postgresql://me:p%40ss%2F@db.example:6432/tasks?sslmode=require"


@pytest.mark.parametrize("url", ["", "mysql://me:hunter2@db/x", "db.example:hunter2", "sqlite:///hunter2"])
def test_another_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(SettingsError, match=r"DATABASE_URL .*postgresql://") as refused:
        asyncpg_dsn(url)
    assert "hunter2" not in str(refused.value)


# -- connections ------------------------------------------------------------------------------------------------------


async def test_statements_get_their_connections_in_the_order_of_asking(db_url: str) -> None:
    served: list[int] = []

    async def ask(number: int) -> None:
        async with database.connection():
            served.append(number)
            await asyncio.sleep(0)

    async with Database(db_url, connections=1) as database, asyncio.TaskGroup() as group:
        async with database.connection():
            for number in range(20):
                group.create_task(ask(number))
                await asyncio.sleep(0)
        group.create_task(ask(20))  # comes while the others are being served
    assert served == list(range(21))


async def test_a_late_statement_does_not_overtake_when_a_connection_comes_free(db_url: str) -> None:
    served: list[str] = []

    async def ask(name: str) -> None:
        async with database.connection():
            served.append(name)

    async with Database(db_url, connections=2) as database, asyncio.TaskGroup() as group:
        async with database.connection(), database.connection():
            group.create_task(ask("first"))
            await asyncio.sleep(0)
        await ask("late")
    assert served == ["first", "late"]


async def test_no_more_connections_are_opened_than_allowed(db_url: str, connection: asyncpg.Connection[Any]) -> None:
    async with Database(db_url, connections=3) as database:
        await asyncio.gather(*(database.fetch("SELECT pg_sleep(0.001)") for _ in range(30)))
        assert await connection.fetchval(OURS) <= 3
    await seen(connection, OURS, 0)


async def test_every_connection_says_whose_it_is_and_has_limits(db_url: str) -> None:
    async with Database(db_url, name="perdure serve", statement_seconds=12.5) as database:
        for setting, value in {
            "application_name": "perdure serve",
            "statement_timeout": "12500ms",
            "lock_timeout": "10s",
            "idle_in_transaction_session_timeout": "1min",
        }.items():
            row = await database.fetchrow("SELECT current_setting($1) AS value", setting)
            assert row is not None
            assert row["value"] == value


async def test_no_row_is_none(database: Database) -> None:
    assert await database.fetchrow("SELECT 1 WHERE false") is None
    assert await database.fetch("SELECT 1 WHERE false") == []


async def test_a_database_that_was_not_opened_says_so(db_url: str) -> None:
    with pytest.raises(AssertionError, match="before it was opened"):
        await Database(db_url).fetch("SELECT 1")


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


# -- cancelling -------------------------------------------------------------------------------------------------------


async def test_statements_that_are_cancelled_leave_the_pool_usable_and_nothing_in_a_transaction(
    database: Database, connection: asyncpg.Connection[Any]
) -> None:
    async def cut_short(turns: int) -> None:
        work = asyncio.create_task(database.fetch("SELECT pg_sleep(0.01), * FROM perdure.tasks"))
        for _ in range(turns):
            await asyncio.sleep(0)
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work

    for start in range(0, 300, 10):
        await asyncio.gather(*(cut_short(turns % 40) for turns in range(start, start + 10)))
    rows = await asyncio.gather(*(database.fetchrow("SELECT 7 AS seven") for _ in range(20)))
    assert [row["seven"] for row in rows if row] == [7] * 20
    assert await connection.fetchval(IN_TRANSACTION) == 0
    await seen(connection, IDLE, await connection.fetchval(OURS))


async def test_a_statement_that_is_cancelled_is_ended_on_the_server(
    database: Database, connection: asyncpg.Connection[Any]
) -> None:
    work = asyncio.create_task(database.fetch("SELECT pg_sleep(60)"))
    await seen(connection, RUNNING_SLEEP, 1)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await seen(connection, RUNNING_SLEEP, 0)


async def test_who_is_cancelled_while_waiting_gives_the_turn_to_the_next(db_url: str) -> None:
    async with Database(db_url, connections=1) as database:
        async with database.connection():
            waiting = [asyncio.create_task(database.fetch("SELECT 1")) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
        results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert [len(rows) for rows in results[1:] if isinstance(rows, list)] == [1, 1]


async def test_a_cancelled_caller_does_not_stop_the_database_from_closing(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    async with Database(db_url, connections=1) as database:
        work = asyncio.create_task(database.fetch("SELECT pg_sleep(60)"))
        await seen(connection, RUNNING_SLEEP, 1)
        work.cancel()
    with suppress(asyncio.CancelledError):
        await work
