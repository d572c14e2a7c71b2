"""The database: first come, first served, within limits; and a caller that is cancelled leaves nothing behind."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from app.errors import SettingsError
from app.storage import database as database_module
from app.storage.database import AT_HAND, Database, asyncpg_dsn
from tests.storage.racing import OURS, RUNNING_SLEEP, seen
from tests.support.waiting import eventually

IDLE = f"{OURS} AND state = 'idle'"
IN_TRANSACTION = f"{OURS} AND state LIKE 'idle in transaction%'"


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


@pytest.mark.parametrize(("seconds", "given_back"), [(60.0, 0), (0.0, 1)])
async def test_a_connection_stays_at_hand_for_a_while(
    db_url: str, monkeypatch: pytest.MonkeyPatch, seconds: float, given_back: int
) -> None:
    monkeypatch.setattr(database_module, "AT_HAND_SECONDS", seconds)
    async with Database(db_url, connections=2) as it:
        assert it._pool is not None
        await it.fetch("SELECT 1")
        assert it._pool.get_idle_size() == given_back


async def test_a_connection_that_nobody_used_for_long_is_not_used_again(
    db_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Database(db_url, connections=1) as it:
        (first,) = await it.once("SELECT pg_backend_pid() AS pid")
        (second,) = await it.once("SELECT pg_backend_pid() AS pid")
        monkeypatch.setattr(database_module, "AT_HAND_SECONDS", 0.0)
        (third,) = await it.once("SELECT pg_backend_pid() AS pid")
    assert first["pid"] == second["pid"] != third["pid"]


async def test_only_so_many_connections_stay_at_hand(db_url: str) -> None:
    async with Database(db_url, connections=AT_HAND + 3) as it:
        await asyncio.gather(*(it.fetch("SELECT pg_sleep(0.05)") for _ in range(AT_HAND + 3)))
        assert it._pool is not None
        assert it._pool.get_idle_size() == 3


async def test_a_connection_that_went_away_while_nobody_used_it_is_not_used_again(
    database: Database, connection: asyncpg.Connection[Any]
) -> None:
    async with database.connection() as used:
        pid = await used.fetchval("SELECT pg_backend_pid()")

    async def is_lost() -> bool:
        try:
            return used.is_closed()
        except asyncpg.InterfaceError:
            return True

    await connection.execute("SELECT pg_terminate_backend($1)", pid)
    await eventually(is_lost)
    (row,) = await database.once("SELECT pg_backend_pid() AS pid")
    assert row["pid"] != pid


async def test_every_connection_says_whose_it_is_and_has_limits(db_url: str) -> None:
    async with Database(db_url, name="perdure serve", statement_seconds=12.5) as database:
        for setting, value in {
            "application_name": "perdure serve",
            "statement_timeout": "12500ms",
            "lock_timeout": "10s",
            "idle_in_transaction_session_timeout": "1min",
            "enable_seqscan": "off",
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


async def test_behind_a_pooler_a_statement_leaves_nothing_in_its_session(db_url: str) -> None:
    prepared = "SELECT count(*)::integer AS kept FROM pg_prepared_statements"
    async with Database(db_url, connections=1, pooled=True) as database:
        for _ in range(3):
            assert (await database.fetch("SELECT $1::integer AS sent", 7))[0]["sent"] == 7
        assert (await database.fetch(prepared))[0]["kept"] == 0
        async with database.connection() as connection:
            assert await connection.fetchval("SHOW statement_timeout") == "0"
    async with Database(db_url, connections=1) as database:
        await database.fetch("SELECT $1::integer AS sent", 7)
        assert (await database.fetch(prepared))[0]["kept"] > 0


async def test_behind_a_pooler_each_statement_sets_its_own_limits(db_url: str) -> None:
    async with Database(db_url, connections=1, pooled=True, statement_seconds=5) as database:
        limits = "SELECT current_setting('statement_timeout') AS statement, current_setting('lock_timeout') AS lock"
        assert tuple((await database.fetch(limits))[0]) == ("5s", "10s")
