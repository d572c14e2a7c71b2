"""Attempts that fail and are made again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from app.domain.retry import Retry
from app.domain.task import Status
from app.errors import DeclarationError, ProtocolError, ToolError
from app.tools.context import ToolContext
from app.tools.registry import tool
from tests.support.database import age_task
from tests.support.waiting import eventually
from tests.support.worker import OWNER, Tasks, working


@asynccontextmanager
async def sql(db_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection of the test's own."""
    connection = await asyncpg.connect(db_url)
    try:
        yield connection
    finally:
        await connection.close()


async def waiting_again(tasks: Tasks, connection: asyncpg.Connection[Any], failures: int) -> float:
    """Wait until the one task has failed so often and waits for its next attempt; for how long, in seconds."""

    async def look() -> asyncpg.Record | None:
        row = await connection.fetchrow(
            "SELECT failures, extract(epoch FROM ready_at - now())::float8 AS pause FROM perdure.tasks"
        )
        return row if row is not None and row["failures"] == failures and row["pause"] is not None else None

    return float((await eventually(look))["pause"])


async def test_a_failed_attempt_is_made_again_after_a_pause_and_replays(db_url: str) -> None:
    ran: list[str] = []

    @tool(retries=Retry(times=3, delay="1h", max="3h", factor=2, jitter=0))
    async def flaky(ctx: ToolContext) -> str:
        """Fail twice."""

        async def charge() -> str:
            ran.append("charge")
            return "charged"

        charged = await ctx.step("charge", charge)
        ran.append("try")
        if ctx.attempt < 3:
            raise OSError("the line is busy, and a secret")
        return charged

    async with working(db_url, flaky) as (tasks, _), sql(db_url) as connection:
        task_id = await tasks.start(flaky)
        assert 3500 < await waiting_again(tasks, connection, 1) <= 3600
        state = await tasks.read(task_id)
        assert (state.task.status, state.task.status_message) == (
            Status.WORKING,
            "The tool failed, and is tried again after a pause",
        )
        await age_task(connection, task_id, 3601)
        assert 7100 < await waiting_again(tasks, connection, 2) <= 7200
        await age_task(connection, task_id, 7201)
        state = await tasks.reaches(task_id, Status.COMPLETED)
        assert ran == ["charge", "try", "try", "try"]
        kept = await connection.fetch("SELECT epoch, ended, error FROM perdure.task_attempts ORDER BY epoch")
        assert [(row["epoch"], row["ended"]) for row in kept] == [(1, "retried"), (2, "retried")]
        assert all("OSError: the line is busy" in row["error"] for row in kept)


async def test_the_last_failure_is_the_task_s(db_url: str) -> None:
    @tool(retries=Retry(times=1, delay="0s"))
    async def hopeless(ctx: ToolContext) -> str:
        """Fail."""
        raise OSError(f"attempt {ctx.attempt}")

    async with working(db_url, hopeless) as (tasks, _), sql(db_url) as connection:
        state = await tasks.reaches(await tasks.start(hopeless), Status.FAILED)
        assert json.loads(state.error or "")["code"] == -32603
        kept = await connection.fetch("SELECT ended FROM perdure.task_attempts ORDER BY epoch")
        assert [row["ended"] for row in kept] == ["retried", "error"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ToolError("no"), Status.COMPLETED),
        (ProtocolError(7, "no"), Status.FAILED),
        (KeyError("other"), Status.FAILED),
    ],
)
async def test_outcomes_and_other_exceptions_are_not_tried_again(db_url: str, error: Exception, status: Status) -> None:
    @tool(retries=Retry(times=5, on=(OSError,), delay="0s"))
    async def other(ctx: ToolContext) -> str:
        """End in another way."""
        raise error

    async with working(db_url, other) as (tasks, _):
        state = await tasks.reaches(await tasks.start(other), status)
        assert state.task.epoch == 1


async def test_a_cancel_in_the_pause_ends_the_task_at_once(db_url: str) -> None:
    @tool(retries=Retry(times=5, delay="1h", max="1h"))
    def flaky() -> str:
        """Fail in a thread."""
        raise OSError("busy")

    async with working(db_url, flaky) as (tasks, _), sql(db_url) as connection:
        task_id = await tasks.start(flaky)
        await waiting_again(tasks, connection, 1)
        cancelled = await tasks.store.cancel(OWNER, task_id)
        assert cancelled is not None
        assert cancelled.status is Status.CANCELLED


def test_a_tool_that_runs_in_the_api_has_no_retries() -> None:
    with pytest.raises(DeclarationError, match="has no retries"):

        @tool(task="never", retries=Retry(times=1))
        async def never() -> str:
            """Run once."""
            return ""
