"""How alembic connects. From a shell it needs only DATABASE_URL; a caller may set one of `config.attributes` instead.

`url` is the database to migrate. `connection` is one to migrate on, the only way in a running event loop; a transaction
that the caller has begun on it is the caller's to commit.
"""

from __future__ import annotations

import asyncio
import os
from logging.config import fileConfig
from typing import Any

import asyncpg
from alembic import context
from sqlalchemy import pool, text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from app.storage.database import asyncpg_dsn
from app.storage.schema import SCHEMA, metadata

MIGRATING = int.from_bytes(b"perdure")
"""The advisory lock that a migration holds. Its transaction holds it: a session's lock is lost behind a pooler."""


def main() -> None:
    """Run what alembic was asked for."""
    config = context.config
    if config.config_file_name and not config.attributes:  # a caller keeps its own logging
        fileConfig(config.config_file_name, disable_existing_loggers=False)
    if context.is_offline_mode():
        write_script()
    elif (connection := config.attributes.get("connection")) is not None:
        migrate(connection)
    else:
        asyncio.run(connect_and_migrate(config.attributes.get("url") or database_url()))


def database_url() -> str:
    """The environment's DATABASE_URL."""
    if url := os.environ.get("DATABASE_URL"):
        return url
    raise SystemExit("set DATABASE_URL to the database to migrate: postgresql://user:password@host:5432/name")


async def connect_and_migrate(url: str) -> None:
    """Migrate on a connection of our own, made by asyncpg from the whole URL: it knows libpq's options."""

    async def connect() -> Any:
        return await asyncpg.connect(asyncpg_dsn(url))

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=pool.NullPool)
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
    await engine.dispose()


def migrate(connection: Connection) -> None:
    """Run on this connection, one migrator at a time; the second finds the work done."""
    configure(connection=connection)
    with context.begin_transaction():
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATING})
        # What waits for a busy table's lock makes all others wait behind it: rather fail, and be run again.
        connection.execute(text("SET LOCAL lock_timeout = '10s'"))
        # Asked first, because IF NOT EXISTS still wants the right to create it.
        if connection.scalar(text("SELECT to_regnamespace(:schema) IS NULL"), {"schema": SCHEMA}):
            connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        context.run_migrations()


def write_script() -> None:
    """Print the SQL, for `--sql`."""
    configure(dialect_name="postgresql", literal_binds=True)
    with context.begin_transaction():
        context.execute("SET LOCAL lock_timeout = '10s'")
        context.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        context.run_migrations()


def configure(**how: Any) -> None:
    """Only what lies in our schema is ours to compare; alembic's own table is there too."""
    context.configure(
        target_metadata=metadata,
        version_table_schema=SCHEMA,
        include_schemas=True,
        include_name=lambda name, kind, _: kind != "schema" or name == SCHEMA,
        compare_server_default=True,
        **how,
    )


main()
