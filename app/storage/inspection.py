"""What operators see of one task, of what is asked and of the fleet, and the statements that read it, as they are sent.

None of them reads a finished task but the one that is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from app.domain.task import Json, Status
from app.storage.listing import Activity


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task in a list: a row of the view `task_overview`.

    Attributes:
        attempts: how many there have been, with the one that runs.
        worker_host: where it runs.
        age: until it ended, or until now.
    """

    task_id: UUID
    tool: str
    owner: str
    status: Status
    status_message: str | None
    activity: Activity
    priority: int
    attempts: int
    losses: int
    failures: int
    questions_open: int
    progress: float | None
    progress_total: float | None
    worker_id: UUID | None
    worker_host: str | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    deadline_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    age: timedelta

    @classmethod
    def of(cls, record: asyncpg.Record) -> TaskRow:
        """Read a record that has these columns, and perhaps more."""
        values = {name: record[name] for name in COLUMNS}
        return cls(**values | {"status": Status(values["status"]), "activity": Activity(values["activity"])})


COLUMNS = tuple(field.name for field in fields(TaskRow))


@dataclass(frozen=True, slots=True)
class Payload:
    """JSON text, or its beginning.

    Attributes:
        characters: how many there are; more than `text` has where it was cut.
    """

    text: str
    characters: int

    @property
    def whole(self) -> bool:
        """Whether all of it is here."""
        return len(self.text) == self.characters


@dataclass(frozen=True, slots=True)
class Request:
    """What a task was asked to do, and the policy that it was given. Durations are milliseconds, as in `Policy`."""

    method: str
    params: Payload
    capabilities: Payload
    revision: str | None
    trace_context: str | None
    retention_ms: int
    timeout_ms: int | None
    answer_within_ms: int
    losses: int
    ttl_ms: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended: `kind` is result or error. `attempt` is None where no attempt wrote it."""

    kind: str
    value: Payload
    attempt: int | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of a task; `response` is None while it is open, or if it never was answered."""

    key: str
    request: Payload
    attempt: int
    asked_at: datetime
    response: Payload | None
    answered_at: datetime | None


@dataclass(frozen=True, slots=True)
class Step:
    """A step that has run."""

    name: str
    value: Payload
    attempt: int
    stepped_at: datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that ended in neither a result nor a question, or in an internal error."""

    attempt: int
    worker_id: UUID | None
    started_at: datetime | None
    ended_at: datetime
    ended: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a task, or will."""

    at: datetime
    what: str


