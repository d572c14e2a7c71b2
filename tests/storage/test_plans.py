"""The hot statements find their rows by an index, however many tasks have ended, at the first and at the tenth use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import asyncpg
import pytest

from app.storage import callers, due, fleet, inspection, steering
from app.storage import statements as sql
from app.storage.database import BY_INDEX
from app.storage.store import EXPIRED, FORGOTTEN, LISTED, LOST, OVERDUE, STILL_KNOWN, TIMED_OUT, UNANSWERED

ENDED, TOOLS = 20_000, 20
SOME_ID = "00000000-0000-7000-8000-000000000001"
SOME_IDS = f"{{{SOME_ID},00000000-0000-7000-8000-000000000002}}"

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
    "INSERT INTO perdure.task_attempts (task_id, epoch, ended) SELECT task_id, 1, 'lost' FROM perdure.tasks",
    "INSERT INTO perdure.task_steps (task_id, name, value, epoch) SELECT task_id, 'a', '{}', 1 FROM perdure.tasks",
    "INSERT INTO perdure.idempotency_keys (owner, tool, key_hash, task_id, fingerprint) "
    "SELECT owner, tool, sha256(task_id::text::bytea), task_id, '' FROM perdure.tasks",
    f"""
    INSERT INTO perdure.workers (worker_id, host, pid, version, tools, slots, lease_ms)
    SELECT ('{SOME_ID[:-1]}' || n)::uuid, 'here', n, '1', '{{tool-1}}', 4, 20000 FROM generate_series(0, 7) AS n""",
    "ANALYZE",
]

# What one tool has for an hour later: 100,000 tasks that are due then, and whose time is over then.
FILL_LATER = """
INSERT INTO perdure.tasks (task_id, owner, tool, priority, status, reply, ready_at, deadline_at)
SELECT gen_random_uuid(), 'owner-1', 'tool-1', 1, 'working', 'task', later.at, later.at
FROM generate_series(1, 100000) CROSS JOIN (SELECT now() + interval '1 hour' AS at) AS later"""
FILL_FOREIGN = """
UPDATE perdure.tasks
SET status = 'working', finished_at = NULL, expires_at = NULL, ready_at = now() - interval '1 hour'
WHERE status = 'completed' AND tool <> 'tool-1'"""

OUTCOMES = [text for outcome in (EXPIRED, UNANSWERED, TIMED_OUT) for text in outcome]
Arguments = list[str | None]
NEW: Arguments = [
    *(SOME_ID, '"{}"', "NULL", '"\\\\x00"', '"\\\\x00"', "0"),
    *('owner-1,tool-1,task,tools/call,"{}",NULL', "1,NULL,NULL,1000,NULL,1000,3"),
]
STATEMENTS: dict[str, tuple[str, Arguments, set[str]]] = {
    "CREATE": (
        callers.CREATE,
        [f"{{{value}}}" for value in NEW],
        set(),
    ),
    "KEYED": (callers.KEYED, ["owner-1", "tool-1", "\\x00"], {"idempotency_keys_pkey"}),
    "FREE_KEY": (callers.FREE_KEY, ["owner-1", "tool-1", "\\x00", SOME_ID], set()),
    "LIVE": (callers.LIVE, ["owner-1", "100"], {"tasks_live_of_owner"}),
    "READABLE": (callers.READABLE, ["owner-1", f"{{{SOME_ID}}}"], {"tasks_pkey"}),
    "NEWER": (
        callers.NEWER,
        [f"{{{SOME_ID}}}", "{owner-1}", "{0}", "65536"],
        {"tasks_pkey", "task_outcomes_pkey", "task_input_requests_pkey"},
    ),
    "GET": (
        callers.GET,
        [SOME_IDS, "{owner-1,owner-2}", "{-1,-1}", "65536"],
        {"tasks_pkey", "task_outcomes_pkey", "task_input_requests_pkey"},
    ),
    "CLAIM": (sql.CLAIM, [SOME_ID, "{tool-1,tool-2,tool-3}", "8", "2020-01-01"], {"tasks_ready", "tasks_pkey"}),
    "HISTORY": (sql.HISTORY, [f"{{{SOME_ID}}}"], {"task_steps_pkey", "task_input_requests_pkey"}),
    "ANSWER": (sql.ANSWER, [SOME_ID, "owner-1", "{a}", '{"{}"}', '{"a":1}'], {"tasks_pkey", "task_requests_pkey"}),
    "CANCEL": (sql.CANCEL, [SOME_ID, "owner-1", "request"], {"tasks_pkey", "task_requests_pkey"}),
    "ASK": (sql.ASK, [SOME_ID, "1", SOME_ID, "{a}", '{"{}"}'], {"tasks_pkey", "task_requests_pkey"}),
    "STEP": (sql.STEP, [SOME_ID, "1", SOME_ID, "a", "{}"], {"tasks_pkey"}),
    "FENCE": (sql.FENCE, [SOME_ID, "1", SOME_ID], {"tasks_pkey"}),
    "MEMO": (sql.MEMO, [SOME_ID, "a", "{}", "1"], set()),
    "STATUS_MANY": (
        sql.STATUS_MANY,
        [SOME_IDS, "{1,1}", SOME_IDS, "{halfway,done}", "{1,NULL}", "{2,NULL}"],
        {"tasks_pkey"},
    ),
    "STATUS": (sql.STATUS, [SOME_ID, "1", SOME_ID, "halfway", "1", "2"], {"tasks_pkey"}),
    "DETACH": (sql.DETACH, [SOME_ID, "1", SOME_ID], {"tasks_pkey"}),
    "DETACH_FOR": (sql.DETACH_FOR, [SOME_ID, "owner-1"], {"tasks_pkey", "task_requests_pkey"}),
    "FINISH": (sql.FINISH, [SOME_ID, "1", SOME_ID, "{}"], {"tasks_pkey", "task_requests_pkey"}),
    "FINISH_MANY": (
        sql.FINISH_MANY,
        [SOME_IDS, "{1,1}", SOME_IDS, '{"{}","{}"}'],
        {"tasks_pkey", "task_requests_pkey"},
    ),
    "FAIL": (sql.FAIL, [SOME_ID, "1", SOME_ID, "{}", "broke", "why"], {"tasks_pkey", "task_requests_pkey"}),
    "RETRY": (sql.RETRY, [SOME_ID, "1", SOME_ID, "1000", "broke", "why"], {"tasks_pkey", "task_requests_pkey"}),
    "RELEASE": (sql.RELEASE, [f"{{{SOME_ID}}}", "{1}", SOME_ID], {"task_requests_pkey"}),
    "HOLDINGS": (fleet.HOLDINGS, [SOME_ID], {"tasks_running"}),
    "HOLDINGS_OF": (fleet.HOLDINGS_OF, [SOME_ID, SOME_IDS], {"tasks_pkey"}),
    "LOST": (due.LOST, ["100", "{}"], {"tasks_running"}),
    "OVERDUE": (due.OVERDUE, ["100", "{}", str(OVERDUE)], {"tasks_deadline"}),
    "SPENT": (due.SPENT, ["100", "{}", str(STILL_KNOWN)], {"tasks_expires"}),
    "RESCUE": (sql.RESCUE, [SOME_IDS, "{1,1}", SOME_IDS, *LOST], {"tasks_pkey", "task_requests_pkey"}),
    "EXPIRE": (sql.EXPIRE, [SOME_IDS, str(OVERDUE), *OUTCOMES], {"tasks_pkey", "task_requests_pkey"}),
    "PURGE": (due.PURGE, [SOME_IDS, str(STILL_KNOWN)], {"tasks_pkey"}),
    "OWN_OUTCOME": (sql.OWN_OUTCOME, [SOME_ID, "1"], {"tasks_pkey", "task_outcomes_pkey"}),
    "OWN_STEP": (sql.OWN_STEP, [SOME_ID, "1", "a"], {"task_steps_pkey"}),
    "OWN_RETRY": (sql.OWN_RETRY, [SOME_ID, "1"], {"tasks_pkey", "task_attempts_pkey"}),
    "OWN_QUESTION": (sql.OWN_QUESTION, [SOME_ID, "1"], {"tasks_pkey", "task_input_requests_pkey"}),
    "REGISTER": (fleet.REGISTER, [SOME_ID, "here", "1", "1", "{tool-1}", "4", "20000"], set()),
    "BEAT": (fleet.BEAT, [SOME_ID, "false"], set()),
    "LEAVE": (fleet.LEAVE, [SOME_ID], set()),
    "FORGET_WORKERS": (fleet.FORGET_WORKERS, [str(FORGOTTEN)], {"tasks_running"}),
    "PUBLISH_TOOLS": (fleet.PUBLISH_TOOLS, ["{tool-1}", '{"{}"}', '{"{}"}', "{1}"], set()),
    "READ_TOOLS": (fleet.READ_TOOLS, [str(LISTED)], set()),
    "SHOW": (inspection.SHOW, [SOME_ID, "1000", "100"], {"tasks_pkey", "task_requests_pkey", "task_outcomes_pkey"}),
    "QUESTIONS": (
        inspection.QUESTIONS,
        ["100", SOME_ID, "1000", "10"],
        {"tasks_by_status", "task_input_requests_pkey", "task_input_responses_pkey"},
    ),
    "WORKERS": (inspection.WORKERS, ["100"], {"tasks_running"}),
    "TOOLS": (inspection.TOOLS, ["100"], set()),
    "OWNERS": (steering.OWNERS, [SOME_IDS], {"tasks_pkey"}),
    "ENDED_REQUESTS": (steering.ENDED_REQUESTS, [SOME_IDS], {"tasks_pkey", "task_requests_pkey"}),
    "CANCEL_MANY": (steering.CANCEL_MANY, [SOME_IDS], {"tasks_pkey", "task_requests_pkey"}),
    "PURGE_ENDED": (steering.PURGE_ENDED, [SOME_IDS], {"tasks_pkey"}),
}
KIND = """
INSERT INTO perdure.tasks
    (task_id, owner, tool, priority, reply, status, ready_at, worker_id, deadline_at, finished_at, expires_at)
