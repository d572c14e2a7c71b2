"""What docs/sql.md shows runs as it stands there, finds something, and does not read the tasks that have ended."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest

from tests.cli.operating import run
from tests.storage.test_plans import FILL, SOME_ID, nodes
from tests.support.pages import run_shell, span

PAGE = (Path(__file__).parents[1] / "docs/sql.md").read_text()
QUERIES = {
    name: (kind, query)
    for name, kind, query in re.findall(r"<!-- query: ([\w ]+), (\w+) -->\n```sql\n(.*?)```", PAGE, re.DOTALL)
}
A_TASK = "01920000-0000-7000-8000-000000000000"
LIVE = 300
FAILED = "00000000-0000-7000-8000-00000000f000"

# Beside what the tests of plans fill in: failures, lost attempts, open questions, and all of it lately.
MORE = [
    f"""
    INSERT INTO perdure.tasks
        (task_id, owner, tool, priority, status, reply, status_message, finished_at, expires_at, created_at)
    SELECT CASE n WHEN 0 THEN '{FAILED}' ELSE perdure.task_id_at(at) END, 'owner-1', 'tool-1', 1, 'failed', 'task',
        'It broke', at, now() + interval '1 day', at
    FROM generate_series(0, 99) AS n CROSS JOIN LATERAL (SELECT now() - n * interval '1 minute' AS at) AS a""",
    "INSERT INTO perdure.task_outcomes (task_id, error) "
    "SELECT task_id, '{}' FROM perdure.tasks WHERE status = 'failed'",
    "INSERT INTO perdure.task_attempts (task_id, epoch, ended, error) "
    "SELECT task_id, 1, 'error', 'ValueError' FROM perdure.tasks WHERE status = 'failed'",
    "DELETE FROM perdure.task_input_responses AS a USING perdure.tasks AS t "
    "WHERE t.task_id = a.task_id AND t.status = 'input_required'",
    "UPDATE perdure.tasks SET started_at = created_at, cancel_requested_at = CASE WHEN priority = 1 THEN now() END "
    "WHERE worker_id IS NOT NULL",
    f"UPDATE perdure.workers SET beat_at = now() - interval '1 hour' WHERE worker_id = '{SOME_ID}'",
    "ANALYZE",
]


@pytest.fixture(scope="module")
def filled_url(module_db_url: str) -> str:
    """A database in which all that is asked for is there."""
    with psycopg.connect(module_db_url, autocommit=True) as connection:
        for statement in (*FILL, *MORE):
            connection.execute(statement.encode())
    return module_db_url


@pytest.fixture
async def connection(filled_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection to it."""
    connection = await asyncpg.connect(filled_url)
    yield connection
    await connection.close(timeout=5)


@pytest.fixture
async def blocked(filled_url: str) -> AsyncIterator[None]:
    """Somebody holds a task's row, and somebody else waits for it."""
    holder, waiter = await asyncpg.connect(filled_url), await asyncpg.connect(filled_url)
    transaction = holder.transaction()
    await transaction.start()
    lock = "SELECT FROM perdure.tasks WHERE task_id = $1 FOR UPDATE"
    await holder.execute(lock, UUID(FAILED))
    waiting = asyncio.create_task(waiter.execute(lock, UUID(FAILED)))
    while not await holder.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
        await asyncio.sleep(0.01)
    yield
    await transaction.rollback()
    await waiting
    await holder.close(timeout=5)
    await waiter.close(timeout=5)


def test_there_are_twenty_queries_and_each_is_marked() -> None:
    assert len(QUERIES) >= 20
    assert len(QUERIES) == PAGE.count("```sql")
    assert {kind for kind, _ in QUERIES.values()} == {"live", "ended", "database"}


@pytest.mark.parametrize("name", QUERIES)
async def test_each_query_finds_what_it_asks_for(name: str, connection: asyncpg.Connection[Any], blocked: None) -> None:
    assert await connection.fetch(QUERIES[name][1].replace(A_TASK, FAILED))


@pytest.mark.parametrize("name", [name for name, (kind, _) in QUERIES.items() if kind == "live"])
async def test_what_asks_for_live_tasks_reads_no_others(name: str, connection: asyncpg.Connection[Any]) -> None:
    explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {QUERIES[name][1]}")
    plan = list(nodes(json.loads(explained)[0]["Plan"]))
    reads = [node for node in plan if node.get("Alias") == "t"]
    passed_over = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    assert reads
    for node in reads:
        assert (node["Actual Rows"] + sum(node.get(by, 0) for by in passed_over)) * node["Actual Loops"] <= LIVE


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("why", "tasks_pkey"),
        ("failures", "tasks_by_status"),
        ("reasons", "tasks_by_status"),
        ("lost attempts", "task_attempts_pkey"),
        ("durations", "tasks_finished"),
        ("growth", "tasks_pkey"),
    ],
)
async def test_what_asks_for_ended_tasks_of_a_time_can_find_them_by_an_index(
    name: str, index: str, connection: asyncpg.Connection[Any]
) -> None:
    async with connection.transaction():
        await connection.execute("SET LOCAL enable_seqscan = off")
        explained = await connection.fetchval(f"EXPLAIN (FORMAT JSON) {QUERIES[name][1]}")
    used = [node for node in nodes(json.loads(explained)[0]["Plan"]) if node.get("Index Name") == index]
    assert used
    assert "Index Cond" in used[0]


def test_a_session_that_holds_vacuum_back_is_ended_as_the_page_says(db_url: str) -> None:
    end, query = span("docs/sql.md", "SELECT pg_terminate"), QUERIES["long transactions"][1].rstrip().rstrip(";")
    with psycopg.connect(db_url) as other, psycopg.connect(db_url) as connection:
        other.execute("SELECT txid_current()")
        held = f"{end} FROM ({query}) AS found WHERE pid = {other.info.backend_pid}"
        assert connection.execute(held.encode()).fetchall() == [(True,)]
        with pytest.raises(psycopg.OperationalError):
            other.execute("SELECT")


@pytest.mark.parametrize("page", ["README.md", "docs/sql.md"])
def test_psql_shows_what_each_column_is(page: str, db_url: str, tmp_path: Path) -> None:
    describe = span(page, r"\d+ ")
    shown = run_shell(tmp_path, f'psql "$DATABASE_URL" -c {shlex.quote(describe)}', DATABASE_URL=db_url)
    asked = "SELECT col_description(attrelid, attnum) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
    with psycopg.connect(db_url) as connection:
        comments = connection.execute(asked, (describe.split()[1],)).fetchall()
    assert len(comments) > 20
    assert [comment for (comment,) in comments if comment not in shown] == []


def commands() -> list[list[str]]:
    """The commands of the page, as a shell splits them."""
    (block,) = re.findall(r"<!-- commands -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    return [shlex.split(line, comments=True)[1:] for line in block.splitlines()]


def test_each_command_is_understood(db_url: str) -> None:
    """On an empty database nothing is found; and that it may be understood too well is seen by a wrong word."""
    for command in commands():
        assert run(db_url, *command).code in (0, 1), command
        assert run(db_url, *command, "--nonsense").code == 2
