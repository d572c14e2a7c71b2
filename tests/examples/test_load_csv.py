"""Loading a CSV file: what gets into the table, what is asked, and what is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.domain.task import Status
from app.examples import csv_rows, load_csv
from app.examples.load_csv import FOLDER
from app.wire.envelope import dumps
from tests.support.worker import Tasks, working

GOOD = "id,name,price\n1,a,1.50\n2,b,\n"
BAD = "id,name,price\n1,a,1.50\nx,b,2\n3,c\n4,d,free\n"
TYPED = {"id": "integer", "price": "number"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for CSV files; a chunk has two rows."""
    found = tmp_path / "csv"
    found.mkdir()
    monkeypatch.setenv(FOLDER, str(found))
    monkeypatch.setattr(csv_rows, "CHUNK_ROWS", 2)
    return found


async def start(tasks: Tasks, path: str = "file.csv", table: str = "goods", columns: Any = TYPED) -> UUID:
    return await tasks.start(load_csv, path=path, table=table, columns=columns)


async def summary_of(tasks: Tasks, task_id: UUID) -> dict[str, Any]:
    done = await tasks.reaches(task_id, Status.COMPLETED)
    assert done.result is not None
    found: dict[str, Any] = json.loads(done.result)["structuredContent"]
    return found


async def refusal_of(tasks: Tasks, task_id: UUID) -> str:
    done = await tasks.reaches(task_id, Status.COMPLETED)
    assert done.result is not None
    result = json.loads(done.result)
    assert result["isError"]
    text: str = result["content"][0]["text"]
    return text


async def rows_in(db_url: str, table: str = "goods") -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(db_url)
    try:
        return [tuple(row) for row in await connection.fetch(f"SELECT * FROM perdure_examples.{table} ORDER BY 1")]
    finally:
        await connection.close()


async def test_a_file_becomes_a_table(db_url: str, folder: Path) -> None:
    (folder / "file.csv").write_text(GOOD)
    async with working(db_url, load_csv) as (tasks, _):
        summary = await summary_of(tasks, await start(tasks))
    assert summary == {
        "table": "perdure_examples.goods",
        "rows_loaded": 2,
        "rows_defaulted": 0,
        "rows_skipped": 0,
        "batches": 1,
    }
    assert await rows_in(db_url) == [(1, "a", Decimal("1.50")), (2, "b", None)]


async def test_loading_again_adds_to_the_table(db_url: str, folder: Path) -> None:
    (folder / "file.csv").write_text(GOOD)
    async with working(db_url, load_csv) as (tasks, _):
        for _again in range(2):
            await summary_of(tasks, await start(tasks))
    assert len(await rows_in(db_url)) == 4


async def test_a_header_alone_makes_an_empty_table(db_url: str, folder: Path) -> None:
    (folder / "file.csv").write_text("id,name,price")
    async with working(db_url, load_csv) as (tasks, _):
        assert (await summary_of(tasks, await start(tasks)))["batches"] == 0
    assert await rows_in(db_url) == []


async def test_any_header_names_the_columns_of_a_wide_table(db_url: str, folder: Path) -> None:
    names = ['select "*', "naïve; --", "%s", ":x", "$1", *(f"c{n}" for n in range(150))]
    header = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    (folder / "file.csv").write_text(header + "\n" + ",".join(map(str, range(len(names)))))
    async with working(db_url, load_csv) as (tasks, _):
        await summary_of(tasks, await start(tasks, columns={":x": "integer"}))
    [row] = await rows_in(db_url)
    assert row == tuple(3 if n == 3 else str(n) for n in range(len(names)))


async def test_the_question_comes_once_and_before_anything_is_loaded(db_url: str, folder: Path) -> None:
    (folder / "file.csv").write_text(BAD)
    async with working(db_url, load_csv) as (tasks, _):
        task_id = await start(tasks)
        [question] = (await tasks.reaches(task_id, Status.INPUT_REQUIRED)).questions
        with pytest.raises(asyncpg.UndefinedTableError):
            await rows_in(db_url)
    params = json.loads(question.request)["params"]
    assert params["message"].startswith("3 of 4 rows do not parse. The first is row 2: id is no integer.")
    assert params["requestedSchema"] == {
        "type": "object",
        "properties": {
            "action": {
                "type": "string",
                "title": "Rows that do not parse",
                "oneOf": [
                    {"const": "skip", "title": "Leave them out"},
                    {"const": "stop", "title": "Load nothing at all"},
                    {"const": "default", "title": "Load them, with a default value"},
                ],
                "default": "skip",
            },
            "value": {
                "type": "string",
                "title": "Default value",
                "description": "Goes in place of the fields that do not parse; nothing for NULL.",
            },
        },
    }


