"""The tables: rows that make no sense cannot be stored, and everything says what it is."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine

from app.domain.task import Json
from app.storage.rows import CatalogueRow
from app.storage.schema import SCHEMA, metadata
from tests.storage.scene import TOOL, Scene, question

NOW = "clock_timestamp()"
SOMEBODY = "gen_random_uuid()"

# What a row of each state is changed to, and the CHECK that refuses it.
IMPOSSIBLE = [
    ("queued", "status = 'done'", "tasks_status"),
    ("queued", "status = ''", "tasks_status"),
    ("queued", "priority = 4", "tasks_priority"),
    ("queued", "priority = -1", "tasks_priority"),
    ("queued", "reply = 'later'", "tasks_reply"),
    ("queued", "ready_at = NULL", "tasks_working_waits_or_runs"),
    ("queued", f"worker_id = {SOMEBODY}", "tasks_working_waits_or_runs"),
    ("running", f"ready_at = {NOW}", "tasks_working_waits_or_runs"),
    ("running", "worker_id = NULL", "tasks_working_waits_or_runs"),
    ("parked", f"ready_at = {NOW}", "tasks_working_waits_or_runs"),
    ("parked", f"worker_id = {SOMEBODY}", "tasks_working_waits_or_runs"),
    ("completed", f"ready_at = {NOW}", "tasks_working_waits_or_runs"),
    ("completed", f"worker_id = {SOMEBODY}", "tasks_working_waits_or_runs"),
    ("completed", "status = 'working', ready_at = finished_at", "tasks_terminal_is_finished"),
    ("completed", "finished_at = NULL, expires_at = NULL", "tasks_terminal_is_finished"),
    ("queued", f"finished_at = {NOW}, expires_at = {NOW}", "tasks_terminal_is_finished"),
    ("queued", "status = 'cancelled', ready_at = NULL", "tasks_terminal_is_finished"),
    ("completed", "expires_at = NULL", "tasks_finished_expires"),
    ("queued", f"expires_at = {NOW}", "tasks_finished_expires"),
    ("failed", f"deadline_at = {NOW}", "tasks_finished_has_no_deadline"),
    ("parked", "questions_open = 0", "tasks_parked_has_questions"),
    ("running", "questions_open = 1", "tasks_parked_has_questions"),
    ("cancelled", "questions_open = 1", "tasks_parked_has_questions"),
    ("parked", f"cancel_requested_at = {NOW}", "tasks_cancel_waits_for_a_worker"),
    ("queued", f"cancel_requested_at = {NOW}", "tasks_cancel_waits_for_a_worker"),
    ("parked", "questions_open = -1", "tasks_counters"),
    ("queued", "epoch = -1", "tasks_counters"),
    ("queued", "losses = -1", "tasks_counters"),
    ("queued", "failures = -1", "tasks_counters"),
    ("queued", "version = 0", "tasks_counters"),
    ("queued", "ttl_ms = -1", "tasks_ttl_ms"),
    ("queued", "ttl_ms = 3153600000001", "tasks_ttl_ms"),
]

# What would make every worker's claim fail, were it stored: durations that lead beyond what a timestamp can hold.
BEYOND = [
    ("timeout_ms = 0", "task_requests_timeout_ms"),
    ("timeout_ms = 9223372036854775807", "task_requests_timeout_ms"),
    ("retention_ms = -1", "task_requests_retention_ms"),
    ("retention_ms = 9223372036854775807", "task_requests_retention_ms"),
    ("answer_within_ms = 0", "task_requests_answer_within_ms"),
    ("answer_within_ms = 9223372036854775807", "task_requests_answer_within_ms"),
    ("loss_limit = -1", "task_requests_loss_limit"),
]


@pytest.mark.parametrize(("change", "constraint"), BEYOND)
async def test_a_policy_that_no_worker_could_act_on_cannot_be_stored(
    scene: Scene, change: str, constraint: str
) -> None:
    task = await scene.queued()
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await scene.connection.execute(f"UPDATE perdure.task_requests SET {change} WHERE task_id = $1", task.task_id)
    assert refused.value.constraint_name == constraint


@pytest.mark.parametrize(("state", "change", "constraint"), IMPOSSIBLE)
async def test_an_impossible_row_cannot_be_stored(scene: Scene, state: str, change: str, constraint: str) -> None:
    task = await getattr(scene, state)()
    statement = f"UPDATE perdure.tasks SET {change} WHERE task_id = $1"
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await scene.connection.execute(statement, task.task_id)
    assert refused.value.constraint_name == constraint


async def test_each_check_of_the_tasks_is_tried(connection: asyncpg.Connection[Any]) -> None:
    query = "SELECT conname FROM pg_constraint WHERE conrelid = 'perdure.tasks'::regclass AND contype = 'c'"
    assert {row["conname"] for row in await connection.fetch(query)} == {c for _, _, c in IMPOSSIBLE}


@pytest.mark.parametrize(("result", "error"), [(None, None), ("{}", "{}")])
async def test_an_outcome_is_a_result_or_an_error(scene: Scene, result: str | None, error: str | None) -> None:
    task = await scene.queued()
    with pytest.raises(asyncpg.CheckViolationError):
        await scene.connection.execute(
            "INSERT INTO perdure.task_outcomes (task_id, result, error) VALUES ($1, $2, $3)",
            task.task_id,
            result,
            error,
        )


async def test_an_attempt_ends_in_one_of_the_known_ways(scene: Scene) -> None:
    task = await scene.queued()
    with pytest.raises(asyncpg.CheckViolationError):
        await scene.connection.execute(
            "INSERT INTO perdure.task_attempts (task_id, epoch, ended) VALUES ($1, 1, 'somehow')", task.task_id
        )


async def test_an_answer_needs_its_question_and_every_child_its_task(scene: Scene) -> None:
    claim, gone = await scene.running(), await scene.running()
    await scene.connection.execute("DELETE FROM perdure.tasks WHERE task_id = $1", gone.task_id)
    answer = "INSERT INTO perdure.task_input_responses (task_id, key, response) VALUES ($1, 'colour', '{}')"
    outcome = "INSERT INTO perdure.task_outcomes (task_id, result) VALUES ($1, '{}')"
    for statement, task_id in ((answer, claim.task_id), (outcome, gone.task_id)):
        with pytest.raises(asyncpg.ForeignKeyViolationError):
            await scene.connection.execute(statement, task_id)


async def test_payloads_are_json_and_never_jsonb(connection: asyncpg.Connection[Any]) -> None:
    query = "SELECT data_type, count(*) FROM information_schema.columns WHERE table_schema = $1 GROUP BY 1"
    types = {row["data_type"]: row["count"] for row in await connection.fetch(query, SCHEMA)}
    assert "jsonb" not in types
    assert types["json"] == 10


async def test_every_table_view_and_column_says_what_it_is(connection: asyncpg.Connection[Any]) -> None:
    query = """
    SELECT c.relname, a.attname, c.relkind = 'v' AS view,
        obj_description(c.oid, 'pg_class') AS about, col_description(c.oid, a.attnum) AS column_about
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind IN ('r', 'v') AND c.relname <> 'alembic_version'"""
    rows = await connection.fetch(query)
    assert {row["relname"] for row in rows} == {t.name for t in metadata.tables.values()} | {
        "task_overview",
        "queue_health",
    }
    silent = {(r["relname"], r["attname"]) for r in rows if not r["about"] or not (r["view"] or r["column_about"])}
    assert silent == set()


_CATALOGUE = """
SELECT 'constraint' AS kind, conrelid::regclass || '.' || conname AS name, pg_get_constraintdef(oid) AS text
FROM pg_constraint WHERE connamespace = 'perdure'::regnamespace
UNION ALL
SELECT 'index', indexrelid::regclass::text, pg_get_indexdef(indexrelid)
FROM pg_index WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'perdure'::regnamespace)
UNION ALL
SELECT 'column', attrelid::regclass || '.' || attname, concat_ws(' ', format_type(atttypid, atttypmod),
    attnotnull, attnum, pg_get_expr(d.adbin, d.adrelid), col_description(attrelid, attnum))