SELECT gen_random_uuid(), 'owner-1', 'tool-1', 1, 'task', {} FROM generate_series(1, 40)"""
# What there may be when a session makes its plans.
YOUNG = {
    "nothing": "ANALYZE",
    "what waits": KIND.format("'working', now(), NULL, now(), NULL, NULL"),
    "what runs": KIND.format("'working', NULL, gen_random_uuid(), NULL, NULL, NULL"),
    "what has ended": KIND.format("'completed', NULL, NULL, NULL, now(), now() - interval '2 days'"),
}
BY_ID = {"tasks_pkey", "tasks_by_status"}
"""Indexes that end with the task's id: they lead to the one row."""

SMALL = {"workers", "tools"}
"""Tables of a handful of rows, which are read as a whole."""


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


def quoted(arguments: Sequence[str | None]) -> str:
    """Arguments as they are written in SQL."""
    return ", ".join("NULL" if a is None else "'{}'".format(a.replace("'", "''")) for a in arguments)


async def plans_of(connection: asyncpg.Connection[Any], statement: str, arguments: Arguments) -> list[dict[str, Any]]:
    """The nodes of the plans that a prepared statement gets at its first and at its tenth use.

    From the sixth on PostgreSQL may choose a plan that is for any arguments.
    """
    await connection.execute(f"PREPARE hot AS {statement}")
    explain = f"EXPLAIN (FORMAT JSON) EXECUTE hot({quoted(arguments)})"
    explained = [await connection.fetchval(explain) for _ in range(10)]
    await connection.execute("DEALLOCATE hot")
    return [{"use": use} | node for use in (0, 9) for node in nodes(json.loads(explained[use])[0]["Plan"])]


