"""What an operator's lists cost: as much as there is of what is asked for, however many tasks have ended."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.domain.task import Status
from app.storage import listing
from app.storage.inspection import COLUMNS
from app.storage.listing import Activity, TaskFilter
from tests.storage.test_plans import ENDED, SOME_ID, filled, nodes

__all__ = ["filled"]

LIVE = 300
NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)

BOUNDED = {
    "everything": TaskFilter(),
    "what is live": TaskFilter(status=(Status.WORKING, Status.INPUT_REQUIRED)),
    "what is live, of a tool that has nothing": TaskFilter(status=(Status.WORKING,), tools=("none",)),
    "what is live, of an owner": TaskFilter(status=(Status.WORKING,), owners=("owner-1",)),
    "what is live, and old": TaskFilter(status=(Status.WORKING,), created_before=NOW - HOUR),
    "what waits for answers": TaskFilter(activity=(Activity.WAITING,)),
    "what runs and what waits": TaskFilter(activity=(Activity.RUNNING, Activity.QUEUED, Activity.SCHEDULED)),
    "what failed or was cancelled": TaskFilter(status=(Status.FAILED, Status.CANCELLED)),
    "what failed with these words": TaskFilter(status=(Status.FAILED,), error="no paper"),
    "some": TaskFilter(ids=(UUID(SOME_ID),)),
}


async def rows_read(connection: asyncpg.Connection[Any], statement: listing.Statement) -> int:
    """How many rows of tasks a statement looks at when it is run."""
    text, args = statement
    explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", *args)
    scans = [node for node in nodes(json.loads(explained)[0]["Plan"]) if node.get("Alias") in ("tasks", "t")]
    assert scans
    passed_over = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    return sum(int((n["Actual Rows"] + sum(n.get(by, 0) for by in passed_over)) * n["Actual Loops"]) for n in scans)


@pytest.mark.parametrize("which", BOUNDED.values(), ids=BOUNDED)
async def test_a_list_reads_no_more_than_it_is_asked_for(which: TaskFilter, filled: asyncpg.Connection[Any]) -> None:
    for limit in (1, 50):
        for statement in (
            listing.page(which, COLUMNS, limit),
            listing.page(which, COLUMNS, limit, UUID(SOME_ID)),
            listing.ids(which, limit),
            listing.count(which, limit),
        ):
            assert await rows_read(filled, statement) <= LIVE + 2 * limit


async def test_what_completed_in_a_time_is_found_among_all_that_did(filled: asyncpg.Connection[Any]) -> None:
    """Rows lie about as they ended; ranges of pages in which none ended in that time are not looked at."""
    await filled.execute(
        "UPDATE perdure.tasks SET finished_at = now() + (expires_at - now()) WHERE finished_at IS NOT NULL"
    )
    await filled.execute("CREATE TABLE sorted AS SELECT * FROM perdure.tasks ORDER BY finished_at")
    await filled.execute("TRUNCATE perdure.tasks CASCADE")
    await filled.execute("INSERT INTO perdure.tasks SELECT * FROM sorted")
    await filled.execute("SELECT brin_summarize_new_values('perdure.tasks_finished')")
    await filled.execute("ANALYZE perdure.tasks")
    last = await filled.fetchval("SELECT max(finished_at) FROM perdure.tasks")
    which = TaskFilter(status=(Status.COMPLETED,), finished_since=last - 10 * HOUR)
    assert 0 < await rows_read(filled, listing.page(which, COLUMNS, 50)) < ENDED / 2


async def test_what_was_created_in_a_time_is_found_by_the_ids_of_that_time(connection: asyncpg.Connection[Any]) -> None:
    await connection.execute(
        "INSERT INTO perdure.tasks "
        "(task_id, owner, tool, priority, status, reply, created_at, finished_at, expires_at) "
        "SELECT perdure.task_id_at(at), 'alice', 'weigh', 1, 'completed', 'task', at, at, at "
        "FROM generate_series(now() - interval '10 hours', now(), interval '5 seconds') AS at"
    )
    await connection.execute("ANALYZE perdure.tasks")
    now = await connection.fetchval("SELECT now()")
    for which, most in (
        (TaskFilter(tools=("none",), created_since=now - HOUR), 850),
        (TaskFilter(tools=("none",), created_before=now - 9 * HOUR), 850),
        (TaskFilter(tools=("none",), created_since=now - 5 * HOUR, created_before=now - 4 * HOUR), 970),
    ):
        assert 0 < await rows_read(connection, listing.page(which, COLUMNS, 50)) <= most


async def test_a_time_is_the_lowest_id_of_what_is_created_then(connection: asyncpg.Connection[Any]) -> None:
    at = "SELECT perdure.task_id_at(timestamptz '2026-01-01 00:00:00.123+00')"
    assert await connection.fetchval(at) == UUID("019b76da-a87b-7000-8000-000000000000")
    assert UUID("019b76da-a87b-7000-8000-000000000000").int >> 80 == 1767225600123
