"""What a connection is to be reminded of happens in time, whatever it was reminded of before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from app.http.connections import Connection
from tests.support.waiting import eventually

LONG, SOON = 600.0, 0.01


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    async def never(_: web.BaseRequest) -> web.StreamResponse:
        raise AssertionError("there is no request")

    server = web.Server(never)
    made = Connection(server, loop=asyncio.get_running_loop())
    yield made
    made.forget()
    made.connection_lost(None)
    assert made._timer is None


async def rang(told: list[str], *names: str) -> None:
    """Wait until this was told, and nothing else."""

    async def look() -> bool:
        return len(told) >= len(names)

    await eventually(look)
    assert told == list(names)


async def test_what_comes_after_something_that_was_forgotten_is_told_at_its_own_time(connection: Connection) -> None:
    told: list[str] = []
    connection.remind(SOON, lambda: told.append("forgotten"))
    connection.forget()
    connection.remind(2 * SOON, lambda: told.append("later"))
    due = connection._act_at
    await rang(told, "later")
    assert asyncio.get_running_loop().time() >= due
    assert connection._timer is None


async def test_what_comes_sooner_than_what_was_forgotten_does_not_wait_for_that(connection: Connection) -> None:
    told: list[str] = []
    connection.remind(LONG, lambda: told.append("forgotten"))
    connection.forget()
    connection.remind(SOON, lambda: told.append("soon"))
    await rang(told, "soon")


async def test_a_timer_serves_many_that_are_forgotten(connection: Connection) -> None:
    told: list[str] = []
    for _ in range(3):
        connection.remind(LONG, lambda: told.append("forgotten"))
        timer = connection._timer
        connection.forget()
        connection.remind(LONG, lambda: told.append("forgotten"))
        assert connection._timer is timer
    connection.forget()
    connection._timer_at = 0.0
    connection._ring()
    assert (told, connection._timer) == ([], None)
