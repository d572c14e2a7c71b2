"""What a worker does not know to be its own is given back, at once and with nothing used up."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from app.domain.task import Status
from app.storage import statements as sql
from app.storage.database import Database
from app.storage.store import Store
from app.tools.registry import Registry, Tool, tool
from tests.support.forgetful import forgetful_cable_to
from tests.support.worker import OWNER, WAIT_SECONDS, Tasks, working


async def test_a_task_whose_claim_was_not_heard_of_runs_once_with_nothing_used_up(db_url: str) -> None:
    ran: list[str] = []

    @tool
    async def note(text: str) -> str:
        """Note that it runs."""
        ran.append(text)
        return text

    async with Database(db_url, connections=1) as database, forgetful_cable_to(db_url) as cable:
        tasks = Tasks(Store(database), Registry([note]))
        task_id = await tasks.start(note, text="here")
        cable.lose_the_reply_to(sql.CLAIM)
        with capture_logs() as logs:
            async with working(cable.url, note):
                assert (await tasks.reaches(task_id, Status.COMPLETED)).task.epoch == 2
        assert cable.lost.is_set()
    assert ran == ["here"]
    assert [line["tasks"] for line in logs if line["event"].startswith("released")] == [1]
    connection = await asyncpg.connect(db_url)
    rows = await connection.fetch("SELECT epoch, ended FROM perdure.task_attempts")
    used_up = await connection.fetchrow("SELECT losses, failures FROM perdure.tasks")
    await connection.close()
    assert ([tuple(row) for row in rows], tuple(used_up or ())) == ([(1, "released")], (0, 0))


class Probe:
    """A handler that waits until it is stopped."""

    def __init__(self) -> None:
        self.begun, self.stopped = asyncio.Event(), asyncio.Event()

    def tool(self) -> Tool:
        """The tool that it belongs to."""

        @tool
        async def wait() -> None:
            """Wait."""
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.set()

        return wait


async def cancelled(tasks: Tasks, task_id: UUID) -> None:
    """What a client does."""
    await tasks.store.cancel(OWNER, task_id)


async def deleted(tasks: Tasks, task_id: UUID) -> None:
    """What nobody but an operator does."""
    await tasks.store._db.fetch("DELETE FROM perdure.tasks WHERE task_id = $1", task_id)


@pytest.mark.parametrize("happens", [cancelled, deleted])
async def test_what_happens_to_its_tasks_is_seen_though_it_looks_seldom_for_those_it_does_not_run(
    db_url: str, happens: Callable[[Tasks, UUID], Awaitable[None]]
) -> None:
    """That look reads, beside a transaction that stays open, all that the worker has ended since."""
    probe = Probe()
    wait = probe.tool()
    async with working(db_url, wait) as (tasks, runner):
        runner._astray_due = math.inf
        task_id = await tasks.start(wait)
        await asyncio.wait_for(probe.begun.wait(), WAIT_SECONDS)
        await happens(tasks, task_id)
        await asyncio.wait_for(probe.stopped.wait(), WAIT_SECONDS)
        assert runner._astray_due == math.inf


async def test_under_a_new_id_only_what_was_claimed_under_another_is_abandoned(db_url: str) -> None:
    probe = Probe()
    wait = probe.tool()
    async with working(db_url, wait) as (tasks, runner):
        await tasks.start(wait)
        await asyncio.wait_for(probe.begun.wait(), WAIT_SECONDS)
        (attempt,) = runner._running.values()
        runner._abandon_others(attempt.claim.worker_id)
        await asyncio.sleep(0)
        assert not attempt._replay.stale.is_set
        runner._abandon_others(uuid4())
        assert attempt._replay.stale.is_set
