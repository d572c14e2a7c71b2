"""The listener: hears what others tell, notices when it no longer does, and wakes those who wait after every gap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from structlog.testing import capture_logs

from app.domain.task import new_task_id
from app.storage.listener import Listener
from app.storage.notifier import CHANGED, READY
from tests.support.cable import cable_to
from tests.support.waiting import eventually

PID = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'perdure listener'"


class Waiter:
    """Somebody who wants to be woken, by two tools' work and by any task's change."""

    def __init__(self, listener: Listener) -> None:
        self.woken = 0
        self.told: list[UUID] = []
        listener.on_ready(["weigh", "count"], self.wake)
        listener.on_changed(self.told.append)

    def wake(self) -> None:
        self.woken += 1


@asynccontextmanager
async def listening(url: str, *, for_worker: bool = True, **seconds: float) -> AsyncIterator[tuple[Listener, Waiter]]:
    """A listener that hears, and does not ping by itself unless it is told to."""
    seconds = {"ping_seconds": 60.0, "pong_seconds": 2.0, "reconnect_seconds": 0.01} | seconds
    listener = Listener(url, for_worker=for_worker, **seconds)
    waiter = Waiter(listener)
    running = asyncio.create_task(listener.run())
    try:
        await hearing(listener)
        yield listener, waiter
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait({running})
        assert not listener.hearing


async def hearing(listener: Listener) -> None:
    async def look() -> bool:
        return listener.hearing

    await eventually(look)


async def notify(connection: asyncpg.Connection[Any], channel: str, payload: str) -> None:
    await connection.execute("SELECT pg_notify($1, $2)", channel, payload)


async def told(connection: asyncpg.Connection[Any], waiter: Waiter) -> UUID:
    """Tell of a change, and wait until it is heard: then everything before it has been, too."""
    marker = new_task_id()
    await notify(connection, CHANGED, str(marker))

    async def look() -> bool:
        return marker in waiter.told

    await eventually(look)
    return marker


async def another_pid(connection: asyncpg.Connection[Any], old: int) -> int:
    async def look() -> int:
        pids = {row["pid"] for row in await connection.fetch(PID)} - {old}
        return pids.pop() if pids else 0

    return await eventually(look)


async def pings(connection: asyncpg.Connection[Any], listener: Listener, count: int) -> None:
    """Wait for so many of a listener's pings to itself."""
    heard: list[object] = []
    await connection.add_listener(listener._ping_channel, lambda *ping: heard.append(ping))

    async def look() -> bool:
        return len(heard) >= count

    await eventually(look)
    await connection.reset()


async def test_changes_are_heard_one_by_one_and_in_order(db_url: str, connection: asyncpg.Connection[Any]) -> None:
    async with listening(db_url) as (_, waiter):
        ids = [new_task_id() for _ in range(5)]
        await notify(connection, CHANGED, " ".join(map(str, ids[:3])))
        await notify(connection, CHANGED, str(ids[3]))
        marker = await told(connection, waiter)
    assert waiter.told == [*ids[:4], marker]


async def test_work_wakes_those_whose_tools_it_is_for(db_url: str, connection: asyncpg.Connection[Any]) -> None:
    async with listening(db_url) as (_, waiter):
        for tools, woken in (("weigh", 1), ("x count weigh y", 2), ("weight", 2), ("Weigh wei gh", 2), ("", 2)):
            await notify(connection, READY, tools)
            await told(connection, waiter)
            assert waiter.woken - 1 == woken  # once at the start, for what was told before


