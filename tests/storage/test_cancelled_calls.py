"""Callers that go away in the middle of a call: the pool stays usable, and each task is whole or is not there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from app.domain.task import Json
from tests.storage.facts import look
from tests.storage.racing import OURS, seen
from tests.storage.scene import OWNER, RESULT, TOOL, Scene, new_task, question, response

TIMES, AT_ONCE = 1000, 20
IDLE = f"{OURS} AND state = 'idle'"
IN_TRANSACTION = f"{OURS} AND state LIKE 'idle in transaction%'"


async def cut_short(call: Coroutine[Any, Any, object], seconds: float) -> bool:
    """Cancel a call after so long; whether it was still under way."""
    work = asyncio.ensure_future(call)
    await asyncio.sleep(seconds)
    under_way = work.cancel()
    with suppress(asyncio.CancelledError):
        await work
    return under_way


async def life(scene: Scene) -> bool:
    """A task's way from its creation to its end, by a client and a worker."""
    task = await scene.store.create(new_task())
    for claim in await scene.store.claim(scene.worker_id, [TOOL], 1):
        await scene.store.step(claim, "fetch", Json("1"))
        if claim.questions:
            await scene.store.finish(claim, RESULT)
        else:
            await scene.store.ask(claim, [question("colour"), question("size")])
            await scene.store.answer(OWNER, claim.task_id, {"colour": response()})
            await scene.store.answer(OWNER, claim.task_id, {"size": response()})
    await scene.store.cancel(OWNER, task.task_id)
    return True


async def test_calls_that_are_cut_short_a_thousand_times_leave_whole_tasks_and_a_usable_pool(scene: Scene) -> None:
    chance = random.Random(6)  # noqa: S311
    cut = 0
    while cut < TIMES:
        lives = (cut_short(life(scene), chance.random() * 0.05) for _ in range(AT_ONCE))
        cut += sum((await asyncio.gather(life(scene), *lives))[1:])
    rows, broken = await look(scene.connection)
    assert broken == set()
    assert len({seen.row.status for seen in rows.values()}) > 1
    await asyncio.gather(*(scene.store.get(OWNER, task_id) for task_id in list(rows)[:20]))
    assert await scene.connection.fetchval(IN_TRANSACTION) == 0
    await seen(scene.connection, IDLE, await scene.connection.fetchval(OURS))
