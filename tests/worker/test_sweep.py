"""What a worker does not know to be its own is given back, at once and with nothing used up."""

from __future__ import annotations

import asyncpg
from structlog.testing import capture_logs

from app.domain.task import Status
from app.storage import statements as sql
from app.storage.database import Database
from app.storage.store import Store
from app.tools.registry import Registry, tool
from tests.support.forgetful import forgetful_cable_to
from tests.support.worker import Tasks, working


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
