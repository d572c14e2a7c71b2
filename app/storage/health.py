"""What probes and metrics ask the database: on connections of their own, in bounded time, and not more often than
they are worth. However many ask, requests and workers do not wait for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import asyncpg

from app.storage.database import asyncpg_dsn

T = TypeVar("T")

PROBE_SECONDS = 2.0
FRESH_SECONDS = 1.0

REVISION = "SELECT version_num FROM perdure.alembic_version"


class Health:
    """Answers from the database, or an error, soon.

    Args:
        url: the database, as the process reaches it.
        name: shown as application_name to operators.
        probe_seconds: how long the database may take to show that it is there.
    """

    def __init__(self, url: str, *, name: str, probe_seconds: float = PROBE_SECONDS) -> None:
        self._probe = Line(url, name=name, seconds=probe_seconds)
        self._revision = Recent(self._read_revision, FRESH_SECONDS)

    async def revision(self) -> str | None:
        """The schema's revision; None for a database without tables of Perdure.

        Raises:
            any of `database.FAULTS`: the database does not answer.
        """
        return await self._revision.get()

    async def close(self) -> None:
        """Hang up."""
        await self._revision.close()
        self._probe.close()

    async def _read_revision(self) -> str | None:
        try:
            rows = await self._probe.ask(REVISION)
        except asyncpg.UndefinedTableError:
            return None
        return str(rows[0]["version_num"]) if rows else None


class Line:
    """One connection, opened when it is needed, for questions that must not take long.

    Args:
        seconds: how long one may take, the opening of the connection included.
    """

    def __init__(self, url: str, *, name: str, seconds: float) -> None:
        self._dsn, self._name, self._seconds = asyncpg_dsn(url), name, seconds
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def ask(self, statement: str, *args: object) -> list[asyncpg.Record]:
        """Run one statement; not two at once.

        Raises:
            any of `database.FAULTS`: it failed, or took too long.
        """
        try:
            async with asyncio.timeout(self._seconds):
                connection = await self._open()
                async with connection.transaction(readonly=True):  # a pooler may give each another connection
                    await connection.execute(f"SET LOCAL statement_timeout = {int(self._seconds * 1000)}")
                    return await connection.fetch(statement, *args)
        except BaseException as fault:
            if not isinstance(fault, asyncpg.PostgresError):
                self.close()  # whatever is under way on it is not waited for
            raise

    def close(self) -> None:
        """Hang up; the next question opens another connection."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _open(self) -> asyncpg.Connection[asyncpg.Record]:
        if self._connection is None or self._connection.is_closed():
            settings = {"application_name": self._name}
            self._connection = await asyncpg.connect(self._dsn, server_settings=settings, statement_cache_size=0)
        return self._connection


class Recent(Generic[T]):
    """Something that is asked for at most so often: all who want it meanwhile get the same answer, or error.

    Args:
        ask: asks for it.
        fresh_seconds: how long an answer is good for.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]], fresh_seconds: float) -> None:
        self._ask, self._fresh = ask, fresh_seconds
        self._asking: asyncio.Task[T] | None = None
        self._asked_at = float("-inf")

    async def get(self) -> T:
        """The answer, no older than it may be. Who leaves before it comes takes it from nobody else."""
        if self._asking is None or (self._asking.done() and time.monotonic() - self._asked_at >= self._fresh):
            self._asked_at = time.monotonic()
            self._asking = asyncio.create_task(self._answer())
            self._asking.add_done_callback(_look_at)
        return await asyncio.shield(self._asking)

    async def close(self) -> None:
        """Ask no longer."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    async def _answer(self) -> T:
        return await self._ask()


def _look_at(asked: asyncio.Task[Any]) -> None:
    """An error that nobody waited for is no news."""
    if not asked.cancelled():
        asked.exception()
