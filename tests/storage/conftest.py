"""A store on the test's own database, and a connection that sees what is committed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from app.storage.database import Database
from app.storage.store import Store
from tests.storage.racing import Race
from tests.storage.scene import Scene


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--model-runs",
        metavar="FIRST-LAST",
        default="0-2",
        help="the runs in which the store is held against its model",
    )


@pytest.fixture
async def database(db_url: str) -> AsyncIterator[Database]:
    """A pool of the test's own."""
    async with Database(db_url, connections=5) as database:
        yield database


@pytest.fixture
def store(database: Database) -> Store:
    """The store, with nobody to notify."""
    return Store(database)


@pytest.fixture
async def connection(db_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection beside the store's."""
    connection = await asyncpg.connect(db_url)
    yield connection
    await connection.close(timeout=5)


@pytest.fixture
def scene(store: Store, connection: asyncpg.Connection[Any]) -> Scene:
    """Makes tasks and looks at them."""
    return Scene(store, connection)


@pytest.fixture
async def race(db_url: str, scene: Scene) -> AsyncIterator[Race]:
    """Ways to let two meet."""
    holder = await asyncpg.connect(db_url)
    yield Race(scene, holder)
    await holder.close(timeout=5)
