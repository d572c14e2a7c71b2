"""The tables, in the PostgreSQL schema `perdure`.

A task is one narrow row of `tasks`, the only row of it that is ever updated; what it was asked to do, what came
out, its questions, answers, steps and attempts are rows of child tables that are inserted once (only what the client
can do is replaced, when it sends its request again). CHECKs make impossible states unstorable, and partial indexes
cover live rows only, so that finished tasks cost nothing but room.

    tasks ─┬─ task_requests           what to run, and the tool's policy as it was then
           ├─ task_outcomes           the result or the error, once it ended
           ├─ task_input_requests ─── task_input_responses
           ├─ task_steps              memoised values of a handler's steps
           ├─ task_attempts           attempts that ended without an outcome or a question
           └─ idempotency_keys        what a caller's key stands for
    workers, tools                    who runs what

Payloads are `json`, never `jsonb`: their text comes back byte for byte. All clocks are the database's.
"""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSON

from app.domain.duration import LONGEST, parse_duration
from app.domain.task import TERMINAL, Status

SCHEMA = "perdure"

metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "ck": "%(table_name)s_%(constraint_name)s",
    },
)

LONGEST_MS = parse_duration(LONGEST)

_NOW = text("clock_timestamp()")
_TIME = DateTime(timezone=True)
_STATES = ", ".join(f"'{s}'" for s in Status)
_ENDED = ", ".join(f"'{s}'" for s in Status if s in TERMINAL)

# Rows that are updated leave room on their page, so that updates stay there (HOT); vacuum comes early and unthrottled.
_UPDATED = {
    "fillfactor": "80",
    "autovacuum_vacuum_scale_factor": "0.01",
    "autovacuum_analyze_scale_factor": "0.02",
    "autovacuum_vacuum_cost_delay": "0",
}
_INSERTED = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_insert_scale_factor": "0.05",
    "autovacuum_vacuum_cost_delay": "0",
}


def _task_key() -> Column[object]:
    return Column(
        "task_id",
        Uuid,
        ForeignKey("tasks.task_id", ondelete="CASCADE"),
        primary_key=True,
        comment="The task that this belongs to.",
    )


