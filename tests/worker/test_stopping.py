"""Cancels, deadlines and shutdowns: how handlers are stopped, and what becomes of their tasks."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import asyncpg

from app.domain.task import Status
from app.tools.context import SyncToolContext, ToolContext
from app.tools.registry import Tool, tool
from app.worker.runner import Runner
from tests.support.waiting import eventually
from tests.support.worker import OWNER, working


class Probe:
    """What a handler did, seen from outside."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.why: list[str | None] = []


def ending_with_the_worker(probe: Probe) -> Tool:
    """A tool that finishes when it is told that the worker stops."""

    @tool
    async def brief(ctx: ToolContext) -> str:
        """Finish in the grace."""
        probe.started.set()
        while ctx.stopping is None:
            await asyncio.sleep(0.01)
        return "finished in the grace"

    return brief


async def test_a_cancel_reaches_a_running_handler(db_url: str) -> None:
    probe = Probe()

    @tool
    async def patient(ctx: ToolContext) -> str:
        """Wait for ever."""
        probe.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            probe.why.append(ctx.stopping)
        return "never"

    async with working(db_url, patient) as (tasks, _):
        task_id = await tasks.start(patient)
        await probe.started.wait()
        await tasks.store.cancel(OWNER, task_id)
        await tasks.reaches(task_id, Status.CANCELLED)
    assert probe.why == ["cancel"]


async def test_a_handler_may_finish_although_it_was_cancelled(db_url: str) -> None:
    probe = Probe()

    @tool
    async def stubborn(ctx: ToolContext) -> str:
        """Finish all the same."""
        probe.started.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

        async def tidy() -> str:
            return "tidied up"

        return await ctx.step("tidy", tidy)

    async with working(db_url, stubborn) as (tasks, _):
        task_id = await tasks.start(stubborn)
        await probe.started.wait()
        await tasks.store.cancel(OWNER, task_id)
        done = await tasks.reaches(task_id, Status.COMPLETED)
        assert "tidied up" in str(done.result)


async def test_a_plain_function_polls_for_the_cancel(db_url: str) -> None:
    started = threading.Event()

    @tool
    def polling(ctx: SyncToolContext) -> str:
        """Poll until told to stop."""
        started.set()
        waiting = threading.Event()
        while ctx.stopping is None:
            waiting.wait(0.01)
        return f"stopped by {ctx.stopping}"

    async with working(db_url, polling) as (tasks, _):
        task_id = await tasks.start(polling)
        await asyncio.to_thread(started.wait)
        await tasks.store.cancel(OWNER, task_id)
        done = await tasks.reaches(task_id, Status.COMPLETED)
        assert "stopped by cancel" in str(done.result)


async def test_a_cancel_while_the_handler_asks_ends_the_task(db_url: str) -> None:
    probe = Probe()
    form = {"type": "object", "properties": {"name": {"type": "string"}}}

    @tool
    async def asks(ctx: ToolContext) -> str:
        """Ask once it is cancelled."""
        probe.started.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await ctx.elicit("why", "Why?", form)
        return "never"

    async with working(db_url, asks) as (tasks, _):
        task_id = await tasks.start(asks)
        await probe.started.wait()
        await tasks.store.cancel(OWNER, task_id)
        cancelled = await tasks.reaches(task_id, Status.CANCELLED)
        assert cancelled.questions == ()


async def test_an_attempt_that_runs_too_long_fails(db_url: str) -> None:
    probe = Probe()

    @tool(timeout="100ms")
    async def slow(ctx: ToolContext) -> str:
        """Take too long."""
        try:
            await asyncio.Event().wait()
        finally:
            probe.why.append(ctx.stopping)
        return "never"

    async with working(db_url, slow) as (tasks, _):
        failed = await tasks.reaches(await tasks.start(slow), Status.FAILED)
        assert failed.task.status_message == "The task was stopped: it ran longer than its tool allows"
    assert probe.why == ["deadline"]


