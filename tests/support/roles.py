"""Roles that can log in, for as long as a test needs them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from app.storage.roles import script


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection, for as long as this is entered."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


@asynccontextmanager
async def member(db_url: str, *groups: str) -> AsyncIterator[str]:
    """The URL of a role that can log in and is in these groups, for as long as this is entered."""
    name = f"somebody_{secrets.token_hex(6)}"
    async with connected(db_url) as owner:
        await owner.execute(script())
        await owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}' IN ROLE {', '.join(groups)}")
        parts = urlsplit(db_url)
        place = parts.netloc.rpartition("@")[2]
        yield urlunsplit(parts._replace(netloc=f"{name}:{name}@{place}"))
        await owner.execute(f"DROP ROLE {name}")