tasks = Table(
    "tasks",
    metadata,
    Column("task_id", Uuid, primary_key=True, comment="UUIDv7: ordered by time, 74 random bits. A bearer secret."),
    Column("owner", Text, nullable=False, comment="The principal that created it; no other may see it."),
    Column("tool", Text, nullable=False, comment="Name of the tool that it runs."),
    Column("priority", SmallInteger, nullable=False, comment="0 goes first, 3 last."),
    Column("status", Text, nullable=False, comment="working, input_required, completed, failed or cancelled."),
    Column("status_message", Text, comment="What the client is told about the current state."),
    Column("reply", Text, nullable=False, comment="task: a handle was returned; request: answered on the request."),
    Column("ready_at", _TIME, comment="Waits for a worker, from then on; NULL: does not wait for one."),
    Column("worker_id", Uuid, comment="The worker that runs it now."),
    Column("epoch", Integer, nullable=False, server_default="0", comment="Number of the attempt; each claim adds one."),
    Column("questions_open", Integer, nullable=False, server_default="0", comment="Questions not yet answered."),
    Column("failures", Integer, nullable=False, server_default="0", comment="Attempts that failed and were retried."),
    Column("losses", Integer, nullable=False, server_default="0", comment="Attempts whose worker was lost."),
    Column("started_at", _TIME, comment="Start of the latest attempt."),
    Column("deadline_at", _TIME, comment="A live task is ended then; NULL: never."),
    Column("cancel_requested_at", _TIME, comment="When a cancel was first asked for."),
    Column("progress", Double, comment="How much is done, in the tool's unit."),
    Column("progress_total", Double, comment="How much there is to do, where that is known."),
    Column("poll_interval_ms", Integer, comment="Poll interval that the tool fixes; NULL: grows with the age."),
    Column("ttl_ms", BigInteger, comment="What clients are told as ttlMs: lifetime from creation; NULL: no limit yet."),
    Column(
        "version", BigInteger, nullable=False, server_default="1", comment="Goes up with all that a client can see."
    ),
    Column("created_at", _TIME, nullable=False, server_default=_NOW, comment="When it was created."),
    Column("updated_at", _TIME, nullable=False, server_default=_NOW, comment="When version last went up."),
    Column("finished_at", _TIME, comment="When it ended."),
    Column("expires_at", _TIME, comment="An ended task can be read until then, and is purged some time after."),
    CheckConstraint(f"status IN ({_STATES})", name="status"),
    CheckConstraint("priority BETWEEN 0 AND 3", name="priority"),
    CheckConstraint("reply IN ('request', 'task')", name="reply"),
    CheckConstraint(
        "num_nonnulls(worker_id, ready_at) = CASE WHEN status = 'working' THEN 1 ELSE 0 END",
        name="working_waits_or_runs",
    ),
    CheckConstraint(f"(status IN ({_ENDED})) = (finished_at IS NOT NULL)", name="terminal_is_finished"),
    CheckConstraint("(finished_at IS NULL) = (expires_at IS NULL)", name="finished_expires"),
    CheckConstraint("finished_at IS NULL OR deadline_at IS NULL", name="finished_has_no_deadline"),
    CheckConstraint("(status = 'input_required') = (questions_open > 0)", name="parked_has_questions"),
    CheckConstraint(
        "cancel_requested_at IS NULL OR worker_id IS NOT NULL OR finished_at IS NOT NULL",
        name="cancel_waits_for_a_worker",
    ),
    CheckConstraint(
        "epoch >= 0 AND questions_open >= 0 AND failures >= 0 AND losses >= 0 AND version > 0", name="counters"
    ),
    CheckConstraint(f"ttl_ms BETWEEN 0 AND {10 * LONGEST_MS}", name="ttl_ms"),
    comment="One row a task: its state. The only table whose rows are updated as tasks run.",
    postgresql_with=_UPDATED,
)
Index("tasks_ready", tasks.c.tool, tasks.c.priority, tasks.c.ready_at, postgresql_where=text("ready_at IS NOT NULL"))
Index("tasks_running", tasks.c.worker_id, postgresql_where=text("worker_id IS NOT NULL"))
Index("tasks_deadline", tasks.c.deadline_at, postgresql_where=text("deadline_at IS NOT NULL"))
Index("tasks_live_of_owner", tasks.c.owner, postgresql_where=text("finished_at IS NULL"))
Index("tasks_expires", tasks.c.expires_at, postgresql_where=text("expires_at IS NOT NULL"))
Index(
    "tasks_by_status",
    tasks.c.status,
    tasks.c.task_id,
    postgresql_where=text("status IN ('input_required', 'failed', 'cancelled')"),
)
# Tasks end in about the order in which their rows lie, and this costs next to nothing as they do. Without its predicate
# it would be taken for live tasks too, and those lie everywhere.
Index(
    "tasks_finished",
    tasks.c.finished_at,
    postgresql_using="brin",
    postgresql_with={"autosummarize": "on"},
    postgresql_where=text("finished_at IS NOT NULL"),
)

task_requests = Table(
    "task_requests",
    metadata,
    _task_key(),
    Column("method", Text, nullable=False, comment="The request's method: tools/call."),
    Column("params", JSON, nullable=False, comment="The request's params, without _meta."),
    Column("capabilities", JSON, nullable=False, comment="What the client declared; a retried request replaces it."),
    Column("revision", Text, comment="The protocol revision that the request declared; NULL: none."),
    Column("trace_context", JSON, comment="W3C trace context of the request."),
    Column("retention_ms", BigInteger, nullable=False, comment="How long the ended task can be read."),
    Column("timeout_ms", BigInteger, comment="How long one attempt may run; NULL: as long as it takes."),
    Column("answer_within_ms", BigInteger, nullable=False, comment="How long a question may wait."),
    Column("loss_limit", Integer, nullable=False, comment="How many lost workers it survives."),
    Column("ttl_ms", BigInteger, comment="Lifetime from creation that the task was given; NULL: no limit."),
    # A duration that no timestamp can hold would make the claim of every worker fail, for as long as its row is there.
    CheckConstraint(f"retention_ms BETWEEN 0 AND {LONGEST_MS}", name="retention_ms"),
    CheckConstraint(f"timeout_ms BETWEEN 1 AND {LONGEST_MS}", name="timeout_ms"),
    CheckConstraint(f"answer_within_ms BETWEEN 1 AND {LONGEST_MS}", name="answer_within_ms"),
    CheckConstraint("loss_limit >= 0", name="loss_limit"),
    comment="What a task was asked to do, and its tool's policy as it was then.",
    postgresql_with=_INSERTED,
)

task_outcomes = Table(
    "task_outcomes",
    metadata,
    _task_key(),
    Column("result", JSON, comment="The full result of the request, where it completed."),
    Column("error", JSON, comment="The JSON-RPC error, where it failed."),
    Column("epoch", Integer, comment="The attempt that wrote it; NULL: no attempt did."),
    CheckConstraint("num_nonnulls(result, error) = 1", name="one_of_both"),
    comment="How a task ended: a result or an error, never both.",
    postgresql_with=_INSERTED,
)