async def test_a_stop_gives_running_tasks_back_and_uses_nothing_up(db_url: str) -> None:
    probe = Probe()

    @tool
    async def long(ctx: ToolContext) -> str:
        """Run until the second attempt."""
        if ctx.attempt == 1:
            probe.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                probe.why.append(ctx.stopping)
        return "done"

    async with working(db_url, long) as (tasks, _):
        task_id = await tasks.start(long)
        await probe.started.wait()
    connection = await asyncpg.connect(db_url)
    row = await connection.fetchrow("SELECT losses, failures, worker_id, ready_at <= now() AS ready FROM perdure.tasks")
    assert row is not None
    assert dict(row) == {"losses": 0, "failures": 0, "worker_id": None, "ready": True}
    assert await connection.fetchval("SELECT ended FROM perdure.task_attempts") == "released"
    assert await connection.fetchval("SELECT count(*) FROM perdure.workers") == 0
    await connection.close()
    assert probe.why == ["shutdown"]
    async with working(db_url, long) as (tasks, _):
        await tasks.reaches(task_id, Status.COMPLETED)


async def test_a_handler_gets_the_grace_to_finish(db_url: str) -> None:
    probe = Probe()
    brief = ending_with_the_worker(probe)
    async with working(db_url, brief, grace_seconds=20.0) as (tasks, runner):
        task_id = await tasks.start(brief)
        await probe.started.wait()
        runner.stop()
        done = await tasks.reaches(task_id, Status.COMPLETED)
        assert "finished in the grace" in str(done.result)


async def test_a_stopping_worker_claims_no_more(db_url: str) -> None:
    probe = Probe()
    brief = ending_with_the_worker(probe)
    async with working(db_url, brief, slots=1, grace_seconds=20.0) as (tasks, runner):
        first, second = await tasks.start(brief), await tasks.start(brief)
        await probe.started.wait()
        runner.stop()

        async def one_done() -> bool:
            return {(await tasks.read(t)).task.status for t in (first, second)} == {Status.COMPLETED, Status.WORKING}

        await eventually(one_done)


async def test_a_task_that_was_taken_away_is_abandoned(db_url: str) -> None:
    probe = Probe()

    @tool
    async def stolen(ctx: ToolContext) -> str:
        """Wait the first time."""
        if ctx.attempt == 1:
            probe.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                probe.why.append("ended")
        return f"attempt {ctx.attempt}"

    async with working(db_url, stolen, slots=2) as (tasks, _):
        task_id = await tasks.start(stolen)
        await probe.started.wait()
        connection = await asyncpg.connect(db_url)
        worker_id = await connection.fetchval("SELECT worker_id FROM perdure.tasks")
        await connection.close()
        await tasks.store.release(worker_id, [(task_id, 1)])
        done = await tasks.reaches(task_id, Status.COMPLETED)
        assert "attempt 2" in str(done.result)

        async def ended() -> bool:
            return probe.why == ["ended"]

        await eventually(ended)


async def test_a_handler_that_goes_on_after_a_cancel_loses_its_task_after_a_while(db_url: str) -> None:
    probe, go_on = Probe(), asyncio.Event()

    @tool
    async def stubborn(ctx: ToolContext) -> str:
        """Swallow every cancel."""
        probe.started.set()
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()
        probe.why.append(ctx.stopping)
        return "too late"

    async with working(db_url, stubborn, cancel_seconds=0.2) as (tasks, runner):
        task_id = await tasks.start(stubborn)
        await probe.started.wait()
        await tasks.store.cancel(OWNER, task_id)
        state = await tasks.reaches(task_id, Status.CANCELLED)
        assert len(runner._running) == 1  # its slot is taken until it really ends
        go_on.set()
        assert state.result is None
        await eventually(lambda: _idle(runner))
        assert (await tasks.read(task_id)).task.status is Status.CANCELLED
    assert probe.why == ["cancel"]


async def test_a_thread_that_goes_on_after_a_cancel_loses_its_task_after_a_while(db_url: str) -> None:
    started, go_on = threading.Event(), threading.Event()

    @tool
    def stubborn(ctx: SyncToolContext) -> str:
        """Look at nothing."""
        started.set()
        go_on.wait(20)
        return "too late"

    async with working(db_url, stubborn, cancel_seconds=0.2) as (tasks, runner):
        task_id = await tasks.start(stubborn)
        await asyncio.to_thread(started.wait, 20)
        await tasks.store.cancel(OWNER, task_id)
        await tasks.reaches(task_id, Status.CANCELLED)
        go_on.set()
        await eventually(lambda: _idle(runner))


async def _idle(runner: Runner) -> bool:
    return not runner._running