def test_every_statement_is_looked_at() -> None:
    constants = [item for module in (sql, callers, due, fleet, inspection, steering) for item in vars(module).items()]
    verbs = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
    whole = {name for name, text in constants if isinstance(text, str) and verbs.match(text)}
    assert {name for name in whole if not name.startswith("_")} == STATEMENTS.keys()


async def test_hot_statements_read_no_table_from_end_to_end(filled: asyncpg.Connection[Any]) -> None:
    read_through, missing = {}, {}
    for name, (statement, arguments, expected) in STATEMENTS.items():
        plans = await plans_of(filled, statement, arguments)
        scans = {(n["use"], n["Relation Name"]) for n in plans if n["Node Type"] == "Seq Scan"}
        used = {(n["use"], n.get("Index Name")) for n in plans}
        read_through[name] = {scan for scan in scans if scan[1] not in SMALL}
        missing[name] = {(use, index) for use in (0, 9) for index in expected} - used
    assert {name: tables for name, tables in read_through.items() if tables} == {}
    assert {name: indexes for name, indexes in missing.items() if indexes} == {}


@pytest.mark.parametrize("young", YOUNG)
async def test_a_plan_that_was_made_while_the_tables_were_small_goes_by_the_same_indexes(
    young: str, connection: asyncpg.Connection[Any]
) -> None:
    await connection.execute(YOUNG[young])
    await connection.execute("ANALYZE")
    for setting, value in BY_INDEX.items():
        await connection.execute(f"SET {setting} = {value}")
    for module in (sql, callers, due):
        for name, text in vars(module).items():
            if text == STATEMENTS.get(name, ("",))[0]:
                found = await plans_of(connection, text, STATEMENTS[name][1])
                assert {n["Relation Name"] for n in found if n["Node Type"] == "Seq Scan"} <= SMALL, name
                assert {n["Node Type"] for n in found}.isdisjoint({"Hash Join", "Merge Join"}), name
                used = {str(n["Index Name"]) for n in found if "Index Name" in n}
                assert {index for index in used if index.startswith("tasks_")} <= STATEMENTS[name][2] | BY_ID, name
                queues = [n["Index Cond"] for n in found if n.get("Index Name") == "tasks_ready"]
                assert [cond for cond in queues if "tool =" not in cond] == [], name


