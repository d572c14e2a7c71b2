"""Steps that write to the same database: the step's writes and the memory of it commit together, once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

import asyncpg
import structlog
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.domain.task import Claim, Json
from app.errors import StaleAttempt, StoreUnavailable
from app.storage import statements as sql
from app.storage.database import PASSING, Database, asyncpg_dsn
from app.telemetry.metrics import STALE

log = structlog.get_logger(__name__)

_TRIES = 8


class _OwnError(Exception):
    def __init__(self, error: OSError) -> None:
        self.error = error


class Transactions:
    """Runs `ctx.transaction` on connections of its own, so that slow authors starve nobody.

    Args:
        database: read to learn whether a commit whose acknowledgement was lost had happened.
        connections: the most transactions at once.
        idle_seconds: a transaction that sits idle for longer is ended by the server; the worker's lease.
    """

    def __init__(self, database: Database, *, connections: int = 5, idle_seconds: float = 20.0) -> None:
        self._database = database
        dsn = asyncpg_dsn(database.url)
        self._idle = f"SET LOCAL idle_in_transaction_session_timeout = {int(idle_seconds * 1000)}"

        async def connect() -> asyncpg.Connection[asyncpg.Record]:  # by asyncpg, which knows all options of the URL
            settings = {"application_name": "perdure transactions"}
            return await asyncpg.connect(dsn, timeout=10, server_settings=settings, statement_cache_size=0)

        self._engine: AsyncEngine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=connect,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=60,
            hide_parameters=True,  # they are arguments, which belong in no error and no log
            # Behind a pooler the server's connection may know a name already that another process has given.
            connect_args={"prepared_statement_cache_size": 0, "prepared_statement_name_func": _name},
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._engine.dispose()

    async def run(self, claim: Claim, name: str, fn: Callable[[AsyncConnection], Awaitable[Json]]) -> Json:
        """Run fn in a transaction that also holds the fence and the memo.

        After a commit whose outcome is unknown the memo is read: there, its value stands; not there, nothing was
        written and fn runs again.

        Raises:
            StaleAttempt: the task is no longer this attempt's; nothing was written.
            StoreUnavailable: the database could not be reached.
        """
        for attempt in range(_TRIES):
            try:
                return await self._once(claim, name, fn)
            except _OwnError as own:
                raise own.error from None
            except PoolTimeout as starved:  # before fn ran
                raise StoreUnavailable("All connections for transactions are in use.") from starved
            except (DBAPIError, OSError) as fault:
                if not _unknown(fault):
                    raise
                log.warning("transaction interrupted", step=name, fault=type(fault).__name__)
            row = await self._database.fetchrow(sql.OWN_STEP, claim.task_id, claim.epoch, name)
            if row is not None:
                stands: Json = row["value"]
                return stands
            await asyncio.sleep(min(0.1 * 2**attempt, 2.0))
        raise StoreUnavailable("The task store cannot be reached. Try again later.")

    async def _once(self, claim: Claim, name: str, fn: Callable[[AsyncConnection], Awaitable[Json]]) -> Json:
        async with self._engine.begin() as connection:
            # SQLAlchemy sends BEGIN with its first statement: without one, what fn does on the driver's own connection
            # would be committed by itself. It also finds out that a pooled connection is dead.
            await connection.exec_driver_sql(self._idle)
            try:
                value = await fn(connection)
            except OSError as error:  # the tool's own, of a file say: not one of our connection's
                raise _OwnError(error) from error
            fence = await connection.exec_driver_sql(sql.FENCE, (claim.task_id, claim.epoch, claim.worker_id))
            if fence.first() is None:
                STALE.inc()
                raise StaleAttempt("The attempt no longer holds its task; the transaction was rolled back.")
            await connection.exec_driver_sql(sql.MEMO, (claim.task_id, name, value, claim.epoch))
        return value


def _name() -> str:
    return f"perdure_{uuid4().hex}"


def _unknown(fault: BaseException) -> bool:
    """True where a transaction may or may not have committed: the connection broke, or the memo is there already."""
    if isinstance(fault, IntegrityError):
        return "task_steps_pkey" in str(fault.orig)
    if isinstance(fault, DBAPIError):
        return fault.connection_invalidated or isinstance(getattr(fault.orig, "__cause__", None), PASSING)
    return isinstance(fault, OSError)