task_input_requests = Table(
    "task_input_requests",
    metadata,
    _task_key(),
    Column("key", Text, primary_key=True, comment="Unique over the task's life."),
    Column("request", JSON, nullable=False, comment="The request to the client: method and params."),
    Column("epoch", Integer, nullable=False, comment="The round: the attempt that asked."),
    Column("position", SmallInteger, nullable=False, comment="Order within the round."),
    Column("asked_at", _TIME, nullable=False, server_default=_NOW, comment="When it was asked."),
    comment="Questions of tasks to their clients (inputRequests).",
    postgresql_with=_INSERTED,
)

task_input_responses = Table(
    "task_input_responses",
    metadata,
    Column("task_id", Uuid, primary_key=True, comment="The task that this belongs to."),
    Column("key", Text, primary_key=True, comment="The question that it answers."),
    Column("response", JSON, nullable=False, comment="The client's response, as sent. The first one stands."),
    Column("answered_at", _TIME, nullable=False, server_default=_NOW, comment="When it was recorded."),
    ForeignKeyConstraint(
        ["task_id", "key"], ["task_input_requests.task_id", "task_input_requests.key"], ondelete="CASCADE"
    ),
    comment="Answers to questions (inputResponses).",
    postgresql_with=_INSERTED,
)

task_steps = Table(
    "task_steps",
    metadata,
    _task_key(),
    Column("name", Text, primary_key=True, comment="The step's name within its handler."),
    Column("value", JSON, nullable=False, comment="What the step returned; replays get it without running the step."),
    Column("epoch", Integer, nullable=False, comment="The attempt that ran it."),
    Column("stepped_at", _TIME, nullable=False, server_default=_NOW, comment="When it was recorded."),
    comment="Steps of handlers that have run, and must not run again.",
    postgresql_with=_INSERTED,
)

task_attempts = Table(
    "task_attempts",
    metadata,
    _task_key(),
    Column("epoch", Integer, primary_key=True, comment="Number of the attempt."),
    Column("worker_id", Uuid, comment="The worker that ran it."),
    Column("started_at", _TIME, comment="When it was claimed."),
    Column("ended_at", _TIME, nullable=False, server_default=_NOW, comment="When its end was recorded."),
    Column("ended", Text, nullable=False, comment="How: lost, retried, released, cancelled, expired or error."),
    Column("error", Text, comment="For operators: what went wrong, with the traceback. Never sent to clients."),
    CheckConstraint("ended IN ('lost', 'retried', 'released', 'cancelled', 'expired', 'error')", name="ended"),
    comment="Attempts that ended in neither an outcome nor a question, or in an internal error.",
    postgresql_with=_INSERTED,
)

workers = Table(
    "workers",
    metadata,
    Column("worker_id", Uuid, primary_key=True, comment="Fresh for each process."),
    Column("host", Text, nullable=False, comment="Where it runs."),
    Column("pid", Integer, nullable=False, comment="Its process id there."),
    Column("version", Text, nullable=False, comment="Its release of Perdure."),
    Column("tools", ARRAY(Text), nullable=False, comment="The tools that it runs; it claims no others."),
    Column("slots", Integer, nullable=False, comment="How many tasks it runs at once."),
    Column("lease_ms", Integer, nullable=False, comment="A beat is good for this long."),
    Column("started_at", _TIME, nullable=False, server_default=_NOW, comment="When it started."),
    Column("beat_at", _TIME, nullable=False, server_default=_NOW, comment="Its last beat; older than the lease: lost."),
    Column("draining", Boolean, nullable=False, server_default=text("false"), comment="It stops, and claims no more."),
    comment="Worker processes, alive as long as they beat.",
    postgresql_with={"fillfactor": "50", "autovacuum_vacuum_scale_factor": "0", "autovacuum_vacuum_threshold": "100"},
)

