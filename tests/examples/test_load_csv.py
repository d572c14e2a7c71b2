"""Loading a file: every row once, whatever happens to the workers."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.domain.task import Status, TaskState
from app.examples.load_csv import FOLDER, load_csv
from app.storage.database import Database
from app.storage.store import Store
from app.tools.registry import Registry
from tests.support.command import perdure
from tests.support.worker import Tasks, until, working

KINDS = {"id": "integer", "price": "number"}


def write(path: Path, rows: int, bad: set[int]) -> None:
    """A file of so many rows, of which these do not parse."""
    lines = (f'{number},"item, {number}",{"?" if number in bad else number / 4}\n' for number in range(rows))
    path.write_text("id,name,price\n" + "".join(lines), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for CSV files."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return tmp_path


async def loaded(db_url: str, query: str = "SELECT count(*) AS n, count(DISTINCT id) AS d") -> dict[str, Any]:
    """What is in the table."""
    connection = await asyncpg.connect(db_url)
    try:
        row = await connection.fetchrow(f"{query} FROM perdure_examples.items")
        return dict(row or {})
    finally:
        await connection.close()


def summary(state: TaskState) -> dict[str, Any]:
    assert state.result is not None
    result: dict[str, Any] = json.loads(state.result)["structuredContent"]
    return result


async def test_a_file_without_bad_rows_is_loaded_without_a_question(db_url: str, folder: Path) -> None:
    write(folder / "good.csv", 12_000, set())
    async with working(db_url, load_csv) as (tasks, _):
        task_id = await tasks.start(load_csv, path="good.csv", table="items", columns=KINDS)
        done = summary(await tasks.reaches(task_id, Status.COMPLETED))
    assert (done["rows_loaded"], done["rows_skipped"], done["rows_defaulted"]) == (12_000, 0, 0)
    assert await loaded(db_url) == {"n": 12_000, "d": 12_000}


@pytest.mark.parametrize(
    ("answer", "counts", "total"),
    [
        ({"action": "skip"}, (9_998, 2, 0), 9_998),
        ({"action": "default", "value": "0.5"}, (10_000, 0, 2), 10_000),
    ],
)
async def test_bad_rows_are_treated_as_the_user_says(
    db_url: str, folder: Path, answer: dict[str, Any], counts: tuple[int, int, int], total: int
) -> None:
    write(folder / "mixed.csv", 10_000, {7, 9_000})
    async with working(db_url, load_csv) as (tasks, _):
        task_id = await tasks.start(load_csv, path="mixed.csv", table="items", columns=KINDS)
        parked = await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        await tasks.answer(task_id, **{parked.questions[0].key: answer})
        done = summary(await tasks.reaches(task_id, Status.COMPLETED))
    assert (done["rows_loaded"], done["rows_skipped"], done["rows_defaulted"]) == counts
    assert await loaded(db_url) == {"n": total, "d": total}


async def test_stop_loads_nothing(db_url: str, folder: Path) -> None:
    write(folder / "mixed.csv", 100, {7})
    async with working(db_url, load_csv) as (tasks, _):
        task_id = await tasks.start(load_csv, path="mixed.csv", table="items", columns=KINDS)
        parked = await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        await tasks.answer(task_id, **{parked.questions[0].key: {"action": "stop"}})
        ended = await tasks.reaches(task_id, Status.COMPLETED)
    assert ended.result is not None
    assert json.loads(ended.result)["isError"] is True
    with pytest.raises(asyncpg.UndefinedTableError):
        await loaded(db_url)


@pytest.mark.parametrize("path", ["../outside.csv", "/etc/passwd", "link.csv", "missing.csv", "a\x00b"])
async def test_nothing_outside_of_the_folder_is_read(db_url: str, folder: Path, path: str) -> None:
    inside = folder / "inside"
    inside.mkdir()
    os.environ[FOLDER] = str(inside)
    write(folder / "outside.csv", 1, set())
    (inside / "link.csv").symlink_to(folder / "outside.csv")
    async with working(db_url, load_csv) as (tasks, _):
        task_id = await tasks.start(load_csv, path=path, table="items")
        ended = await tasks.reaches(task_id, Status.COMPLETED)
    assert ended.result is not None
    result = json.loads(ended.result)
    assert result["isError"] is True
    assert str(folder) not in result["content"][0]["text"]


@pytest.mark.timeout(180)
async def test_a_worker_killed_in_the_middle_loads_no_row_twice(db_url: str, tmp_path: Path) -> None:
    rows, bad = 300_000, {11, 150_000, 299_999}
    write(tmp_path / "large.csv", rows, bad)
    environment = {
        "DATABASE_URL": db_url,
        FOLDER: str(tmp_path),
        "PERDURE_LEASE_SECONDS": "2",
        "PERDURE_GRACE_SECONDS": "1",
    }
    command = ("worker", "--tools", "app.examples")
    async with Database(db_url, connections=2) as database:
        tasks = Tasks(Store(database), Registry([load_csv]))

        async def some_batches() -> int:
            count: int = (await database.fetch("SELECT count(*) FROM perdure.task_steps WHERE name LIKE 'batch-%'"))[0][
                0
            ]
            return count if count >= 3 else 0

        task_id = await tasks.start(load_csv, path="large.csv", table="items", columns=KINDS)
        with perdure(tmp_path / "first", *command, **environment) as first:
            parked = await tasks.reaches(task_id, Status.INPUT_REQUIRED)
            await tasks.answer(task_id, **{parked.questions[0].key: {"action": "skip"}})
            before = await until(some_batches)
            first.stop(signal.SIGKILL)
        assert (await tasks.read(task_id)).task.status is Status.WORKING
        with perdure(tmp_path / "second", *command, **environment):
            await until(_completed(tasks, task_id), seconds=60)
        done = summary(await tasks.read(task_id))
        runs = await database.fetch(
            "SELECT epoch, count(*) AS n FROM perdure.task_steps WHERE name LIKE 'batch-%' GROUP BY 1"
        )
    by_epoch = {row["epoch"]: row["n"] for row in runs}
    assert len(by_epoch) == 2, "both workers loaded batches"
    assert by_epoch[min(by_epoch)] >= before
    assert (done["rows_loaded"], done["rows_skipped"]) == (rows - len(bad), len(bad))
    total = sum(number for number in range(rows) if number not in bad)
    found = await loaded(db_url, "SELECT count(*) AS n, count(DISTINCT id) AS d, sum(id)::bigint AS s")
    assert found == {"n": rows - len(bad), "d": rows - len(bad), "s": total}


def _completed(tasks: Tasks, task_id: Any) -> Any:
    async def look() -> bool:
        status = (await tasks.read(task_id)).task.status
        assert status in (Status.WORKING, Status.COMPLETED), status
        return status is Status.COMPLETED

    return look
