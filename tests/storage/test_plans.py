"""The hot statements find their rows by an index, however many tasks have ended, at the first and at the tenth use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from app.storage import callers
from app.storage import statements as sql
from app.storage.store import EXPIRED, LOST, OVERDUE, STILL_KNOWN, TIMED_OUT, UNANSWERED

ENDED, TOOLS = 20_000, 20
SOME_ID = "00000000-0000-7000-8000-000000000001"

# 20,000 ended tasks, and some of each kind of live ones.
FILL = [
    f"""
    INSERT INTO perdure.tasks (task_id, owner, tool, priority, status, reply, ready_at, worker_id, questions_open,
        deadline_at, finished_at, expires_at, created_at)
    SELECT gen_random_uuid(), 'owner-' || n % 50, 'tool-' || n % {TOOLS}, n % 4, kind, 'task',
        CASE WHEN kind = 'working' AND n % 2 = 0 THEN now() + (n - 100) * interval '1 second' END,
        CASE WHEN kind = 'working' AND n % 2 = 1 THEN ('{SOME_ID[:-1]}' || n % 8)::uuid END,
        CASE WHEN kind = 'input_required' THEN 1 ELSE 0 END,
        CASE WHEN kind IN ('working', 'input_required') AND n % 3 = 0 THEN now() + (n - 50) * interval '1 second' END,
        CASE WHEN kind = 'completed' THEN now() END,
        CASE WHEN kind = 'completed' THEN now() + (n - 200) * interval '1 minute' END,
        now() - interval '1 day'
    FROM (
        SELECT n, CASE WHEN n > 300 THEN 'completed' WHEN n > 250 THEN 'input_required' ELSE 'working' END AS kind
        FROM generate_series(1, 300 + {ENDED}) AS n
    ) AS made""",
    """
    INSERT INTO perdure.task_requests
        (task_id, method, params, capabilities, retention_ms, answer_within_ms, loss_limit)
    SELECT task_id, 'tools/call', '{}', '{}', 1000, 1000, 3 FROM perdure.tasks""",
    "INSERT INTO perdure.task_outcomes (task_id, result) "
    "SELECT task_id, '{}' FROM perdure.tasks WHERE status = 'completed'",
    "INSERT INTO perdure.task_input_requests (task_id, key, request, epoch, position) "
    "SELECT task_id, 'a', '{}', 1, 1 FROM perdure.tasks",
    "INSERT INTO perdure.task_input_responses (task_id, key, response) "
    "SELECT task_id, key, '{}' FROM perdure.task_input_requests",
    "INSERT INTO perdure.task_steps (task_id, name, value, epoch) SELECT task_id, 'a', '{}', 1 FROM perdure.tasks",
    "INSERT INTO perdure.idempotency_keys (owner, tool, key_hash, task_id, fingerprint) "
    "SELECT owner, tool, sha256(task_id::text::bytea), task_id, '' FROM perdure.tasks",
    "ANALYZE",
]

OUTCOMES = [text for outcome in (EXPIRED, UNANSWERED, TIMED_OUT) for text in outcome]
STATEMENTS: dict[str, tuple[str, list[str], set[str]]] = {
    "KEYED": (callers.KEYED, ["owner-1", "tool-1", "\\x00"], {"idempotency_keys_pkey"}),
    "FREE_KEY": (callers.FREE_KEY, ["owner-1", "tool-1", "\\x00", SOME_ID], set()),
    "LIVE": (callers.LIVE, ["owner-1", "100"], {"tasks_live_of_owner"}),
    "READABLE": (callers.READABLE, ["owner-1", f"{{{SOME_ID}}}"], {"tasks_pkey"}),
    "NEWER": (
        callers.NEWER,
        [f"{{{SOME_ID}}}", "{owner-1}", "{0}", "65536"],
        {"tasks_pkey", "task_outcomes_pkey", "task_input_requests_pkey"},
    ),
    "GET": (sql.GET, [SOME_ID, "owner-1"], {"tasks_pkey", "task_outcomes_pkey", "task_input_requests_pkey"}),
    "CLAIM": (sql.CLAIM, [SOME_ID, "{tool-1,tool-2,tool-3}", "8"], {"tasks_ready", "tasks_pkey"}),
    "HISTORY": (sql.HISTORY, [f"{{{SOME_ID}}}"], {"task_steps_pkey", "task_input_requests_pkey"}),
    "ANSWER": (sql.ANSWER, [SOME_ID, "owner-1", "{a}", '{"{}"}', '{"a":1}'], {"tasks_pkey", "task_requests_pkey"}),
    "CANCEL": (sql.CANCEL, [SOME_ID, "owner-1", "request"], {"tasks_pkey", "task_requests_pkey"}),
    "ASK": (sql.ASK, [SOME_ID, "1", SOME_ID, "{a}", '{"{}"}'], {"tasks_pkey", "task_requests_pkey"}),
    "STEP": (sql.STEP, [SOME_ID, "1", SOME_ID, "a", "{}"], {"tasks_pkey"}),
    "STATUS": (sql.STATUS, [SOME_ID, "1", SOME_ID, "halfway", "1", "2"], {"tasks_pkey"}),
    "DETACH": (sql.DETACH, [SOME_ID, "1", SOME_ID], {"tasks_pkey"}),
    "DETACH_FOR": (sql.DETACH_FOR, [SOME_ID, "owner-1"], {"tasks_pkey", "task_requests_pkey"}),
    "FINISH": (sql.FINISH, [SOME_ID, "1", SOME_ID, "{}"], {"tasks_pkey", "task_requests_pkey"}),
    "FAIL": (sql.FAIL, [SOME_ID, "1", SOME_ID, "{}", "broke", "why"], {"tasks_pkey", "task_requests_pkey"}),
    "RELEASE": (sql.RELEASE, [f"{{{SOME_ID}}}", "{1}", SOME_ID], {"task_requests_pkey"}),
    "HOLDINGS": (sql.HOLDINGS, [SOME_ID], {"tasks_running"}),
    "RESCUE": (sql.RESCUE, ["100", *LOST], {"tasks_running", "tasks_pkey"}),
    "EXPIRE": (sql.EXPIRE, ["100", str(OVERDUE), *OUTCOMES], {"tasks_deadline", "tasks_pkey"}),
    "PURGE": (sql.PURGE, ["100", str(STILL_KNOWN)], {"tasks_expires", "tasks_pkey"}),
    "OWN_OUTCOME": (sql.OWN_OUTCOME, [SOME_ID, "1"], {"tasks_pkey", "task_outcomes_pkey"}),
    "OWN_STEP": (sql.OWN_STEP, [SOME_ID, "1", "a"], {"task_steps_pkey"}),
}


@pytest.fixture
async def filled(connection: asyncpg.Connection[Any]) -> asyncpg.Connection[Any]:
    """A connection to a database with thousands of tasks, whose statistics are known."""
    for statement in FILL:
        await connection.execute(statement)
    return connection


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


async def plans_of(connection: asyncpg.Connection[Any], statement: str, arguments: list[str]) -> list[dict[str, Any]]:
    """The nodes of the plans that a prepared statement gets at its first and at its tenth use.

    From the sixth on PostgreSQL may choose a plan that is for any arguments.
    """
    await connection.execute(f"PREPARE hot AS {statement}")
    given = ", ".join("'{}'".format(argument.replace("'", "''")) for argument in arguments)
    explained = [await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE hot({given})") for _ in range(10)]
    await connection.execute("DEALLOCATE hot")
    return [{"use": use} | node for use in (0, 9) for node in nodes(json.loads(explained[use])[0]["Plan"])]


async def test_hot_statements_read_no_table_from_end_to_end(filled: asyncpg.Connection[Any]) -> None:
    read_through, missing = {}, {}
    for name, (statement, arguments, expected) in STATEMENTS.items():
        plans = await plans_of(filled, statement, arguments)
        scans = {(n["use"], n["Relation Name"]) for n in plans if n["Node Type"] == "Seq Scan"}
        used = {(n["use"], n.get("Index Name")) for n in plans}
        read_through[name] = {scan for scan in scans if scan[1] != "workers"}  # a handful of rows
        missing[name] = {(use, index) for use in (0, 9) for index in expected} - used
    assert {name: tables for name, tables in read_through.items() if tables} == {}
    assert {name: indexes for name, indexes in missing.items() if indexes} == {}


async def test_statements_for_many_rows_lock_them_in_the_order_of_their_ids(filled: asyncpg.Connection[Any]) -> None:
    for name in ("RELEASE", "RESCUE", "EXPIRE", "PURGE"):
        statement, arguments, _ = STATEMENTS[name]
        locks = [node for node in await plans_of(filled, statement, arguments) if node["Node Type"] == "LockRows"]
        assert len(locks) == 2, name
        for lock in locks:
            keys = [node["Sort Key"] for node in nodes(lock) if node["Node Type"] == "Sort"]
            assert [key.split(".")[-1] for (key,) in keys] == ["task_id"], name


async def test_a_claim_does_not_step_over_what_it_may_not_take(filled: asyncpg.Connection[Any]) -> None:
    """Its look at the heads reads no more rows than it returns, though thousands of others are ready or due later."""
    await filled.execute(
        "UPDATE perdure.tasks SET status = 'working', finished_at = NULL, expires_at = NULL, "
        "ready_at = now() + CASE WHEN tool = 'tool-1' THEN interval '1 hour' ELSE interval '-1 hour' END "
        "WHERE status = 'completed'"
    )
    await filled.execute("ANALYZE perdure.tasks")
    async with filled.transaction():
        await filled.execute(f"PREPARE hot AS {sql.CLAIM}")
        (plan,) = json.loads(
            await filled.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE hot('{SOME_ID}', '{{tool-1}}', 8)")
        )
    looks = [node for node in nodes(plan["Plan"]) if node.get("Index Name") == "tasks_ready"]
    assert looks
    assert all(node["Actual Rows"] <= 32 and node.get("Rows Removed by Filter", 0) == 0 for node in looks)