async def test_an_api_hears_changes_and_is_not_told_what_workers_are(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    async with listening(db_url, for_worker=False) as (_, waiter):
        await notify(connection, READY, "weigh count")
        await told(connection, waiter)
        assert waiter.woken == 1  # at the start


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        " ",
        "not an id",
        "0",
        "01a22b03-0610-7b14-a010-474fd9c3b54a nonsense",
        "'; DROP TABLE tasks",
        "🦔",
        "x" * 7999,
        " 01a22b03-0610-7b14-a010-474fd9c3b54a",
    ],
)
async def test_garbage_is_passed_over(db_url: str, connection: asyncpg.Connection[Any], garbage: str) -> None:
    async with listening(db_url) as (listener, waiter):
        for channel in (CHANGED, READY, "perdure_ping_0"):
            await notify(connection, channel, garbage)
        marker = await told(connection, waiter)
        assert listener.hearing
    assert (waiter.told, waiter.woken) == ([marker], 1)


async def test_a_waiter_that_raises_does_not_make_the_others_deaf(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with listening(db_url) as (listener, waiter):
        listener.on_changed(lambda _: 1 / 0)  # type: ignore[arg-type]  # it only raises
        await told(connection, waiter)
        await told(connection, waiter)
    assert [type(context["exception"]) for context in reported] == [ZeroDivisionError] * 2


async def test_a_killed_connection_is_noticed_at_once_and_those_who_wait_are_woken(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    async with listening(db_url) as (listener, waiter):
        for times in (2, 3):
            pid = await another_pid(connection, 0)
            await connection.execute("SELECT pg_terminate_backend($1)", pid)
            await another_pid(connection, pid)
            await hearing(listener)
            assert waiter.woken == times
            await told(connection, waiter)


async def test_a_connection_that_no_longer_listens_is_noticed_within_a_ping(
    db_url: str, connection: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[asyncpg.Connection[Any]] = []
    connect = asyncpg.connect

    async def remember(*args: Any, **kwargs: Any) -> asyncpg.Connection[Any]:
        opened.append(await connect(*args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(asyncpg, "connect", remember)
    async with listening(db_url, ping_seconds=0.05, pong_seconds=0.5) as (listener, waiter):
        pid = await another_pid(connection, 0)
        await opened[0].execute("UNLISTEN *")
        await another_pid(connection, pid)
        await hearing(listener)
        assert waiter.woken == 2
        await told(connection, waiter)
    assert len(opened) == 2


async def test_while_the_database_is_away_it_knows_that_it_does_not_hear(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    async with cable_to(db_url) as cable, listening(cable.url) as (listener, waiter):
        with capture_logs() as logs:
            await cable.pull_out()

            async def said_three_times() -> bool:
                return [line["log_level"] for line in logs[:3]] == ["warning"] * 3

            await eventually(said_three_times)
        assert (listener.hearing, waiter.woken) == (False, 1)
        await cable.plug_in()
        await hearing(listener)
        assert waiter.woken == 2
        await told(connection, waiter)


async def test_a_quiet_time_does_not_make_it_connect_anew(db_url: str, connection: asyncpg.Connection[Any]) -> None:
    async with listening(db_url, ping_seconds=0.01) as (listener, waiter):
        pid = await another_pid(connection, 0)
        await pings(connection, listener, 10)
        await told(connection, waiter)
        assert await another_pid(connection, 0) == pid
    assert waiter.woken == 1


async def test_its_own_pings_wake_nobody_else(db_url: str, connection: asyncpg.Connection[Any]) -> None:
    async with listening(db_url) as (_, still), listening(db_url, ping_seconds=0.01) as (restless, _other):
        await pings(connection, restless, 5)
        await told(connection, still)
    assert (still.woken, len(still.told)) == (1, 1)


async def test_when_it_ends_its_connection_is_gone(db_url: str, connection: asyncpg.Connection[Any]) -> None:
    async with listening(db_url):
        pass

    async def gone() -> bool:
        return await connection.fetch(PID) == []

    await eventually(gone)


async def test_it_ends_when_it_is_cancelled_at_whatever_moment(db_url: str) -> None:
    for turns in range(60):
        listener = Listener(db_url, ping_seconds=0.0)
        running = asyncio.create_task(listener.run())
        await hearing(listener)
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        ended, _ = await asyncio.wait({running}, timeout=5)
        assert ended, turns
