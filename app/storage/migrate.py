"""The schema's revision: bringing a database to the one that this release needs, and refusing to work on another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg
import stamina
import structlog
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, pool
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from app.errors import SchemaError, SettingsError, StoreUnavailable
from app.storage.database import PASSING, PATIENCE_SECONDS, asyncpg_dsn

log = structlog.get_logger(__name__)

_LOCKED = ("55P03", "40P01")  # lock_not_available, deadlock_detected

OPERATOR_PATIENCE_SECONDS = 5.0
"""How long a person who looks is kept waiting for a server that does not answer."""


async def upgrade(url: str, *, tries: int = 10, pause_seconds: float = 2.0) -> str:
    """Bring the database to this release's revision. Others that try at the same time wait, and find the work done.

    A migration that does not get its locks within 10 s gives up, so that nobody waits behind it, and is tried again.

    Args:
        tries: how often it is tried.
        pause_seconds: how long it leaves the tables to others in between.

    Returns:
        The revision that it is at now.

    Raises:
        SchemaError: the database is at a revision that this release does not know, has tables and no revision, or was
            too busy. In all cases nothing was changed.
        SettingsError: the server does not let us in.
        StoreUnavailable: the server could not be reached in time.
    """
    head = _scripts().get_current_head() or ""
    for last in [False] * (tries - 1) + [True]:
        async with _connect(url) as connection:
            found = await _revision(connection)
            _check_known(found)
            if found is None:
                await _require_nothing(connection)
            try:
                await _run(connection, lambda config: command.upgrade(config, "head"))
            except DBAPIError as refused:
                if last or getattr(refused.orig, "sqlstate", None) not in _LOCKED:
                    raise _explain(refused) from refused
            else:
                return head
        log.warning("the migration waits for a busy table", pause_seconds=pause_seconds)
        await asyncio.sleep(pause_seconds)
    raise AssertionError("the last try neither returned nor raised")


async def current(url: str) -> str | None:
    """The revision that the database is at; None: Perdure has no tables there.

    Raises:
        SettingsError: the server does not let us in.
        StoreUnavailable: the server could not be reached in time.
    """
    async with _connect(url) as connection:
        return await _revision(connection)


async def require_head(url: str, *, writes: bool = True) -> None:
    """Return if the database is at this release's revision, and this role may write there.

    Args:
        writes: whether it has to; an operator's command need not, and does not wait for the server for long.

    Raises:
        SchemaError: it is at another, or the role may not; the message says what to do.
        SettingsError: the server does not let us in.
        StoreUnavailable: the server could not be reached in time.
    """
    head = _scripts().get_current_head()
    patience_seconds = PATIENCE_SECONDS if writes else OPERATOR_PATIENCE_SECONDS
    found: str | None = None
    async for attempt in stamina.retry_context(on=_WentAway, attempts=None, timeout=patience_seconds):
        with attempt:  # it only looks, and may look again
            async with _connect(url, patience_seconds) as connection:
                found = await _revision(connection)
                if found == head and writes:
                    await _require_rights(connection)
    if found == head:
        return
    _check_known(found)
    if found is None:
        raise SchemaError("The database has no tables of Perdure yet: run `perdure migrate`")
    raise SchemaError(f"The database is at revision {found}, this release needs {head}: run `perdure migrate`")


class _WentAway(StoreUnavailable):
    """It answered at first."""


class Standing(StrEnum):
    """How a database's revision stands to this release's."""

    NONE = "no tables"
    BEHIND = "behind"
    HEAD = "head"
    NEWER = "newer"


def standing(found: str | None) -> Standing:
    """Compare a database's revision with this release's.

    A newer one is nothing to a process that runs: migrations first expand, so that the release before goes on.
    """
    known = _known()
    if found is None:
        return Standing.NONE
    if found not in known:
        return Standing.NEWER
    return Standing.HEAD if found == known[0] else Standing.BEHIND


def alembic_config() -> Config:
    """Alembic's configuration, with the migrations of this release: beside the code in a wheel, else the checkout's."""
    package = Path(__file__).parents[1]
    folder = next(path for path in (package / "migrations", package.parent / "migrations") if path.is_dir())
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(alembic_config())


@cache
def _known() -> tuple[str, ...]:
    """All revisions of this release, the newest first."""
    return tuple(script.revision for script in _scripts().walk_revisions())


def _check_known(found: str | None) -> None:
    if standing(found) is Standing.NEWER:
        raise SchemaError(
            f"The database is at revision {found}, which this release does not know: a newer one has migrated it. "
            "Run that release; the `perdure migrate` of this one cannot go back"
        )


def _explain(refused: DBAPIError) -> Exception:
    state = getattr(refused.orig, "sqlstate", None)
    if refused.connection_invalidated:
        return StoreUnavailable("The database went away in the middle: run `perdure migrate` again")
    if state in _LOCKED:
        return SchemaError("The tables are too busy to be migrated. Nothing was changed: run `perdure migrate` again")
    if state == asyncpg.InsufficientPrivilegeError.sqlstate:
        return SchemaError("The role in DATABASE_URL may not make tables: run `perdure migrate` with one that may")
    return refused


async def _revision(connection: asyncpg.Connection[Any]) -> str | None:
    try:
        async with connection.transaction():  # through a pooler, as the processes start
            found: str | None = await connection.fetchval("SELECT version_num FROM perdure.alembic_version")
    except asyncpg.UndefinedTableError:
        return None
    except asyncpg.InsufficientPrivilegeError as refused:
        raise SchemaError(
            "The role in DATABASE_URL may not read the schema perdure: grant it USAGE and SELECT"
        ) from refused
    return found


WRITES = "SELECT has_table_privilege('perdure.tasks', 'INSERT') AND has_table_privilege('perdure.tasks', 'UPDATE')"


async def _require_nothing(connection: asyncpg.Connection[Any]) -> None:
    async with connection.transaction():
        if await connection.fetchval("SELECT to_regclass('perdure.tasks') IS NULL"):
            return
    raise SchemaError(
        "The database has tables of Perdure, but perdure.alembic_version does not say of which revision: restore that "
        "row too, or write it with `alembic stamp` if you know the revision"
    )


async def _require_rights(connection: asyncpg.Connection[Any]) -> None:
    async with connection.transaction():
        if await connection.fetchval(WRITES):
            return
    raise SchemaError(
        "The role in DATABASE_URL may not write the tables of Perdure: run as one that is in perdure_app, which "
        "`perdure roles` makes"
    )


async def _run(connection: asyncpg.Connection[Any], what: Callable[[Config], object]) -> None:
    """Run an alembic command on this connection. Alembic's context is global: not two at once in one process."""
    config = alembic_config()

    def run(bound: Connection) -> None:
        config.attributes["connection"] = bound
        what(config)

    async def lend() -> Any:
        return connection

    engine = create_async_engine("postgresql+asyncpg://", async_creator=lend, poolclass=pool.NullPool)
    async with engine.connect() as lent:
        await lent.run_sync(run)