tools = Table(
    "tools",
    metadata,
    Column("name", Text, primary_key=True, comment="The tool's name, as clients call it."),
    Column("definition", JSON, nullable=False, comment="What tools/list shows."),
    Column("options", JSON, nullable=False, comment="The policy for its tasks."),
    Column("digest", Text, nullable=False, comment="Changes with the definition or the options."),
    Column("seen_at", _TIME, nullable=False, server_default=_NOW, comment="When a worker last brought it."),
    comment="The catalogue: what the workers of the fleet can run.",
    postgresql_with={"fillfactor": "50"},
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("owner", Text, primary_key=True, comment="The principal whose key it is."),
    Column("tool", Text, primary_key=True, comment="The tool that was called."),
    Column("key_hash", LargeBinary, primary_key=True, comment="SHA-256 of the caller's key."),
    Column(
        "task_id",
        Uuid,
        ForeignKey("tasks.task_id", ondelete="CASCADE"),
        nullable=False,
        comment="The task that the key stands for; the key lives as long as it.",
    ),
    Column(
        "fingerprint", LargeBinary, nullable=False, comment="SHA-256 of the request that the key was first used for."
    ),
    comment="Keys that make a repeated tools/call return the same task.",
    postgresql_with=_INSERTED,
)
Index("idempotency_keys_task", idempotency_keys.c.task_id)

TASK_OVERVIEW = """\
SELECT
    t.task_id,
    t.tool,
    t.owner,
    t.status,
    t.status_message,
    CASE
        WHEN t.worker_id IS NOT NULL AND t.cancel_requested_at IS NOT NULL THEN 'stopping'
        WHEN t.worker_id IS NOT NULL THEN 'running'
        WHEN t.ready_at > now() THEN 'scheduled'
        WHEN t.ready_at IS NOT NULL THEN 'queued'
        WHEN t.status = 'input_required' THEN 'waiting for answers'
        ELSE 'ended'
    END AS activity,
    t.priority,
    t.epoch AS attempts,
    t.losses,
    t.failures,
    t.questions_open,
    t.progress,
    t.progress_total,
    t.worker_id,
    w.host AS worker_host,
    t.created_at,
    t.updated_at,
    t.started_at,
    t.deadline_at,
    t.finished_at,
    t.expires_at,
    coalesce(t.finished_at, now()) - t.created_at AS age
FROM perdure.tasks AS t
LEFT JOIN perdure.workers AS w ON w.worker_id = t.worker_id"""

QUEUE_HEALTH = """\
SELECT
    h.tool,
    h.queued,
    h.scheduled,
    h.running,
    h.waiting_for_answers,
    h.oldest_wait,
    (
        SELECT count(*)
        FROM perdure.workers AS w
        WHERE h.tool = ANY (w.tools)
            AND NOT w.draining
            AND w.beat_at > now() - make_interval(secs => w.lease_ms / 1000.0)
    ) AS workers
FROM (
    SELECT
        coalesce(l.tool, c.name) AS tool,
        count(l.tool) FILTER (WHERE l.ready_at <= now()) AS queued,
        count(l.tool) FILTER (WHERE l.ready_at > now()) AS scheduled,
        count(l.tool) FILTER (WHERE l.worker_id IS NOT NULL) AS running,
        count(l.tool) FILTER (WHERE l.status = 'input_required') AS waiting_for_answers,
        now() - min(l.ready_at) FILTER (WHERE l.ready_at <= now()) AS oldest_wait
    FROM (
        SELECT t.tool, t.ready_at, t.worker_id, t.status
        FROM perdure.tasks AS t
        WHERE t.finished_at IS NULL
    ) AS l
    FULL JOIN perdure.tools AS c ON c.name = l.tool
    GROUP BY coalesce(l.tool, c.name)
) AS h"""

VIEWS = {
    "task_overview": (TASK_OVERVIEW, "One row a task: all that an operator asks about it, without payloads."),
    "queue_health": (QUEUE_HEALTH, "One row a tool: how much waits and runs, the oldest wait, and its live workers."),
}

TASK_ID_AT = """\
CREATE FUNCTION perdure.task_id_at(moment timestamptz) RETURNS uuid
LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid"""
TASK_ID_AT_COMMENT = (
    "The lowest id of a task that was created then: task_id >= perdure.task_id_at(now() - interval ''1 hour'') reads "
    "the primary key only from there on."
)


def _view_ddl() -> list[str]:
    made = []
    for name, (query, comment) in VIEWS.items():
        made.append(f"CREATE VIEW {SCHEMA}.{name} AS\n{query}")
        made.append(f"COMMENT ON VIEW {SCHEMA}.{name} IS '{comment}'")
    return made


event.listen(metadata, "before_create", DDL(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))  # type: ignore[no-untyped-call]
_FUNCTION_DDL = (TASK_ID_AT, f"COMMENT ON FUNCTION {SCHEMA}.task_id_at IS '{TASK_ID_AT_COMMENT}'")
for _statement in (*_view_ddl(), *_FUNCTION_DDL):
    event.listen(metadata, "after_create", DDL(_statement))  # type: ignore[no-untyped-call]