@dataclass(frozen=True, slots=True)
class TaskDetails:
    """All that there is of a task, as of one moment. Of questions, steps and attempts the first `MOST` of each.

    Attributes:
        reply: request or task, how its caller is answered.
        key_hash: SHA-256 of the idempotency key that it was created with.
    """

    row: TaskRow
    reply: str
    ready_at: datetime | None
    cancel_requested_at: datetime | None
    ttl_ms: int | None
    version: int
    request: Request
    outcome: Outcome | None
    questions: tuple[Asked, ...]
    steps: tuple[Step, ...]
    attempts: tuple[Attempt, ...]
    key_hash: bytes | None

    @property
    def timeline(self) -> list[Event]:
        """What happened, in its order."""
        row, known = self.row, {attempt.attempt for attempt in self.attempts}
        events = [(row.created_at, "created")]
        for attempt in self.attempts:
            if attempt.started_at is not None:
                events.append((attempt.started_at, f"attempt {attempt.attempt} started"))
            events.append((attempt.ended_at, f"attempt {attempt.attempt} ended: {attempt.ended}"))
        if row.started_at is not None and row.attempts not in known:
            events.append((row.started_at, f"attempt {row.attempts} started"))
        events += [(step.stepped_at, f"step {step.name} ran") for step in self.steps]
        events += [(asked.asked_at, f"{asked.key} was asked") for asked in self.questions]
        events += [(a.answered_at, f"{a.key} was answered") for a in self.questions if a.answered_at is not None]
        if self.cancel_requested_at is not None:
            events.append((self.cancel_requested_at, "a cancel was asked for"))
        if row.finished_at is not None:
            events.append((row.finished_at, str(row.status)))
        return [Event(*event) for event in sorted(events, key=lambda event: event[0])]


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that waits for its answer; `deadline_at` is when the task gives up."""

    task_id: UUID
    tool: str
    owner: str
    key: str
    request: Payload
    asked_at: datetime
    deadline_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker process; `state` is alive, draining or lost, `running` how many tasks it holds."""

    worker_id: UUID
    state: str
    host: str
    pid: int
    version: str
    tools: tuple[str, ...]
    slots: int
    running: int
    started_at: datetime
    beat_at: datetime
    since_beat: timedelta


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A tool with what waits and runs of it, as in the view `queue_health`.

    Attributes:
        seen_at: when a worker last brought it; None for tasks of a tool that is in no catalogue.
    """

    tool: str
    queued: int
    scheduled: int
    running: int
    waiting_for_answers: int
    oldest_wait: timedelta | None
    workers: int
    seen_at: datetime | None


MOST = 500
"""So many questions, steps and attempts of one task are shown."""

# $1 task_id $2 characters of a payload $3 rows of a child table.
SHOW = """
SELECT o.*,
    t.reply, t.ready_at, t.cancel_requested_at, t.ttl_ms, t.version,
    r.method, left(r.params::text, $2::integer) AS params, length(r.params::text) AS params_length,
    left(r.capabilities::text, $2) AS capabilities, length(r.capabilities::text) AS capabilities_length,
    r.revision, r.trace_context::text AS trace_context, r.retention_ms, r.timeout_ms, r.answer_within_ms,
    r.loss_limit, r.ttl_ms AS given_ttl_ms,
    c.epoch AS outcome_epoch, CASE WHEN c.result IS NULL THEN 'error' ELSE 'result' END AS kind,
    left(coalesce(c.result, c.error)::text, $2) AS outcome, length(coalesce(c.result, c.error)::text) AS outcome_length,
    (SELECT k.key_hash FROM perdure.idempotency_keys AS k WHERE k.task_id = t.task_id) AS key_hash,
    ARRAY(
        SELECT (i.key, left(i.request::text, $2), length(i.request::text), i.epoch, i.asked_at,
            left(a.response::text, $2), length(a.response::text), a.answered_at)
        FROM perdure.task_input_requests AS i
        LEFT JOIN perdure.task_input_responses AS a ON a.task_id = i.task_id AND a.key = i.key
        WHERE i.task_id = t.task_id
        ORDER BY i.epoch, i.position
        LIMIT $3::integer) AS questions,
    ARRAY(
        SELECT (s.name, left(s.value::text, $2), length(s.value::text), s.epoch, s.stepped_at)
        FROM perdure.task_steps AS s
        WHERE s.task_id = t.task_id
        ORDER BY s.stepped_at, s.name
        LIMIT $3) AS steps,
    ARRAY(
        SELECT (a.epoch, a.worker_id, a.started_at, a.ended_at, a.ended, left(a.error, $2))
        FROM perdure.task_attempts AS a
        WHERE a.task_id = t.task_id
        ORDER BY a.epoch
        LIMIT $3) AS ended_attempts