@asynccontextmanager
async def _connect(url: str, patience_seconds: float = PATIENCE_SECONDS) -> AsyncIterator[asyncpg.Connection[Any]]:
    """One connection, with patience for a server that is just starting."""
    dsn = asyncpg_dsn(url)
    connection: asyncpg.Connection[Any] | None = None
    try:
        async for attempt in stamina.retry_context(on=PASSING, attempts=None, timeout=patience_seconds):
            with attempt:
                connection = await asyncpg.connect(
                    dsn, timeout=10, server_settings={"application_name": "perdure"}, statement_cache_size=0
                )
    except PASSING as fault:
        raise StoreUnavailable(
            "The database cannot be reached: check that it runs, and DATABASE_URL; in a password, @ / : are written as "
            "%40 %2F %3A"
        ) from fault
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as refused:
        raise SettingsError(f"DATABASE_URL is refused by the server: {refused}") from refused
    if connection is None:
        raise AssertionError("a retried connect neither returned nor raised")
    try:
        yield connection
    except PASSING as fault:
        raise _WentAway("The database went away in the middle: try again") from fault
    except (asyncpg.InterfaceError, asyncpg.InternalClientError) as fault:
        if connection.is_closed():  # it went between two statements
            raise _WentAway("The database went away in the middle: try again") from fault
        raise
    finally:
        await connection.close()
