"""Beside a session that is idle in a transaction.

Its snapshot keeps the dead rows of the indexes of what lives: whoever looks through these reads every task that has
ended since.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg

from app.domain.task import EVER, Json
from app.storage import due, fleet
from app.storage.statements import CLAIM
from tests.storage.scene import TOOL, Scene


@asynccontextmanager
async def held_back(db_url: str) -> AsyncIterator[None]:
    """Beside such a session."""
    idle = await asyncpg.connect(db_url)
    await idle.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM perdure.tools")
    yield
    await idle.close()


async def pages(connection: asyncpg.Connection[Any], statement: str, *arguments: str) -> int:
    """How many pages a statement looks at."""
    await connection.execute(f"PREPARE looking AS {statement}")
    explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE looking({', '.join(map(repr, arguments))})"
    explained = await connection.fetchval(explain)
    await connection.execute("DEALLOCATE looking")
    seen = int(json.loads(explained)[0]["Plan"]["Shared Hit Blocks"])
    assert seen > 0
    return seen


async def test_claims_do_not_read_what_was_claimed_before(scene: Scene, db_url: str) -> None:
    async with held_back(db_url):
        for _ in range(20):
            await asyncio.gather(*(scene.queued() for _ in range(50)))
            while claims := await scene.store.claim(scene.worker_id, [TOOL], 50):
                oldest = claims.oldest
        read = {
            since: await pages(scene.connection, CLAIM, str(uuid4()), f"{{{TOOL}}}", "50", since.isoformat())
            for since in (EVER, oldest)
        }
    assert read[oldest] * 5 < read[EVER]


async def test_looking_for_lost_workers_does_not_read_what_the_others_have_ended(scene: Scene, db_url: str) -> None:
    for _ in range(3):
        await scene.enlist(uuid4())
    await scene.enlist(scene.worker_id)
    lost = await scene.running(worker_id=uuid4())
    async with held_back(db_url):
        for _ in range(40):
            await asyncio.gather(*(scene.queued() for _ in range(50)))
            claims = await scene.store.claim(scene.worker_id, [TOOL], 50)
            await asyncio.gather(*(scene.store.finish(claim, Json("{}")) for claim in claims))
        looking = await pages(scene.connection, due.LOST, "100", "{}")
        await scene.connection.execute("ANALYZE perdure.tasks")  # next to nothing runs: any plan seems cheap
        looking = max(looking, await pages(scene.connection, due.LOST, "100", "{}"))
        of_one = await pages(scene.connection, fleet.HOLDINGS_OF, str(scene.worker_id), f"{{{lost.task_id}}}")
        of_all = await pages(scene.connection, fleet.HOLDINGS, str(scene.worker_id))
    assert max(looking, of_one) * 4 < of_all
    assert [task.task_id for task in await scene.store.rescue()] == [lost.task_id]
