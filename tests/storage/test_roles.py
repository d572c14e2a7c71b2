"""The service runs with no more rights than it needs, and whoever may look does not see what tasks are about."""

from __future__ import annotations

from uuid import uuid4

import asyncpg
import pytest

from app import ToolContext, tool
from app.storage.database import Database
from app.storage.migrate import require_head
from app.storage.roles import APP, PAYLOADS, READ
from app.storage.schema import metadata
from app.storage.store import STILL_KNOWN, Store
from tests.storage.scene import Scene
from tests.support.database import age_task
from tests.support.roles import connected, member
from tests.support.service import serving_with_worker
from tests.support.waiting import eventually

PAYLOAD_TABLES = ("task_requests", "task_outcomes", "task_input_requests", "task_input_responses", "task_steps")

FORBIDDEN = [
    "DROP TABLE perdure.tasks",
    "TRUNCATE perdure.tasks CASCADE",
    "ALTER TABLE perdure.tasks ADD COLUMN more text",
    "CREATE TABLE perdure.more (id integer)",
    "UPDATE perdure.alembic_version SET version_num = '0000'",
    "UPDATE perdure.task_outcomes SET result = '{}'",
    "UPDATE perdure.task_input_responses SET response = '{}'",
    "UPDATE perdure.task_attempts SET error = 'none'",
    "DELETE FROM perdure.task_outcomes",
    "DROP VIEW perdure.task_overview",
]


@tool(task="auto")
async def careful(ctx: ToolContext, word: str) -> str:
    """Take a step, ask, and say what was answered."""
    await ctx.status("looking")

    async def shout() -> str:
        return word.upper()

    step = await ctx.step("first", shout)
    answer = await ctx.elicit("really", "Really?", {"type": "object", "properties": {"sure": {"type": "boolean"}}})
    return f"{step} {type(answer).__name__}"


async def test_the_service_does_all_that_it_does_as_perdure_app(db_url: str) -> None:
    async with member(db_url, APP) as url:
        await require_head(url)
        async with serving_with_worker(url, careful, listens=True) as service:
            task_id = (await service.client.call("careful", word="yes")).result["taskId"]

            async def asks() -> bool:
                return bool((await service.read(task_id))["status"] == "input_required")

            await eventually(asks)
            answer = {"really": {"action": "accept", "content": {"sure": True}}}
            await service.client.rpc("tasks/update", {"taskId": task_id, "inputResponses": answer})

            async def completed() -> bool:
                return bool((await service.read(task_id))["status"] == "completed")

            await eventually(completed)
            cancelled = (await service.client.call("careful", word="no")).result["taskId"]
            await service.client.rpc("tasks/cancel", {"taskId": cancelled})

            async def gone() -> bool:
                return bool((await service.read(cancelled))["status"] == "cancelled")

            await eventually(gone)


async def test_the_service_cleans_up_as_perdure_app(db_url: str) -> None:
    async with (
        member(db_url, APP) as url,
        Database(url, connections=2) as database,
        connected(db_url) as connection,
    ):
        scene = Scene(Store(database), connection)
        lost, late, spent = (
            await scene.running(worker_id=uuid4()),
            await scene.parked(),
            await scene.completed(retention_ms=0),
        )
        await scene.overrun(late)
        await age_task(connection, spent.task_id, STILL_KNOWN.total_seconds() + 1)
        assert [task.task_id for task in await scene.store.rescue()] == [lost.task_id]
        assert [task.task_id for task in await scene.store.expire()] == [late.task_id]
        assert await scene.store.purge() == 1


@pytest.mark.parametrize("statement", FORBIDDEN)
async def test_perdure_app_can_change_neither_the_schema_nor_the_past(db_url: str, statement: str) -> None:
    async with member(db_url, APP) as url, connected(url) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)


async def test_perdure_read_sees_how_tasks_fare_and_not_what_they_are_about(db_url: str) -> None:
    async with member(db_url, READ) as url, connected(url) as connection:
        await connection.fetch("SELECT * FROM perdure.task_overview")
        await connection.fetch("SELECT * FROM perdure.queue_health")
        await connection.fetch("SELECT * FROM perdure.tasks")
        await connection.fetch("SELECT task_id, epoch, ended FROM perdure.task_attempts")
        for table in (*PAYLOAD_TABLES, "task_attempts", "idempotency_keys"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.fetch(f"SELECT * FROM perdure.{table}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("UPDATE perdure.tasks SET owner = 'me'")


async def test_perdure_payloads_sees_the_rest_and_changes_nothing(db_url: str) -> None:
    async with member(db_url, READ, PAYLOADS) as url, connected(url) as connection:
        for table in metadata.sorted_tables:
            await connection.fetch(f"SELECT * FROM perdure.{table.name}")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(f"DELETE FROM perdure.{table.name}")
