"""Questions over replays, restarts and days: each is asked once, and its answer stands."""

from __future__ import annotations

import asyncpg

from app.domain.task import Status
from app.storage.database import Database
from app.storage.store import Store
from app.tools.context import Accepted, ToolContext
from app.tools.registry import Registry, tool
from tests.storage.facts import look
from tests.support.database import age_task
from tests.support.worker import Tasks, working

NAME = {"type": "object", "properties": {"name": {"type": "string"}}}
SIX_DAYS = 6 * 24 * 3600


@tool
async def introduce(ctx: ToolContext) -> str:
    """Ask for a name, and then for another one."""
    answers = [await ctx.elicit(key, f"Your {key}?", NAME) for key in ("first", "last")]
    return " ".join(answer.content["name"] for answer in answers if isinstance(answer, Accepted))


async def test_a_key_that_is_asked_again_in_a_replay_gives_its_answer_and_is_no_new_question(db_url: str) -> None:
    async with working(db_url, introduce) as (tasks, _):
        task_id = await tasks.start(introduce)
        await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        await tasks.answer(task_id, first={"name": "Ada"})
        parked = await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        assert [question.key for question in parked.questions] == ["last"]
        await tasks.answer(task_id, last={"name": "Lovelace"}, first={"name": "Somebody else"})
        done = await tasks.reaches(task_id, Status.COMPLETED)
    assert '"Ada Lovelace"' in (done.result or "")
    connection = await asyncpg.connect(db_url)
    rows, broken = await look(connection)
    await connection.close()
    assert broken == set()
    row = rows[task_id].row
    assert {key: epoch for key, (epoch, _) in row.questions.items()} == {"first": 1, "last": 2}
    assert (set(row.answers), row.epoch, len(row.attempts)) == ({"first", "last"}, 3, 0)


async def test_a_question_waits_for_days_over_a_restart_of_everything_and_the_task_goes_on(db_url: str) -> None:
    async with working(db_url, introduce) as (tasks, _):
        task_id = await tasks.start(introduce)
        await tasks.reaches(task_id, Status.INPUT_REQUIRED)
    connection = await asyncpg.connect(db_url)
    for key in ("first", "last"):
        await age_task(connection, task_id, SIX_DAYS)
        async with Database(db_url, connections=1) as database:
            tasks = Tasks(Store(database), Registry([introduce]))
            assert await tasks.store.expire() == []
            await tasks.answer(task_id, **{key: {"name": key}})
        async with working(db_url, introduce) as (tasks, _):
            end = Status.COMPLETED if key == "last" else Status.INPUT_REQUIRED
            state = await tasks.reaches(task_id, end)
    assert '"first last"' in (state.result or "")
    assert await connection.fetchval("SELECT losses FROM perdure.tasks") == 0
    await connection.close()
