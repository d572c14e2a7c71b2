"""A worker that is killed while it loads a large file, and another one that goes on: every row once."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from uuid import UUID

import pytest

from app.domain.task import Status
from app.examples import load_csv
from app.examples.load_csv import FOLDER
from app.storage.database import Database
from app.storage.store import Store
from app.tools.registry import Registry
from tests.support.command import perdure
from tests.support.waiting import eventually
from tests.support.worker import Tasks

ROWS = 300_000
BAD = {11, 150_000, 299_999}
BATCHES = "SELECT epoch, count(*) AS batches FROM perdure.task_steps WHERE name LIKE 'batch-%' GROUP BY 1 ORDER BY 1"
FOUND = "SELECT count(*) AS rows, count(DISTINCT id) AS ids, sum(id)::bigint AS total FROM perdure_examples.items"


async def completed(tasks: Tasks, task_id: UUID) -> bool:
    status = (await tasks.read(task_id)).task.status
    assert status in (Status.WORKING, Status.COMPLETED)
    return status is Status.COMPLETED


@pytest.mark.timeout(180)
async def test_a_worker_killed_in_the_middle_loads_no_row_twice(db_url: str, tmp_path: Path) -> None:
    with (tmp_path / "large.csv").open("w") as file:
        file.write("id,name,price\n")
        file.writelines(f'{n},"item, {n}",{"?" if n in BAD else n / 4}\n' for n in range(ROWS))
    command = ("worker", "--tools", "app.examples")
    environment = {
        "DATABASE_URL": db_url,
        FOLDER: str(tmp_path),
        "PERDURE_LEASE_SECONDS": "2",
        "PERDURE_GRACE_SECONDS": "1",
    }
    async with Database(db_url, connections=2) as database:
        tasks = Tasks(Store(database), Registry([load_csv]))
        columns = {"id": "integer", "price": "number"}
        task_id = await tasks.start(load_csv, path="large.csv", table="items", columns=columns)

        async def batches_of_the_first() -> int:
            runs = await database.fetch(BATCHES)
            return runs[0]["batches"] if runs and runs[0]["batches"] >= 3 else 0

        with perdure(tmp_path / "first", *command, **environment) as first:
            parked = await tasks.reaches(task_id, Status.INPUT_REQUIRED)
            await tasks.answer(task_id, **{parked.questions[0].key: {"action": "skip"}})
            before = await eventually(batches_of_the_first)
            first.stop(signal.SIGKILL)
        assert not await completed(tasks, task_id)
        with perdure(tmp_path / "second", *command, **environment):
            await eventually(lambda: completed(tasks, task_id), seconds=60)

        by_first, by_second = await database.fetch(BATCHES)
        assert by_first["batches"] >= before
        assert by_second["batches"] > 0
        [found] = await database.fetch(FOUND)
        result = (await tasks.read(task_id)).result
    good = [number for number in range(ROWS) if number not in BAD]
    assert dict(found) == {"rows": len(good), "ids": len(good), "total": sum(good)}
    assert result is not None
    assert json.loads(result)["structuredContent"] == {
        "table": "perdure_examples.items",
        "rows_loaded": len(good),
        "rows_defaulted": 0,
        "rows_skipped": len(BAD),
        "batches": by_first["batches"] + by_second["batches"],
    }