async def test_statements_for_many_rows_lock_them_in_the_order_of_their_ids(filled: asyncpg.Connection[Any]) -> None:
    many = ("RELEASE", "RESCUE", "EXPIRE", "PURGE", "FINISH_MANY", "STATUS_MANY", "CANCEL_MANY", "PURGE_ENDED")
    for name in many:
        statement, arguments, _ = STATEMENTS[name]
        locks = [node for node in await plans_of(filled, statement, arguments) if node["Node Type"] == "LockRows"]
        assert len(locks) == 2, name
        for lock in locks:
            sorts = [node["Sort Key"] for node in nodes(lock) if node["Node Type"] == "Sort"]
            first = next(node for node in nodes(lock) if "Plans" not in node)
            in_order = (first.get("Index Name"), first.get("Scan Direction")) == ("tasks_pkey", "Forward")
            assert [key.split(".")[-1] for (key,) in sorts] == ["task_id"] or (sorts == [] and in_order), name


async def rows_read(connection: asyncpg.Connection[Any], name: str, arguments: Arguments, mode: str) -> int:
    """How many tasks a statement looks at when it is run; what it did is taken back."""
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
    await connection.execute(f"PREPARE hot AS {STATEMENTS[name][0]}")
    explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE hot({quoted(arguments)})")
    await transaction.rollback()
    await connection.execute("DEALLOCATE hot")
    plan = json.loads(explained)[0]["Plan"]
    scans = [n for n in nodes(plan) if str(n.get("Index Name", n.get("Relation Name"))).startswith("tasks")]
    looks = [n for n in scans if "Scan" in n["Node Type"]]
    assert looks
    passed_over = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    return sum(int((n["Actual Rows"] + sum(n.get(by, 0) for by in passed_over)) * n["Actual Loops"]) for n in looks)


async def test_what_is_not_yet_due_or_for_others_is_not_stepped_over(filled: asyncpg.Connection[Any]) -> None:
    """However much there is for an hour later, or for other workers, ten tasks cost what ten tasks cost."""
    for statement in (FILL_LATER, FILL_FOREIGN, "ANALYZE perdure.tasks"):
        await filled.execute(statement)
    hot: dict[str, Arguments] = {
        "CLAIM": [SOME_ID, "{tool-1}", "10", "2020-01-01"],
        "LOST": ["10", f"{{{SOME_ID}}}"],
        "OVERDUE": ["10", f"{{{SOME_ID}}}", str(OVERDUE)],
        "SPENT": ["10", f"{{{SOME_ID}}}", str(STILL_KNOWN)],
    }
    read = {
        (name, mode): await rows_read(filled, name, arguments, mode)
        for name, arguments in hot.items()
        for mode in ("force_custom_plan", "force_generic_plan")
    }
    assert {how: rows for how, rows in read.items() if rows > 300} == {}
