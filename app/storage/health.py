"""What probes and metrics ask the database: on connections of their own, in bounded time, and not more often than
they are worth. However many ask, requests and workers do not wait for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import asyncpg

from app.storage.database import asyncpg_dsn

T = TypeVar("T")

PROBE_SECONDS = 2.0
FRESH_SECONDS = 1.0

FIGURES_SECONDS = 3.0
FIGURES_FRESH_SECONDS = 5.0
TOOLS = 1000
"""The most tools that are shown, those with the most work."""

REVISION = "SELECT version_num FROM perdure.alembic_version"

# $1 the most rows. As the view: live tasks only, by partial indexes, and the catalogue.
QUEUES = """
SELECT h.tool, h.queued, h.scheduled, h.running, h.waiting_for_answers, h.workers,
    extract(epoch FROM h.oldest_wait)::float8 AS oldest_wait
FROM perdure.queue_health AS h
ORDER BY h.queued + h.scheduled + h.running + h.waiting_for_answers DESC, h.tool
LIMIT $1"""

# Sessions of other roles show their xmin only to members of pg_read_all_stats; slots and prepared transactions to all.
SERVER = """
SELECT pg_notification_queue_usage() AS notification_queue,
    greatest(
        (SELECT max(age(a.backend_xmin)) FROM pg_stat_activity AS a),
        (SELECT max(greatest(age(s.xmin), age(s.catalog_xmin))) FROM pg_replication_slots AS s),
        (SELECT max(age(p.transaction)) FROM pg_prepared_xacts AS p), 0) AS xmin_age"""


@dataclass(frozen=True, slots=True)
class Figures:
    """What metrics say of the database.

    Attributes:
        queues: rows of queue_health, waits in seconds.
        notification_queue: how full PostgreSQL's queue of notifications is, 0 to 1.
        xmin_age: how many transactions VACUUM is held back.
    """

    queues: Sequence[Mapping[str, Any]]
    notification_queue: float
    xmin_age: int


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
        # Apart from the probe, which must not wait for it.
        self._counter = Line(url, name=name, seconds=FIGURES_SECONDS)
        self._figures = Recent(self._read_figures, FIGURES_FRESH_SECONDS)

    async def revision(self) -> str | None:
        """The schema's revision; None for a database without tables of Perdure.

        Raises:
            any of `database.FAULTS`: the database does not answer.
        """
        return await self._revision.get()

    async def figures(self) -> Figures:
        """What metrics say of the database, no older than a few seconds.

        Raises:
            any of `database.FAULTS`: the database does not answer in time.
        """
        return await self._figures.get()

    async def close(self) -> None:
        """Hang up."""
        await self._revision.close()
        await self._figures.close()
        self._probe.close()
        self._counter.close()

    async def _read_figures(self) -> Figures:
        queues = await self._counter.ask(QUEUES, TOOLS)
        [server] = await self._counter.ask(SERVER)
        return Figures([dict(row) for row in queues], server["notification_queue"], server["xmin_age"])

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