FROM perdure.tasks AS t
JOIN perdure.task_overview AS o ON o.task_id = t.task_id
JOIN perdure.task_requests AS r ON r.task_id = t.task_id
LEFT JOIN perdure.task_outcomes AS c ON c.task_id = t.task_id
WHERE t.task_id = $1"""

# $1 limit $2 the last task of the page before, or NULL $3 characters of a payload $4 questions of one task.
# Index tasks_by_status: tasks that wait for answers, the oldest first.
QUESTIONS = """
SELECT t.task_id, t.tool, t.owner, q.key, q.request, q.request_length, q.asked_at, t.deadline_at
FROM (
    SELECT p.task_id, p.tool, p.owner, p.deadline_at
    FROM perdure.tasks AS p
    WHERE p.status = 'input_required' AND p.task_id > coalesce($2::uuid, '00000000-0000-0000-0000-000000000000')
    ORDER BY p.task_id
    LIMIT $1::integer
) AS t
CROSS JOIN LATERAL (
    SELECT i.key, left(i.request::text, $3::integer) AS request, length(i.request::text) AS request_length,
        i.asked_at, i.epoch, i.position
    FROM perdure.task_input_requests AS i
    WHERE i.task_id = t.task_id AND NOT EXISTS (
        SELECT FROM perdure.task_input_responses AS a WHERE a.task_id = i.task_id AND a.key = i.key)
    ORDER BY i.epoch, i.position
    LIMIT $4::integer
) AS q
ORDER BY t.task_id, q.epoch, q.position"""

# $1 limit. Index tasks_running.
WORKERS = """
SELECT w.worker_id, w.host, w.pid, w.version, w.tools, w.slots, w.started_at, w.beat_at,
    now() - w.beat_at AS since_beat,
    CASE
        WHEN w.beat_at <= now() - w.lease_ms * interval '1 millisecond' THEN 'lost'
        WHEN w.draining THEN 'draining'
        ELSE 'alive'
    END AS state,
    (SELECT count(*) FROM perdure.tasks AS t WHERE t.worker_id = w.worker_id) AS running
FROM perdure.workers AS w
ORDER BY w.started_at, w.worker_id
LIMIT $1"""

# $1 limit. Index tasks_live_of_owner, for all live tasks.
TOOLS = """
SELECT h.tool, h.queued, h.scheduled, h.running, h.waiting_for_answers, h.oldest_wait, h.workers, c.seen_at
FROM perdure.queue_health AS h
LEFT JOIN perdure.tools AS c ON c.name = h.tool
ORDER BY h.tool
LIMIT $1"""


def details(record: asyncpg.Record) -> TaskDetails:
    """Build `TaskDetails` from a row of `SHOW`."""
    return TaskDetails(
        row=TaskRow.of(record),
        reply=record["reply"],
        ready_at=record["ready_at"],
        cancel_requested_at=record["cancel_requested_at"],
        ttl_ms=record["ttl_ms"],
        version=record["version"],
        request=_request(record),
        outcome=_outcome(record),
        questions=tuple(_asked(*item) for item in record["questions"]),
        steps=tuple(Step(name, Payload(text, size), epoch, at) for name, text, size, epoch, at in record["steps"]),
        attempts=tuple(Attempt(*item) for item in record["ended_attempts"]),
        key_hash=record["key_hash"],
    )


def open_question(record: asyncpg.Record) -> OpenQuestion:
    """Build an `OpenQuestion` from a row of `QUESTIONS`."""
    values: dict[str, Any] = dict(record)
    request = Payload(values.pop("request"), values.pop("request_length"))
    return OpenQuestion(**values, request=request)


def worker(record: asyncpg.Record) -> WorkerRow:
    """Build a `WorkerRow` from a row of `WORKERS`."""
    return WorkerRow(**dict(record) | {"tools": tuple(record["tools"])})


def tool(record: asyncpg.Record) -> ToolRow:
    """Build a `ToolRow` from a row of `TOOLS`."""
    return ToolRow(**dict(record))


def _request(record: asyncpg.Record) -> Request:
    return Request(
        method=record["method"],
        params=Payload(record["params"], record["params_length"]),
        capabilities=Payload(record["capabilities"], record["capabilities_length"]),
        revision=record["revision"],
        trace_context=record["trace_context"],
        retention_ms=record["retention_ms"],
        timeout_ms=record["timeout_ms"],
        answer_within_ms=record["answer_within_ms"],
        losses=record["loss_limit"],
        ttl_ms=record["given_ttl_ms"],
    )


def _outcome(record: asyncpg.Record) -> Outcome | None:
    if record["outcome"] is None:
        return None
    return Outcome(record["kind"], Payload(record["outcome"], record["outcome_length"]), record["outcome_epoch"])


def _asked(
    key: str,
    request: Json,
    size: int,
    epoch: int,
    asked_at: datetime,
    response: Json | None,
    response_size: int | None,
    answered_at: datetime | None,
) -> Asked:
    answer = None if response is None else Payload(response, response_size or 0)
    return Asked(key, Payload(request, size), epoch, asked_at, answer, answered_at)
