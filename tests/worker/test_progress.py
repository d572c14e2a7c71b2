"""ctx.progress and ctx.status: what others see of a handler while it runs, and when it has ended."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from app.domain.task import Claim, Status, Task, TaskState
from app.errors import ToolError
from app.storage.database import Database
from app.storage.store import Store
from app.tools import reports
from app.tools.context import SyncToolContext, ToolContext
from app.tools.registry import Registry, Tool, tool
from app.tools.transactions import Transactions
from app.worker.attempt import Attempt
from tests.support.waiting import eventually
from tests.support.worker import Tasks, working

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no second report be written by itself in a test's time."""
    monkeypatch.setattr(reports, "REPORT_SECONDS", 3600.0)


def seen(task: Task) -> tuple[object, ...]:
    return task.status_message, task.progress, task.progress_total


async def shows(tasks: Tasks, task_id: UUID, *expected: object) -> TaskState:
    """Wait until the task shows this message, progress and total."""

    async def look() -> TaskState | None:
        state = await tasks.read(task_id)
        assert not state.task.status.terminal
        return state if seen(state.task) == expected else None

    return await eventually(look)


async def test_progress_is_seen_at_once_while_the_handler_runs_and_again_when_it_has_moved_on(db_url: str) -> None:
    go_on = asyncio.Event()

    @tool
    async def count(ctx: ToolContext) -> str:
        """Count, and wait."""
        await ctx.progress(3, 10)
        await ctx.progress(4, 10)
        await ctx.progress(4.5, 10, "half of the fifth")
        await go_on.wait()
        await ctx.status("putting it away")
        await go_on.wait()
        return "counted"

    async with working(db_url, count) as (tasks, _):
        task_id = await tasks.start(count)
        await shows(tasks, task_id, "3 of 10", 3.0, 10.0)
        state = await shows(tasks, task_id, "half of the fifth", 4.5, 10.0)
        assert state.task.version == 3
        go_on.set()
        await tasks.reaches(task_id, Status.COMPLETED)


@pytest.mark.usefixtures("seldom")
@pytest.mark.parametrize("end", ["returns", "raises", "breaks", "asks"])
async def test_a_thousand_reports_are_two_writes_and_the_last_is_there_before_the_end(db_url: str, end: str) -> None:
    @tool
    async def count(ctx: ToolContext) -> str:
        """Count fast."""
        for done in range(1, 1001):
            await ctx.progress(done, 1000)
        match end:
            case "raises":
                raise ToolError("counted out")
            case "breaks":
                raise ZeroDivisionError
            case "asks":
                await ctx.elicit("name", "Name?", FORM)
        return "counted"

    ended = {"breaks": Status.FAILED, "asks": Status.INPUT_REQUIRED}.get(end, Status.COMPLETED)
    async with working(db_url, count) as (tasks, _):
        task = (await tasks.reaches(await tasks.start(count), ended)).task
    assert (task.progress, task.progress_total) == (1000.0, 1000.0)
    assert task.version == 4  # created, the first report, the last one, the end


@pytest.mark.usefixtures("seldom")
async def test_a_plain_function_reports_too(db_url: str) -> None:
    @tool
    def count(ctx: SyncToolContext) -> str:
        """Count in a thread."""
        for done in range(100):
            ctx.progress(done)
        ctx.status("putting it away")
        return "counted"

    async with working(db_url, count) as (tasks, _):
        task = (await tasks.reaches(await tasks.start(count), Status.COMPLETED)).task
    assert (task.progress, task.progress_total, task.version) == (99.0, None, 4)


async def test_the_context_cannot_report_or_detach_inside_a_transaction(db_url: str) -> None:
    @tool
    async def mixed(ctx: ToolContext, what: str) -> None:
        """Use the context where it cannot be used."""

        async def write(_: object) -> None:
            await (ctx.progress(1) if what == "progress" else ctx.detach())

        await ctx.transaction("write", write)

    async with working(db_url, mixed) as (tasks, _):
        for what in ("progress", "detach"):
            await tasks.reaches(await tasks.start(mixed, what=what), Status.FAILED)
    connection = await asyncpg.connect(db_url)
    errors = [row["error"] for row in await connection.fetch("SELECT error FROM perdure.task_attempts")]
    await connection.close()
    assert len(errors) == 2
    assert all("cannot be used inside a transaction's function" in error for error in errors)


# -- one attempt, without a worker that looks after it ----------------------------------------------------------------


async def attempt_of(database: Database, subject: Tool) -> tuple[Tasks, Claim, Attempt, Transactions]:
    """A task of this tool, claimed, and what runs it."""
    tasks, transactions = Tasks(Store(database), Registry([subject])), Transactions(database)
    await tasks.start(subject)
    (claim,) = await tasks.store.claim(uuid4(), [subject.name], 1)
    executor: Any = ThreadPoolExecutor(1)
    return tasks, claim, Attempt(claim, subject, tasks.store, transactions, executor), transactions


async def test_a_late_report_finds_out_that_the_attempt_is_stale_and_ends_it(db_url: str) -> None:
    reported, lost, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def count(ctx: ToolContext) -> None:
        """Report twice, and wait for ever."""
        try:
            await ctx.progress(1)
            reported.set()
            await lost.wait()
            await ctx.progress(2)
            await ctx.progress(3)
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with Database(db_url, connections=3) as database:
        tasks, claim, attempt, transactions = await attempt_of(database, count)
        running = asyncio.create_task(attempt.run())
        await reported.wait()
        await tasks.store.release(claim.worker_id, [(claim.task_id, claim.epoch)])  # as a rescue would
        lost.set()
        await asyncio.wait_for(running, 10)
        assert ended.is_set()
        assert (await tasks.read(claim.task_id)).task.progress == 1.0
        await transactions.close()


@pytest.mark.usefixtures("seldom")
@pytest.mark.parametrize("how", ["returns", "is stopped", "is abandoned"])
async def test_an_attempt_that_has_ended_leaves_no_timer_behind(db_url: str, how: str) -> None:
    started = asyncio.Event()

    @tool
    async def count(ctx: ToolContext) -> None:
        """Leave a report waiting."""
        await ctx.progress(1)
        await ctx.progress(2)
        started.set()
        if how != "returns":
            await asyncio.Event().wait()

    async with Database(db_url, connections=3) as database:
        _, _, attempt, transactions = await attempt_of(database, count)
        before = asyncio.all_tasks()
        running = asyncio.create_task(attempt.run())
        await started.wait()
        if how == "is stopped":
            attempt.stop("shutdown")
        elif how == "is abandoned":
            attempt.abandon()
        await asyncio.wait_for(running, 10)

        async def look() -> bool:
            return asyncio.all_tasks() <= before

        await eventually(look)
        await transactions.close()
