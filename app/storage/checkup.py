"""What can be wrong with a database that Perdure works on, looked for one by one: each is told with what to do.

Nothing here waits for the database to come back, and nothing is changed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias

import asyncpg

from app.errors import PerdureError
from app.storage import migrate
from app.storage.database import FAULTS, asyncpg_dsn
from app.storage.schema import SCHEMA, metadata

OLDEST_SERVER = 140000
SECONDS = 10.0
"""How long a connection or a statement may take."""

HEARING_SECONDS = 3.0
CLOCK_WARN, CLOCK_FAIL = timedelta(seconds=5), timedelta(minutes=10)
LONG_TRANSACTION = timedelta(minutes=10)
LONG_IDLE = timedelta(minutes=1)
QUEUE_WARN, QUEUE_FAIL = 0.25, 0.75
CONNECTIONS_WARN = 0.9
DEAD_ROWS = 100_000
NAMED = 5
"""So many tools are named where more are meant."""


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, and one sentence that says how it is, or what to do."""

    name: str
    level: Level
    says: str


Connection: TypeAlias = "asyncpg.Connection[Any]"


async def check_up(url: str, direct: str | None, *, pooled: bool, notify: bool) -> AsyncIterator[Finding]:
    """Look at everything, the more basic first; what depends on something that fails is left out.

    Args:
        url: as processes use it.
        direct: past a pooler; None where there is no such way.
        pooled: whether processes are told that a transaction pooler stands between.
        notify: whether processes wake each other.
    """
    try:
        async with _connected(url) as connection:
            yield await _server(connection)
            schema = await _schema(direct or url)
            yield schema
            yield await _pooler(url, connection, pooled)
            yield await _clock(connection)
            yield await _hearing(direct if notify else None)
            for look in (_queue, _connections, _autovacuum, _transactions):
                yield await _alone(look, connection)
            if schema.level is Level.OK:
                for look in (_role, _tables, _workers, _tools):
                    yield await _alone(look, connection)
    except asyncpg.PostgresError as refused:
        yield Finding("database", Level.FAIL, f"The server refuses: {refused}. Check DATABASE_URL.")
    except FAULTS as fault:
        reason = type(fault).__name__
        yield Finding("database", Level.FAIL, f"It cannot be reached ({reason}): check DATABASE_URL, and that it runs.")


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(
        asyncpg_dsn(url),
        timeout=SECONDS,
        command_timeout=SECONDS,
        statement_cache_size=0,
        server_settings={"application_name": "perdure check"},
    )
    try:
        yield connection
    finally:
        connection.terminate()


async def _one(connection: Connection, query: str, *args: object) -> asyncpg.Record:
    rows: list[asyncpg.Record] = await connection.fetch(query, *args)
    return rows[0]


async def _alone(look: Callable[[Connection], Awaitable[Finding]], connection: Connection) -> Finding:
    """One look; a role that may not see this much does not end the others."""
    try:
        return await look(connection)
    except asyncpg.InsufficientPrivilegeError:
        name = look.__name__.strip("_").replace("_", " ")
        return Finding(name, Level.WARN, "The role in DATABASE_URL may not look at this: use the one of the service.")


async def _server(connection: Connection) -> Finding:
    version, number, name = await _one(
        connection,
        "SELECT current_setting('server_version'), current_setting('server_version_num')::int, current_database()",
    )
    if number < OLDEST_SERVER:
        return Finding("database", Level.FAIL, f"It is PostgreSQL {version}: upgrade it to 14 or later.")
    return Finding("database", Level.OK, f"PostgreSQL {version}, database {name}.")


async def _schema(url: str) -> Finding:
    try:
        await migrate.require_head(url, writes=False)
    except PerdureError as wrong:
        return Finding("schema", Level.FAIL, f"{wrong}.")
    return Finding("schema", Level.OK, "It is at the revision of this release.")


async def _pooler(url: str, connection: Connection, pooled: bool) -> Finding:
    """A pooler gives a client a process id of its own making, and in transaction mode two idle clients one process."""
    between = await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid()
    async with _connected(url) as other:
        pid = "SELECT pg_backend_pid()"
        shared = await connection.fetchval(pid) == await other.fetchval(pid)
    if shared and not pooled:
        says = "DATABASE_URL leads through a transaction pooler: set PERDURE_POOLED=true, and PERDURE_DIRECT_URL."
        return Finding("pooler", Level.FAIL, says)
    if between and not pooled:
        says = (
            "A pooler stands before the database: if it hands out connections by transaction, set PERDURE_POOLED=true."
        )
        return Finding("pooler", Level.WARN, says)
    return Finding("pooler", Level.OK, "PERDURE_POOLED is set." if pooled else "None stands before the database.")


