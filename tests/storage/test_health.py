"""What probes and metrics ask: cheap however many tasks have ended, bounded in time, and allowed to the service."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import pytest

from app.domain.task import Question
from app.storage import health
from app.storage.health import Health, Line, Recent
from app.storage.roles import APP
from app.wire.envelope import dumps
from tests.storage.scene import Scene
from tests.storage.test_plans import FILL, plans_of
from tests.support.roles import member


async def test_the_figures_tell_what_live_tasks_do(db_url: str, scene: Scene) -> None:
    await scene.queued("job")
    await scene.queued("job")
    claim = await scene.running()
    asked = Health(db_url, name="test")
    figures = await asked.figures()
    queues = {row["tool"]: row for row in figures.queues}
    assert (queues["job"]["queued"], queues["job"]["running"]) == (2, 0)
    assert 0 < queues["job"]["oldest_wait"] < 60
    assert (
        queues[claim.task.tool]["queued"],
        queues[claim.task.tool]["running"],
        queues[claim.task.tool]["oldest_wait"],
    ) == (0, 1, None)
    assert 0 <= figures.notification_queue <= 1
    assert figures.xmin_age >= 0
    await asked.close()
    await scene.store.ask(claim, [Question("name", dumps({}))])


async def test_a_transaction_that_stays_open_is_seen(db_url: str, connection: asyncpg.Connection[Any]) -> None:
    reader = await asyncpg.connect(db_url)
    async with reader.transaction(isolation="repeatable_read"):
        await reader.fetch("SELECT 1 FROM perdure.tasks")
        for _ in range(50):
            await connection.fetch("SELECT pg_current_xact_id()")
        asked = Health(db_url, name="test")
        assert (await asked.figures()).xmin_age >= 50
        await asked.close()
    await reader.close()


async def test_ended_tasks_are_not_read(connection: asyncpg.Connection[Any]) -> None:
    for statement in FILL:
        await connection.execute(statement)
    read = [node for node in await plans_of(connection, health.QUEUES, ["1000"]) if "Relation Name" in node]
    assert {node["Relation Name"] for node in read if node["Node Type"] == "Seq Scan"} <= {"workers", "tools"}


async def test_the_role_of_the_service_may_ask(db_url: str) -> None:
    async with member(db_url, APP) as url:
        asked = Health(url, name="test")
        assert await asked.revision() is not None
        await asked.figures()
        await asked.close()


async def test_a_question_that_takes_too_long_is_given_up_and_the_next_one_is_answered(db_url: str) -> None:
    line = Line(db_url, name="test", seconds=0.5)
    started = time.monotonic()
    with pytest.raises((TimeoutError, asyncpg.QueryCanceledError)):
        await line.ask("SELECT pg_sleep(60)")
    assert time.monotonic() - started < 10
    assert [row["one"] for row in await line.ask("SELECT 1 AS one")] == [1]
    line.close()


async def test_who_leaves_takes_the_answer_from_nobody_and_an_error_is_as_good_as_an_answer() -> None:
    asked, answer = 0, asyncio.Event()

    async def ask() -> int:
        nonlocal asked
        asked += 1
        await answer.wait()
        if asked > 1:
            raise OSError("away")
        return asked

    recent = Recent(ask, fresh_seconds=60)
    impatient, patient = asyncio.create_task(recent.get()), asyncio.create_task(recent.get())
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.sleep(0)
    answer.set()
    assert (await patient, await recent.get(), asked) == (1, 1, 1)
    always = Recent(ask, fresh_seconds=0)
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            await always.get()
    assert asked == 3
    await recent.close()
    await always.close()