FROM pg_attribute LEFT JOIN pg_attrdef AS d ON adrelid = attrelid AND adnum = attnum
WHERE attnum > 0 AND attrelid IN (
    SELECT oid FROM pg_class WHERE relnamespace = 'perdure'::regnamespace AND relkind IN ('r', 'v'))
UNION ALL
SELECT 'function', oid::regprocedure::text, pg_get_functiondef(oid) || obj_description(oid, 'pg_proc')
FROM pg_proc WHERE pronamespace = 'perdure'::regnamespace
UNION ALL
SELECT 'relation', oid::regclass::text, concat_ws(' ', relkind, reloptions::text, obj_description(oid, 'pg_class'),
    CASE WHEN relkind = 'v' THEN pg_get_viewdef(oid) END)
FROM pg_class WHERE relnamespace = 'perdure'::regnamespace AND relkind IN ('r', 'v', 'i')"""


def catalogue(url: str) -> set[tuple[str, str, str]]:
    """Everything in the schema, but for what is alembic's own."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(_CATALOGUE).fetchall()
    return {(kind, name, text) for kind, name, text in rows if "alembic_version" not in name}


def test_the_migrations_make_exactly_what_the_schema_describes(db_url: str, empty_url: str) -> None:
    engine = create_engine(empty_url.replace("postgresql:", "postgresql+psycopg:", 1))
    metadata.create_all(engine)
    engine.dispose()
    assert catalogue(empty_url) == catalogue(db_url)