@pytest.mark.parametrize(
    ("answer", "counts", "rows"),
    [
        ({"action": "skip"}, (1, 0, 3), [(1, "a", Decimal("1.50"))]),
        (
            {"action": "default", "value": "0"},
            (3, 2, 1),
            [(0, "b", Decimal(2)), (1, "a", Decimal("1.50")), (4, "d", Decimal(0))],
        ),
        ({"action": "default"}, (3, 2, 1), [(1, "a", Decimal("1.50")), (4, "d", None), (None, "b", Decimal(2))]),
    ],
)
async def test_bad_rows_are_treated_as_the_user_says(
    db_url: str, folder: Path, answer: dict[str, Any], counts: tuple[int, ...], rows: list[tuple[Any, ...]]
) -> None:
    (folder / "file.csv").write_text(BAD)
    async with working(db_url, load_csv) as (tasks, _):
        task_id = await start(tasks)
        await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        await tasks.answer(task_id, **{"bad-rows": answer})
        summary = await summary_of(tasks, task_id)
    assert (summary["rows_loaded"], summary["rows_defaulted"], summary["rows_skipped"]) == counts
    assert await rows_in(db_url) == rows


@pytest.mark.parametrize(
    "response", [{"action": "accept", "content": {"action": "stop"}}, {"action": "decline"}, {"action": "cancel"}]
)
async def test_without_a_way_to_go_on_nothing_is_loaded(db_url: str, folder: Path, response: dict[str, Any]) -> None:
    (folder / "file.csv").write_text(BAD)
    async with working(db_url, load_csv) as (tasks, _):
        task_id = await start(tasks)
        await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        await tasks.respond(task_id, {"bad-rows": dumps(response)})
        assert (await refusal_of(tasks, task_id)).startswith("Nothing was loaded")
    with pytest.raises(asyncpg.UndefinedTableError):
        await rows_in(db_url)


async def test_a_default_value_that_does_not_fit_is_asked_for_again(db_url: str, folder: Path) -> None:
    (folder / "file.csv").write_text(BAD)
    async with working(db_url, load_csv) as (tasks, _):
        task_id = await start(tasks)
        await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        await tasks.answer(task_id, **{"bad-rows": {"action": "default", "value": "none"}})
        [question] = (await tasks.reaches(task_id, Status.INPUT_REQUIRED)).questions
        assert json.loads(question.request)["params"]["message"].endswith("value: does not stand for: integer, number")
        await tasks.answer(task_id, **{question.key: {"action": "default", "value": "7"}})
        assert (await summary_of(tasks, task_id))["rows_defaulted"] == 2


@pytest.mark.parametrize("path", ["../secret.csv", "link.csv", "link/secret.csv", "/etc/passwd", "a/../../secret.csv"])
async def test_no_path_leads_out_of_the_folder(db_url: str, folder: Path, path: str) -> None:
    (folder.parent / "secret.csv").write_text(GOOD)
    (folder / "link.csv").symlink_to(folder.parent / "secret.csv")
    if path.startswith("link/"):
        (folder / "link.csv").rename(folder / "other.csv")
        (folder / "link").symlink_to(folder.parent)
    async with working(db_url, load_csv) as (tasks, _):
        assert "out of the folder" in await refusal_of(tasks, await start(tasks, path))


async def test_a_link_within_the_folder_is_followed(db_url: str, folder: Path) -> None:
    (folder / "file.csv").write_text(GOOD)
    (folder / "link.csv").symlink_to("file.csv")
    async with working(db_url, load_csv) as (tasks, _):
        assert (await summary_of(tasks, await start(tasks, "link.csv")))["rows_loaded"] == 2


@pytest.mark.parametrize("path", ["missing.csv", ".", "loop", "a\x00b", "a" * 300])
async def test_what_is_no_file_is_refused(db_url: str, folder: Path, path: str) -> None:
    (folder / "loop").symlink_to("loop")
    async with working(db_url, load_csv) as (tasks, _):
        assert "file" in await refusal_of(tasks, await start(tasks, path))


async def test_without_a_folder_nothing_is_read(db_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER)
    async with working(db_url, load_csv) as (tasks, _):
        assert FOLDER in await refusal_of(tasks, await start(tasks))


async def test_columns_that_the_file_lacks_are_refused(db_url: str, folder: Path) -> None:
    (folder / "file.csv").write_text(GOOD)
    async with working(db_url, load_csv) as (tasks, _):
        assert "header" in await refusal_of(tasks, await start(tasks, columns={"weight": "number"}))


async def test_a_table_with_other_columns_is_left_alone(db_url: str, folder: Path) -> None:
    (folder / "file.csv").write_text(GOOD)
    async with working(db_url, load_csv) as (tasks, _):
        await summary_of(tasks, await start(tasks))
        assert "other columns" in await refusal_of(tasks, await start(tasks, columns={}))
    assert len(await rows_in(db_url)) == 2


@pytest.mark.parametrize("table", ["", "Goods", 'g"; drop schema perdure; --', "g" * 64, "x.y"])
async def test_a_table_is_named_plainly_or_refused(db_url: str, folder: Path, table: str) -> None:
    (folder / "file.csv").write_text(GOOD)
    async with working(db_url, load_csv) as (tasks, _):
        assert "table" in await refusal_of(tasks, await start(tasks, table=table))


async def test_a_file_that_changed_while_the_user_thought_is_not_loaded(db_url: str, folder: Path) -> None:
    (folder / "file.csv").write_text(BAD)
    async with working(db_url, load_csv) as (tasks, _):
        task_id = await start(tasks)
        await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        (folder / "file.csv").write_text(GOOD)
        await tasks.answer(task_id, **{"bad-rows": {"action": "skip"}})
        assert "has changed" in await refusal_of(tasks, task_id)
    assert await rows_in(db_url) == []