async def _clock(connection: Connection) -> Finding:
    before = datetime.now(UTC)
    theirs = await connection.fetchval("SELECT clock_timestamp()")
    after = datetime.now(UTC)
    apart = max(before - theirs, theirs - after, timedelta())
    level = Level.FAIL if apart > CLOCK_FAIL else Level.WARN if apart > CLOCK_WARN else Level.OK
    says = f"This machine's clock and the database's are {apart.total_seconds():.1f} s apart"
    return Finding("clock", level, f"{says}." if level is Level.OK else f"{says}: let NTP set both.")


async def _hearing(direct: str | None) -> Finding:
    """Whether a notification arrives that is sent to oneself."""
    if direct is None:
        says = (
            "Processes do not listen, they find changes by polling: set PERDURE_DIRECT_URL or PERDURE_NOTIFY to change."
        )
        return Finding("notifications", Level.OK, says)
    heard, channel = asyncio.Event(), f"perdure_check_{secrets.token_hex(8)}"
    try:
        async with _connected(direct) as connection, asyncio.timeout(HEARING_SECONDS):
            await connection.add_listener(channel, lambda *_: heard.set())
            await connection.execute(f"NOTIFY {channel}")
            await heard.wait()
    except FAULTS:
        says = "LISTEN does not work, changes are found by polling: let PERDURE_DIRECT_URL lead to the database itself."
        return Finding("notifications", Level.WARN, says)
    return Finding("notifications", Level.OK, "LISTEN works.")


async def _queue(connection: Connection) -> Finding:
    usage = await connection.fetchval("SELECT pg_notification_queue_usage()")
    level = Level.FAIL if usage > QUEUE_FAIL else Level.WARN if usage > QUEUE_WARN else Level.OK
    says = f"{usage:.0%} of the server's queue is in use"
    more = "." if level is Level.OK else ": end the session that listens in a transaction which does not end."
    return Finding("notification queue", level, says + more)


async def _connections(connection: Connection) -> Finding:
    used, most = await _one(
        connection,
        "SELECT count(*), current_setting('max_connections')::int "
        "FROM pg_stat_activity WHERE backend_type = 'client backend'",
    )
    if used >= CONNECTIONS_WARN * most:
        says = f"{used} of {most} are in use: raise max_connections, or lower PERDURE_DATABASE_CONNECTIONS."
        return Finding("connections", Level.WARN, says)
    return Finding("connections", Level.OK, f"{used} of {most} are in use.")


async def _autovacuum(connection: Connection) -> Finding:
    off = await connection.fetch(
        "SELECT name FROM pg_settings WHERE name IN ('autovacuum', 'track_counts') AND setting <> 'on' ORDER BY name"
    )
    if off:
        names = " and ".join(row["name"] for row in off)
        return Finding("autovacuum", Level.FAIL, f"The server's {names} is off: turn it on, or tables grow for ever.")
    return Finding("autovacuum", Level.OK, "It is on.")


async def _transactions(connection: Connection) -> Finding:
    """What keeps vacuum from removing rows that nobody needs any more."""
    row = await _one(
        connection,
        """
        SELECT max(now() - a.xact_start) AS oldest,
            max(now() - a.state_change) FILTER (WHERE a.state LIKE 'idle in transaction%') AS idle,
            (SELECT count(*) FROM pg_prepared_xacts WHERE prepared < now() - $1::interval) AS prepared,
            (SELECT count(*) FROM pg_replication_slots WHERE NOT active AND coalesce(xmin, catalog_xmin) IS NOT NULL)
                AS slots,
            (SELECT max(age(backend_xmin)) FROM pg_stat_activity) AS xids
        FROM pg_stat_activity AS a
        WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()""",
        LONG_TRANSACTION,
    )
    oldest, idle = row["oldest"] or timedelta(), row["idle"] or timedelta()
    held = [
        f"a transaction runs since {oldest.total_seconds():.0f} s" if oldest > LONG_TRANSACTION else "",
        f"a session is idle in its transaction since {idle.total_seconds():.0f} s" if idle > LONG_IDLE else "",
        f"{row['prepared']} prepared transactions are left" if row["prepared"] else "",
        f"{row['slots']} replication slots have no reader" if row["slots"] else "",
    ]
    if any(held):
        says = " and ".join(text for text in held if text)
        return Finding("oldest xmin", Level.WARN, f"Vacuum is held back, {says}: end them (docs/sql.md finds them).")
    return Finding("oldest xmin", Level.OK, f"Vacuum is held back by {row['xids'] or 0} transactions at most.")


