"""All that is known when a fault run is over: the database's rows, the tools' journal, the logs of the processes."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

Key = tuple[str, int]
"""Task and epoch."""

_TASKS = """
SELECT t.task_id::text AS task_id, t.tool, t.status, t.reply, t.epoch, t.losses, r.loss_limit,
    t.worker_id::text AS worker_id, r.params::text AS params,
    o.result::text AS result, o.error::text AS error, o.epoch AS outcome_epoch,
    extract(epoch FROM t.created_at)::float8 AS created_at,
    extract(epoch FROM t.finished_at)::float8 AS finished_at,
    extract(epoch FROM t.cancel_requested_at)::float8 AS cancel_requested_at
FROM perdure.tasks AS t
JOIN perdure.task_requests AS r USING (task_id)
LEFT JOIN perdure.task_outcomes AS o USING (task_id)
ORDER BY t.task_id"""
_QUESTIONS = """
SELECT q.task_id::text AS task_id, q.key, q.epoch, a.response::text AS response,
    extract(epoch FROM q.asked_at)::float8 AS at
FROM perdure.task_input_requests AS q
LEFT JOIN perdure.task_input_responses AS a USING (task_id, key)
ORDER BY q.task_id, q.epoch, q.position"""
_STEPS = """
SELECT task_id::text AS task_id, name, epoch, value::text AS value, extract(epoch FROM stepped_at)::float8 AS at
FROM perdure.task_steps"""
_ATTEMPTS = """
SELECT task_id::text AS task_id, epoch, worker_id::text AS worker_id, ended, error,
    extract(epoch FROM ended_at)::float8 AS at
FROM perdure.task_attempts"""
_WORKERS = """
SELECT worker_id::text AS worker_id, pid, extract(epoch FROM started_at)::float8 AS started_at FROM perdure.workers"""
_WRITTEN = """
SELECT task_id, step AS name, epoch, run, extract(epoch FROM written_at)::float8 AS at FROM public.written"""
CHILDREN = (
    "task_requests", "task_outcomes", "task_input_requests", "task_input_responses", "task_steps", "task_attempts",
)  # fmt: skip
_ORPHANS = (
    "SELECT count(*) FROM perdure.{} AS c WHERE NOT EXISTS (SELECT FROM perdure.tasks t WHERE t.task_id = c.task_id)"
)


@dataclass(frozen=True)
class Note:
    """A line of the journal."""

    event: str
    at: float
    pid: int
    task: str
    epoch: int
    step: str = ""
    run: str = ""


@dataclass
class Evidence:
    """What is left of the run; times are seconds since the epoch by the one clock of the machine.

    Attributes:
        tasks: their rows with request and outcome, by id.
        questions: by task, with the responses.
        steps: the memoised ones, by task and name.
        attempts: those that ended in neither an outcome nor a question, by task and epoch.
        workers: those that did not leave by themselves, by id.
        written: the effects of transactions, by task and name.
        orphans: by table, rows without a task.
        notes: the journal, in order of time.
        events: what the processes logged, by level and event.
        oddities: what they wrote that is no line of the log, and errors in it.
    """

    tasks: dict[str, asyncpg.Record]
    questions: dict[str, list[asyncpg.Record]]
    steps: dict[tuple[str, str], asyncpg.Record]
    attempts: dict[Key, asyncpg.Record]
    workers: dict[str, asyncpg.Record]
    written: dict[tuple[str, str], list[asyncpg.Record]]
    orphans: dict[str, int]
    notes: list[Note]
    events: Counter[tuple[str, str]] = field(default_factory=Counter)
    oddities: list[str] = field(default_factory=list)


async def collect(url: str, journal: Path) -> Evidence:
    """Read what is in the database and in the journal."""
    connection = await asyncpg.connect(url, server_settings={"application_name": "faults"})
    try:
        questions = defaultdict(list)
        for row in await connection.fetch(_QUESTIONS):
            questions[row["task_id"]].append(row)
        written = defaultdict(list)
        for row in await connection.fetch(_WRITTEN):
            written[row["task_id"], row["name"]].append(row)
        evidence = Evidence(
            tasks={row["task_id"]: row for row in await connection.fetch(_TASKS)},
            questions=questions,
            steps={(row["task_id"], row["name"]): row for row in await connection.fetch(_STEPS)},
            attempts={(row["task_id"], row["epoch"]): row for row in await connection.fetch(_ATTEMPTS)},
            workers={row["worker_id"]: row for row in await connection.fetch(_WORKERS)},
            written=written,
            orphans={table: await connection.fetchval(_ORPHANS.format(table)) for table in CHILDREN},
            notes=_read_journal(journal),
        )
    finally:
        await connection.close()
    return evidence


def _read_journal(journal: Path) -> list[Note]:
    lines = journal.read_text().splitlines() if journal.exists() else []
    return sorted((Note(**json.loads(line)) for line in lines), key=lambda note: note.at)


def read_log(log: Path, evidence: Evidence) -> None:
    """Count what a process logged, and note what it should not have."""
    for line, entry in _entries(log):
        if entry is None:
            evidence.oddities.append(f"{log.name}: {line[:300]}")
            continue
        level, event = str(entry.get("level")), str(entry.get("event"))
        evidence.events[level, event] += 1
        if level in ("error", "critical") and not _is_meant(entry):
            evidence.oddities.append(f"{log.name}: {line[-1500:]}")


def _entries(log: Path) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Each line with its JSON object; the last one may be cut off by a kill."""
    lines = log.read_text(errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            yield line, json.loads(line)
        except ValueError:
            if number < len(lines) or not line.startswith("{"):
                yield line, None


def _is_meant(entry: dict[str, Any]) -> bool:
    """Errors that such a run must bring: a tool that fails on purpose, and leases and writes that an outage broke."""
    event = entry.get("event")
    return (event == "tool failed" and entry.get("tool") == "fails") or event in (
        "the lease cannot be renewed; handlers are stopped",
        "the store cannot be reached; the attempt is given up",
        "attempt could not be ended; it will be released and run again",
        "tasks could not be given back; they are rescued when the lease ends",
    )
