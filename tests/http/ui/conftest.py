"""Pages on a database of the test's own, and tasks in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from app.storage.database import Database
from app.storage.store import Store
from tests.http.ui.desks import Reader, pages
from tests.storage.scene import Scene


@pytest.fixture
async def reader(db_url: str) -> AsyncIterator[Reader]:
    """Somebody who has logged in."""
    async with pages(db_url) as reader:
        yield reader


@pytest.fixture
async def scene(db_url: str) -> AsyncIterator[Scene]:
    """Makes tasks."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(db_url)
    try:
        async with Database(db_url, connections=2) as database:
            yield Scene(Store(database), connection)
    finally:
        await connection.close(timeout=5)
