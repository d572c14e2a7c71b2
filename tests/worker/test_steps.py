"""Steps run once over all attempts, and those in a transaction exactly once."""

from __future__ import annotations

import asyncio
import json
from datetime import date
from typing import Any

import asyncpg
import pytest
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.task import Status
from app.tools.context import ToolContext
from app.tools.registry import tool
from tests.support.worker import working

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Order(BaseModel):
    """Something with a type that JSON does not have."""

    day: date


async def test_a_replayed_step_gives_the_stored_value_as_the_same_type(db_url: str) -> None:
    seen: list[Any] = []

    @tool
    async def order(ctx: ToolContext) -> str:
        """Order, then ask."""

        async def place() -> Order:
            return Order(day=date(2026, 2, 3))

        plain = await ctx.step("plain", place)
        typed = await ctx.step("typed", place, returns=Order)
        seen.append((plain, typed))
        await ctx.elicit("sure", "Sure?", NAME)
        return "done"

    async with working(db_url, order) as (tasks, _):
        task_id = await tasks.start(order)
        await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        await tasks.answer(task_id, sure={"name": "yes"})
        await tasks.reaches(task_id, Status.COMPLETED)
    assert seen == [({"day": "2026-02-03"}, Order(day=date(2026, 2, 3)))] * 2


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("twice", "used twice"),
        ("unnamed", "printable"),
        ("unfit", "JSON cannot hold"),
        ("inside", "inside a transaction"),
    ],
)
async def test_wrong_use_of_steps_is_the_tools_error(db_url: str, body: str, complaint: str) -> None:
    @tool
    async def misused(ctx: ToolContext) -> str:
        """Use steps wrongly."""

        async def one() -> Any:
            return 1

        async def nested(_: AsyncConnection) -> Any:
            return await ctx.step("inner", one)

        async def unfit() -> Any:
            return object()

        match body:
            case "twice":
                await ctx.step("a", one)
                await ctx.step("a", one)
            case "unnamed":
                await ctx.step("a\nb", one)
            case "unfit":
                await ctx.step("a", unfit)
            case "inside":
                await ctx.transaction("a", nested)
        return "never"

    async with working(db_url, misused) as (tasks, _):
        await tasks.reaches(await tasks.start(misused), Status.FAILED)
    connection = await asyncpg.connect(db_url)
    assert complaint in await connection.fetchval("SELECT error FROM perdure.task_attempts")
    await connection.close()


async def test_a_transactions_writes_and_its_memory_commit_together(db_url: str) -> None:
    connection = await asyncpg.connect(db_url)
    await connection.execute("CREATE TABLE ledger (amount integer)")

    @tool
    async def pay(ctx: ToolContext) -> str:
        """Pay, then ask."""

        async def write(db: AsyncConnection) -> int:
            await db.execute(text("INSERT INTO ledger VALUES (5)"))
            return 5

        paid = await ctx.transaction("pay", write)
        await ctx.elicit("sure", "Sure?", NAME)
        return str(paid)

    async with working(db_url, pay) as (tasks, _):
        task_id = await tasks.start(pay)
        await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        await tasks.answer(task_id, sure={"name": "yes"})
        done = await tasks.reaches(task_id, Status.COMPLETED)
        assert done.result is not None
        assert json.loads(done.result)["content"][0]["text"] == "5"
    assert await connection.fetchval("SELECT count(*) FROM ledger") == 1
    await connection.close()


async def test_a_transaction_of_a_stale_attempt_writes_nothing(db_url: str) -> None:
    connection = await asyncpg.connect(db_url)
    await connection.execute("CREATE TABLE ledger (epoch integer)")
    ready, go = asyncio.Event(), asyncio.Event()

    @tool
    async def pay(ctx: ToolContext) -> str:
        """Pay slowly the first time."""

        async def write(db: AsyncConnection) -> int:
            await db.execute(text("INSERT INTO ledger VALUES (:epoch)"), {"epoch": ctx.attempt})
            if ctx.attempt == 1:
                ready.set()
                await go.wait()
            return ctx.attempt

        return str(await ctx.transaction("pay", write))

    async with working(db_url, pay) as (tasks, _):
        task_id = await tasks.start(pay)
        await ready.wait()
        [(worker_id,)] = await connection.fetch("SELECT worker_id FROM perdure.tasks")
        await tasks.store.release(worker_id, [(task_id, 1)])  # as a rescue would, while the function runs
        go.set()
        done = await tasks.reaches(task_id, Status.COMPLETED)
        assert done.task.epoch == 2
    assert [row["epoch"] for row in await connection.fetch("SELECT epoch FROM ledger")] == [2]
    await connection.close()


async def test_a_transaction_whose_connection_breaks_runs_again(db_url: str) -> None:
    connection = await asyncpg.connect(db_url)
    await connection.execute("CREATE TABLE ledger (backend integer)")
    tries: list[int] = []

    @tool
    async def pay(ctx: ToolContext) -> str:
        """Pay over a connection that breaks once."""

        async def write(db: AsyncConnection) -> int:
            backend = (
                await db.execute(text("INSERT INTO ledger VALUES (pg_backend_pid()) RETURNING backend"))
            ).scalar()
            assert isinstance(backend, int)
            tries.append(backend)
            if len(tries) == 1:
                await connection.execute("SELECT pg_terminate_backend($1)", backend)
            return backend

        return str(await ctx.transaction("pay", write))

    async with working(db_url, pay) as (tasks, _):
        done = await tasks.reaches(await tasks.start(pay), Status.COMPLETED)
        assert done.task.epoch == 1
    assert len(tries) == 2
    assert [row["backend"] for row in await connection.fetch("SELECT backend FROM ledger")] == [tries[1]]
    await connection.close()


async def test_what_is_written_on_the_drivers_own_connection_is_rolled_back_too(db_url: str) -> None:
    connection = await asyncpg.connect(db_url)
    await connection.execute("CREATE TABLE ledger (amount integer)")

    @tool
    async def pay(ctx: ToolContext) -> str:
        """Write past SQLAlchemy, then fail."""

        async def write(db: AsyncConnection) -> int:
            raw = (await db.get_raw_connection()).driver_connection
            assert raw is not None
            await raw.copy_records_to_table("ledger", records=[(1,)], columns=["amount"])
            raise RuntimeError("after the copy")

        return str(await ctx.transaction("pay", write))

    async with working(db_url, pay) as (tasks, _):
        await tasks.reaches(await tasks.start(pay), Status.FAILED)
    assert await connection.fetchval("SELECT count(*) FROM ledger") == 0
    await connection.close()


async def test_a_missing_file_is_the_functions_own_error_and_no_outage(db_url: str) -> None:
    runs: list[int] = []

    @tool
    async def read(ctx: ToolContext) -> str:
        """Open what is not there."""

        async def load(_: AsyncConnection) -> int:
            runs.append(ctx.attempt)
            raise FileNotFoundError("missing.csv")

        return str(await ctx.transaction("load", load))

    async with working(db_url, read) as (tasks, _):
        await tasks.reaches(await tasks.start(read), Status.FAILED)
    assert runs == [1]
    connection = await asyncpg.connect(db_url)
    assert "FileNotFoundError: missing.csv" in await connection.fetchval("SELECT error FROM perdure.task_attempts")
    await connection.close()
