"""What must be true of the tables at any moment, asked in SQL; and a task's rows, read for a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from app.domain.task import Json, Reply, Status
from tests.storage.model import TICK_MS, Row
from tests.storage.scene import CHILDREN

# Each query finds what breaks the rule that names it.
_TASKS = "SELECT t.task_id FROM perdure.tasks AS t WHERE "
_OPEN = """(SELECT count(*) FROM perdure.task_input_requests AS i WHERE i.task_id = t.task_id AND NOT EXISTS (
    SELECT 1 FROM perdure.task_input_responses AS a WHERE a.task_id = i.task_id AND a.key = i.key))"""
_ENDED = "t.status IN ('completed', 'failed', 'cancelled')"
FACTS: dict[str, str] = {
    f"each row of {table} has its task": f"SELECT c.task_id FROM perdure.{table} AS c "
    "WHERE NOT EXISTS (SELECT 1 FROM perdure.tasks AS t WHERE t.task_id = c.task_id)"
    for table in CHILDREN
} | {
    "every task has its request": _TASKS
    + "NOT EXISTS (SELECT 1 FROM perdure.task_requests AS r WHERE r.task_id = t.task_id)",
    "what works runs or waits, and nothing else does": _TASKS
    + "(t.status = 'working') <> ((t.worker_id IS NULL) <> (t.ready_at IS NULL))",
    "what neither works nor runs belongs to nobody": _TASKS
    + "t.status <> 'working' AND num_nonnulls(t.worker_id, t.ready_at) > 0",
    "what has ended says when, and until when it can be read": _TASKS
    + f"{_ENDED} <> (t.finished_at IS NOT NULL AND t.expires_at >= t.finished_at)",
    "what has ended has nothing before it": _TASKS + f"{_ENDED} AND num_nonnulls(t.deadline_at, t.ready_at) > 0",
    "the ttl of what has ended is the truth": _TASKS
    + "t.expires_at - t.created_at NOT BETWEEN (t.ttl_ms - 1) * interval '1 ms' AND t.ttl_ms * interval '1 ms'",
    "a parked task has as many questions open as it says": _TASKS
    + f"t.status = 'input_required' AND (t.questions_open <> {_OPEN} OR t.questions_open = 0)",
    "no other task has a question open": _TASKS + "t.status <> 'input_required' AND t.questions_open <> 0",
    "what works again has all its answers": _TASKS + f"t.status = 'working' AND {_OPEN} > 0",
    "a question does not wait for ever": _TASKS + "t.status = 'input_required' AND t.deadline_at IS NULL",
    "a cancel waits for a worker only": _TASKS
    + f"t.cancel_requested_at IS NOT NULL AND t.worker_id IS NULL AND NOT {_ENDED}",
    "what completed has a result and what failed an error": _TASKS
    + "CASE t.status WHEN 'completed' THEN 'result' WHEN 'failed' THEN 'error' ELSE 'none' END <> coalesce(("
    "SELECT CASE WHEN o.error IS NULL THEN 'result' ELSE 'error' END "
    "FROM perdure.task_outcomes AS o WHERE o.task_id = t.task_id), 'none')",
    "nothing is later than the last attempt": _TASKS
    + "t.epoch < greatest((SELECT max(epoch) FROM perdure.task_attempts WHERE task_id = t.task_id), "
    "(SELECT max(epoch) FROM perdure.task_input_requests WHERE task_id = t.task_id), "
    "(SELECT max(epoch) FROM perdure.task_steps WHERE task_id = t.task_id), "
    "(SELECT max(epoch) FROM perdure.task_outcomes WHERE task_id = t.task_id))",
    "an attempt that runs has not ended": _TASKS
    + "t.worker_id IS NOT NULL AND EXISTS (SELECT 1 FROM perdure.task_attempts AS a "
    "WHERE a.task_id = t.task_id AND a.epoch = t.epoch)",
    "each lost worker was counted": _TASKS
    + "t.losses <> (SELECT count(*) FROM perdure.task_attempts WHERE task_id = t.task_id AND ended = 'lost')",
    "no change is older than its task": _TASKS + "t.updated_at < t.created_at OR t.finished_at > t.updated_at",
}
_BROKEN = " UNION ALL ".join(f"SELECT ${n} AS rule FROM ({query}) AS q" for n, query in enumerate(FACTS.values(), 1))

_ROWS = """
SELECT t.*,
    ARRAY(SELECT (i.key, i.epoch, i.request::text) FROM perdure.task_input_requests AS i
        WHERE i.task_id = t.task_id ORDER BY i.epoch, i.position) AS questions,
    ARRAY(SELECT (a.key, a.response::text) FROM perdure.task_input_responses AS a WHERE a.task_id = t.task_id)
        AS answers,
    ARRAY(SELECT (s.name, s.epoch, s.value::text) FROM perdure.task_steps AS s WHERE s.task_id = t.task_id) AS steps,
    ARRAY(SELECT (a.epoch, a.ended) FROM perdure.task_attempts AS a WHERE a.task_id = t.task_id) AS attempts,
    ARRAY(SELECT (o.epoch, coalesce(o.result, o.error)::text) FROM perdure.task_outcomes AS o
        WHERE o.task_id = t.task_id) AS outcomes,
    (SELECT r.capabilities::text FROM perdure.task_requests AS r WHERE r.task_id = t.task_id) AS capabilities,
    (SELECT k.key_hash FROM perdure.idempotency_keys AS k WHERE k.task_id = t.task_id) AS key
FROM perdure.tasks AS t"""


@dataclass(frozen=True)
class Seen:
    """A task as it was read: its rows, and how old it was when it last changed. Growing older changes neither."""

    row: Row
    updated_at: timedelta


async def look(connection: asyncpg.Connection[Any]) -> tuple[dict[UUID, Seen], set[str]]:
    """All tasks by their ids, and the rules that some row breaks."""
    records = await connection.fetch(_ROWS)
    rows = {r["task_id"]: Seen(_row(r), r["updated_at"] - r["created_at"]) for r in records}
    return rows, {record["rule"] for record in await connection.fetch(_BROKEN, *FACTS)}


def _row(record: asyncpg.Record) -> Row:
    outcomes = [(epoch, Json(text)) for epoch, text in record["outcomes"]]
    return Row(
        status=Status(record["status"]),
        message=record["status_message"],
        reply=Reply(record["reply"]),
        ready=_since_creation(record, "ready_at"),
        worker_id=record["worker_id"],
        epoch=record["epoch"],
        open=record["questions_open"],
        losses=record["losses"],
        failures=record["failures"],
        cancel=record["cancel_requested_at"] is not None,
        version=record["version"],
        ttl=None if record["ttl_ms"] is None else half_ticks(record["ttl_ms"]),
        deadline=_since_creation(record, "deadline_at"),
        expires=_since_creation(record, "expires_at"),
        progress=(record["progress"], record["progress_total"]),
        capabilities=record["capabilities"],
        key=record["key"],
        questions={key: (epoch, Json(request)) for key, epoch, request in record["questions"]},
        answers={key: Json(text) for key, text in record["answers"]},
        steps={name: (epoch, Json(value)) for name, epoch, value in record["steps"]},
        attempts=dict(record["attempts"]),
        outcome=outcomes[0] if outcomes else None,
    )


def _since_creation(record: asyncpg.Record, column: str) -> float | None:
    if record[column] is None:
        return None
    return half_ticks((record[column] - record["created_at"]).total_seconds() * 1000)


def half_ticks(milliseconds: float) -> float:
    """To the nearest half, so that the seconds which a test takes do not count."""
    return round(milliseconds / TICK_MS * 2) / 2