async def test_the_overview_says_what_each_task_does(scene: Scene) -> None:
    expected = {}
    for state, activity in {
        "queued": "queued",
        "running": "running",
        "stopping": "stopping",
        "parked": "waiting for answers",
        "completed": "ended",
        "failed": "ended",
        "cancelled": "ended",
    }.items():
        expected[(await getattr(scene, state)()).task_id] = activity
    later = await scene.queued()
    await scene.connection.execute(
        "UPDATE perdure.tasks SET ready_at = now() + interval '1 hour' WHERE task_id = $1", later.task_id
    )
    rows = await scene.connection.fetch("SELECT task_id, activity FROM perdure.task_overview")
    assert {row["task_id"]: row["activity"] for row in rows} == expected | {later.task_id: "scheduled"}


async def test_the_queues_health_counts_what_waits_and_runs_and_who_could_run_it(scene: Scene) -> None:
    for _ in range(3):
        await scene.queued(TOOL)
    later = await scene.queued(TOOL)
    await scene.connection.execute(
        "UPDATE perdure.tasks SET ready_at = now() + interval '1 hour' WHERE task_id = $1", later.task_id
    )
    (claim,) = await scene.store.claim(scene.worker_id, [TOOL], 1)
    await scene.store.ask(claim, [question("colour")])
    await scene.store.claim(scene.worker_id, [TOOL], 1)
    await scene.enlist(scene.worker_id)
    await scene.silence(uuid4())
    await scene.store.publish_tools([CatalogueRow("idle", Json("{}"), Json("{}"), "1")])
    rows = await scene.connection.fetch(
        "SELECT tool, queued, scheduled, running, waiting_for_answers, oldest_wait > interval '0' AS waits, workers "
        "FROM perdure.queue_health ORDER BY tool"
    )
    assert [tuple(row.values()) for row in rows] == [("idle", 0, 0, 0, 0, None, 0), (TOOL, 1, 1, 1, 1, True, 1)]
