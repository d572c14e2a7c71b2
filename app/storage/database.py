"""Connections: how they are made, how many, and which of their errors pass by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import asyncpg
import stamina
import structlog
from sqlalchemy import make_url

from app.domain.fixed import fixed
from app.errors import SettingsError, StoreUnavailable

log = structlog.get_logger(__name__)

T = TypeVar("T")

BY_INDEX = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""What the planner is told about statements that touch a few rows by their keys. A session keeps its plans: one that
was made while a table was small would go on reading all of it after it has grown, until somebody analyzes it."""

PATIENCE_SECONDS = 30.0
"""How long a statement is tried again while the database restarts, fails over or has no connection to give."""

# Each of these means that the statement did not commit, or that its acknowledgement was lost; every statement of the
# store is safe to send again in both cases.
PASSING: tuple[type[Exception], ...] = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InsufficientResourcesError,  # too many connections, a full disk, no memory
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    TimeoutError,
)

FAULTS: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""All that a connection raises, for loops that go on whatever it is. The last two are raised for a connection that is
closed, but also for arguments that do not fit."""


def asyncpg_dsn(url: str) -> str:
    """Turn a database URL of any PostgreSQL scheme into the one that asyncpg reads.

    Raises:
        SettingsError: it is not the URL of a PostgreSQL database.
    """
    try:
        parsed = make_url(url)
    except Exception as unreadable:
        raise SettingsError(
            "DATABASE_URL cannot be read; it looks like postgresql://user@host:5432/name"
        ) from unreadable
    if parsed.drivername.split("+")[0] not in ("postgresql", "postgres"):
        raise SettingsError("DATABASE_URL must be that of a PostgreSQL database: postgresql://user@host:5432/name")
    return parsed.set(drivername="postgresql").render_as_string(hide_password=False)


AT_HAND = 4
"""Connections that are not given back to the pool each time: as many as a busy process uses at the same time."""

AT_HAND_SECONDS = 60.0
"""After this one is given back even so, and the pool may replace it; or is closed, if it was not used meanwhile."""


async def _keep(_: asyncpg.Connection[Any]) -> None:
    """Give a connection back as it is: no statement of the store leaves session state, and a RESET is a round trip."""


@dataclass(frozen=True, slots=True)
class Use:
    """How busy a pool is: the most connections that it opens, how many are in use, how many statements wait for one."""

    limit: int
    used: int
    waiting: int


@fixed
class _AtHand:
    """A connection that is not in use, since when the pool has not seen it, and when it was used last."""

    connection: asyncpg.Connection[asyncpg.Record]
    since: float
    used: float


class Database:
    """A pool of connections with a fair queue before it, and retries for faults that pass.

    Args:
        url: any PostgreSQL URL.
        name: shown as application_name to operators.
        connections: the most that are open at once.
        statement_seconds: a statement that takes longer is ended by the server.
        patience_seconds: how long a statement is tried again after a passing fault.
        pooled: a pooler stands between that hands each transaction to another connection of the server's. Then nothing
            is left in a session: each statement is in a transaction of its own, which sets its limits itself.
        by_index: every statement touches a few rows by their keys, and is to be planned for that; an operator's lists
            do not.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str = "perdure",
        connections: int = 10,
        statement_seconds: float = 30.0,
        patience_seconds: float = PATIENCE_SECONDS,
        pooled: bool = False,
        by_index: bool = True,
    ) -> None:
        self.url = url
        self.pooled = pooled
        self._dsn = asyncpg_dsn(url)
        self._connections = connections
        self._patience = patience_seconds
        # A server that is there ends a statement itself; one that fell silent never would.
        self._silence = statement_seconds + 2
        limits = (BY_INDEX if by_index else {}) | {
            "statement_timeout": str(int(statement_seconds * 1000)),
            "lock_timeout": "10000",
            "idle_in_transaction_session_timeout": "60000",
        }
        self._session = {"application_name": name} | ({} if pooled else limits)
        self._limit = "; ".join(f"SET LOCAL {setting} = {value}" for setting, value in limits.items())
        # asyncpg's own queue lets late callers overtake; this one is first come, first served.
        self._turn = asyncio.Semaphore(connections)
        self._asking = 0
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._is_closing = False
        self._at_hand: list[_AtHand] = []

    async def __aenter__(self) -> Self:
        """Open the first connection.

        Raises:
            StoreUnavailable: the database did not answer in time.
        """
        self._pool = await self._patiently(self._open)
        return self

    async def _open(self) -> asyncpg.Pool[asyncpg.Record]:
        pool = await asyncpg.create_pool(
            self._dsn,
            min_size=0,  # it would try all the time to have that many again while the server is away, and log each time
            max_size=self._connections,
            reset=_keep,
            server_settings=self._session,
            timeout=10,
            command_timeout=self._silence,
            statement_cache_size=0 if self.pooled else 100,
        )
        try:
            first, since = await self._taken(pool)
        except BaseException:
            pool.terminate()
            raise
        self._at_hand.append(_AtHand(first, since, since))
        return pool

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closing = True
        if self._pool is not None:
            try:
                async with asyncio.timeout(5):
                    while self._at_hand:
                        await self._give_back(self._pool, self._at_hand.pop().connection)
                    await self._pool.close()
            except TimeoutError:
                self._pool.terminate()

    @property
    def use(self) -> Use:
        """How busy the pool is."""
        return Use(self._connections, min(self._asking, self._connections), max(0, self._asking - self._connections))

    async def fetch(self, statement: str, *args: object) -> list[asyncpg.Record]:
        """Run one statement as its own transaction, again after a passing fault.

        Raises:
            StoreUnavailable: the fault did not pass in time.
        """

        return await self._patiently(partial(self.once, statement, *args))

    async def once(self, statement: str, *args: object) -> list[asyncpg.Record]:
        """Run one statement as its own transaction, whatever comes of it."""
        async with self.connection() as connection:
            try:
                if self.pooled:
                    return await self._alone(connection, statement, args)
                return await connection.fetch(statement, *args)
            except (asyncpg.InterfaceError, asyncpg.InternalClientError) as fault:
                if connection.is_closed():
                    raise ConnectionResetError("the connection was lost") from fault
                raise

    async def fetchrow(self, statement: str, *args: object) -> asyncpg.Record | None:
        """As `fetch`, for the first row, or None."""
        rows = await self.fetch(statement, *args)
        return rows[0] if rows else None

    async def _alone(
        self, connection: asyncpg.Connection[asyncpg.Record], statement: str, args: tuple[object, ...]
    ) -> list[asyncpg.Record]:
        async with connection.transaction():
            await connection.execute(self._limit)
            return await connection.fetch(statement, *args)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """One connection, in the order of asking.

        Those that were used last stay at hand: taking one from the pool, and giving it back, costs as much as a
        statement. One that something has befallen goes back at once, and each after a while: the pool sees to it. One
        that was not used for a while is used no more: whatever stands between may have forgotten it.
        """
        if self._pool is None:
            raise AssertionError("the database is used before it was opened")
        self._asking += 1
        try:
            async with self._turn:
                connection, since = await self._taken(self._pool)
                well = False
                try:
                    yield connection
                    well = True
                finally:
                    if well and self._stays(since):
                        self._at_hand.append(_AtHand(connection, since, _now()))
                    else:
                        await self._give_back(self._pool, connection)
        finally:
            self._asking -= 1

    def _stays(self, since: float) -> bool:
        return not self._is_closing and len(self._at_hand) < AT_HAND and _now() - since < AT_HAND_SECONDS

    async def _taken(self, pool: asyncpg.Pool[asyncpg.Record]) -> tuple[asyncpg.Connection[asyncpg.Record], float]:
        """A connection, and since when the pool has not seen it."""
        while self._at_hand:
            last = self._at_hand.pop()
            if not _is_lost(last.connection):
                if _now() - last.used < AT_HAND_SECONDS:
                    return last.connection, last.since
                last.connection.terminate()
            await self._give_back(pool, last.connection)
        proxy: Any = await pool.acquire()  # it has all of a connection's methods
        return proxy, _now()

    async def _give_back(self, pool: asyncpg.Pool[asyncpg.Record], connection: Any) -> None:
        """A connection that was lost cannot be given back; what its user met with, a cancel above all, stands."""
        try:
            await pool.release(connection)
        except (asyncpg.InterfaceError, asyncpg.InternalClientError) as lost:
            log.debug("a lost connection was not given back", fault=type(lost).__name__)

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work, again after each passing fault, until the patience is over."""
        until = asyncio.get_running_loop().time() + self._patience
        try:
            return await work()  # at first without all that another try takes
        except PASSING as fault:
            return await self._again(work, fault, until)

    async def _again(self, work: Callable[[], Awaitable[T]], fault: Exception, until: float) -> T:
        left = until - asyncio.get_running_loop().time()
        retries = stamina.retry_context(
            on=PASSING, attempts=None, timeout=left, wait_initial=0.05, wait_max=2.0, wait_jitter=0.1
        )
        try:
            if left > 0:
                async for attempt in retries:
                    with attempt:
                        return await work()
        except PASSING as last:
            fault = last
        log.warning("database unavailable", fault=type(fault).__name__)
        raise StoreUnavailable("The task store cannot be reached. Try again later.") from fault


def _is_lost(connection: asyncpg.Connection[asyncpg.Record]) -> bool:
    """Whether a connection has gone away while nothing used it: the pool then takes it back by itself."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()