async def _role(connection: Connection) -> Finding:
    if not await connection.fetchval(migrate.WRITES):
        return Finding("role", Level.FAIL, "The role may not write: run as one in perdure_app (perdure roles).")
    return Finding("role", Level.OK, "It may write.")


async def _tables(connection: Connection) -> Finding:
    """The tables' own settings, and whether vacuum keeps up."""
    rows = await connection.fetch(
        """
        SELECT c.relname AS name, coalesce(c.reloptions, '{}') AS options, s.n_dead_tup AS dead, s.n_live_tup AS live
        FROM pg_class AS c LEFT JOIN pg_stat_user_tables AS s ON s.relid = c.oid
        WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'r'""",
        SCHEMA,
    )
    found = {row["name"]: row for row in rows}
    changed = [
        table.name
        for table in metadata.sorted_tables
        if not {f"{k}={v}" for k, v in table.dialect_options["postgresql"]["with"].items()}
        <= set(found[table.name]["options"])
    ]
    behind = [n for n, row in found.items() if (row["dead"] or 0) > max(DEAD_ROWS, (row["live"] or 0) // 5)]
    off = [name for name, row in found.items() if "autovacuum_enabled=false" in row["options"]]
    if off:
        return Finding(
            "tables", Level.FAIL, f"Autovacuum is off for {', '.join(off)}: ALTER TABLE … RESET (autovacuum_enabled)."
        )
    if behind:
        return Finding("tables", Level.WARN, f"Vacuum is behind on {', '.join(behind)}: look at what holds it back.")
    if changed:
        return Finding("tables", Level.WARN, f"Somebody has changed the storage settings of {', '.join(changed)}.")
    return Finding("tables", Level.OK, "They have their own autovacuum settings, and vacuum keeps up.")


async def _workers(connection: Connection) -> Finding:
    row = await _one(
        connection,
        """
        SELECT count(*) FILTER (WHERE w.alive AND NOT w.draining) AS alive,
            count(*) FILTER (WHERE w.alive AND w.draining) AS draining,
            (
                SELECT count(*)
                FROM perdure.tasks AS t
                LEFT JOIN perdure.workers AS h ON h.worker_id = t.worker_id
                WHERE t.worker_id IS NOT NULL
                    AND coalesce(h.beat_at < now() - h.lease_ms * interval '1 ms' * 2, true)
            ) AS lost
        FROM (SELECT draining, beat_at > now() - lease_ms * interval '1 ms' AS alive FROM perdure.workers) AS w""",
    )
    if not row["alive"]:
        return Finding("workers", Level.FAIL, "None is alive: start one with `perdure worker --tools …`.")
    if row["lost"]:
        says = (
            f"{row['lost']} tasks belong to workers that are gone, and nobody rescues them: look at the workers' logs."
        )
        return Finding("workers", Level.WARN, says)
    return Finding("workers", Level.OK, f"{row['alive']} alive, {row['draining']} draining.")


async def _tools(connection: Connection) -> Finding:
    rows = await connection.fetch(
        "SELECT tool, queued + running AS wanted FROM perdure.queue_health WHERE workers = 0 ORDER BY tool"
    )
    waiting = [row["tool"] for row in rows if row["wanted"]]
    for tools, level in ((waiting, Level.FAIL), ([row["tool"] for row in rows], Level.WARN)):
        if tools:
            named = ", ".join(tools[:NAMED]) + ("" if len(tools) <= NAMED else f" and {len(tools) - NAMED} more")
            what = "Tasks wait for tools that no worker has" if level is Level.FAIL else "No worker has these tools"
            return Finding("tools", level, f"{what}: {named}. Start a worker with them.")
    return Finding("tools", Level.OK, "Every tool has a worker.")
