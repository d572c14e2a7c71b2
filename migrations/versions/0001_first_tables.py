"""The first tables: tasks, what belongs to them, workers, the catalogue, and the views for people.

Revision ID: 0001
Revises: none
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

UPGRADE = """\
CREATE TABLE perdure.tasks (
    task_id UUID NOT NULL,
    owner TEXT NOT NULL,
    tool TEXT NOT NULL,
    priority SMALLINT NOT NULL,
    status TEXT NOT NULL,
    status_message TEXT,
    reply TEXT NOT NULL,
    ready_at TIMESTAMP WITH TIME ZONE,
    worker_id UUID,
    epoch INTEGER DEFAULT '0' NOT NULL,
    questions_open INTEGER DEFAULT '0' NOT NULL,
    failures INTEGER DEFAULT '0' NOT NULL,
    losses INTEGER DEFAULT '0' NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    deadline_at TIMESTAMP WITH TIME ZONE,
    cancel_requested_at TIMESTAMP WITH TIME ZONE,
    progress DOUBLE PRECISION,
    progress_total DOUBLE PRECISION,
    poll_interval_ms INTEGER,
    ttl_ms BIGINT,
    version BIGINT DEFAULT '1' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    expires_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT tasks_pkey PRIMARY KEY (task_id),
    CONSTRAINT tasks_status CHECK (status IN ('working', 'input_required', 'completed', 'failed', 'cancelled')),
    CONSTRAINT tasks_priority CHECK (priority BETWEEN 0 AND 3),
    CONSTRAINT tasks_reply CHECK (reply IN ('request', 'task')),
    CONSTRAINT tasks_working_waits_or_runs CHECK (num_nonnulls(worker_id, ready_at) = CASE WHEN status = 'working' THEN 1 ELSE 0 END),
    CONSTRAINT tasks_terminal_is_finished CHECK ((status IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT tasks_finished_expires CHECK ((finished_at IS NULL) = (expires_at IS NULL)),
    CONSTRAINT tasks_finished_has_no_deadline CHECK (finished_at IS NULL OR deadline_at IS NULL),
    CONSTRAINT tasks_parked_has_questions CHECK ((status = 'input_required') = (questions_open > 0)),
    CONSTRAINT tasks_cancel_waits_for_a_worker CHECK (cancel_requested_at IS NULL OR worker_id IS NOT NULL OR finished_at IS NOT NULL),
    CONSTRAINT tasks_counters CHECK (epoch >= 0 AND questions_open >= 0 AND failures >= 0 AND losses >= 0 AND version > 0)
)
 WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tasks_ready ON perdure.tasks (tool, priority, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX tasks_running ON perdure.tasks (worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX tasks_live_of_owner ON perdure.tasks (owner) WHERE finished_at IS NULL;
CREATE INDEX tasks_expires ON perdure.tasks (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX tasks_deadline ON perdure.tasks (deadline_at) WHERE deadline_at IS NOT NULL;
COMMENT ON TABLE perdure.tasks IS 'One row a task: its state. The only table whose rows are updated as tasks run.';
COMMENT ON COLUMN perdure.tasks.task_id IS 'UUIDv7: ordered by time, 74 random bits. A bearer secret.';
COMMENT ON COLUMN perdure.tasks.owner IS 'The principal that created it; no other may see it.';
COMMENT ON COLUMN perdure.tasks.tool IS 'Name of the tool that it runs.';
COMMENT ON COLUMN perdure.tasks.priority IS '0 goes first, 3 last.';
COMMENT ON COLUMN perdure.tasks.status IS 'working, input_required, completed, failed or cancelled.';
COMMENT ON COLUMN perdure.tasks.status_message IS 'What the client is told about the current state.';
COMMENT ON COLUMN perdure.tasks.reply IS 'task: a handle was returned; request: answered on the request.';
COMMENT ON COLUMN perdure.tasks.ready_at IS 'Waits for a worker, from then on; NULL: does not wait for one.';
COMMENT ON COLUMN perdure.tasks.worker_id IS 'The worker that runs it now.';
COMMENT ON COLUMN perdure.tasks.epoch IS 'Number of the attempt; each claim adds one.';
COMMENT ON COLUMN perdure.tasks.questions_open IS 'Questions not yet answered.';
COMMENT ON COLUMN perdure.tasks.failures IS 'Attempts that failed and were retried.';
COMMENT ON COLUMN perdure.tasks.losses IS 'Attempts whose worker was lost.';
COMMENT ON COLUMN perdure.tasks.started_at IS 'Start of the latest attempt.';
COMMENT ON COLUMN perdure.tasks.deadline_at IS 'A live task is ended then; NULL: never.';
COMMENT ON COLUMN perdure.tasks.cancel_requested_at IS 'When a cancel was first asked for.';
COMMENT ON COLUMN perdure.tasks.progress IS 'How much is done, in the tool''s unit.';
COMMENT ON COLUMN perdure.tasks.progress_total IS 'How much there is to do, where that is known.';
COMMENT ON COLUMN perdure.tasks.poll_interval_ms IS 'Poll interval that the tool fixes; NULL: grows with the age.';
COMMENT ON COLUMN perdure.tasks.ttl_ms IS 'What clients are told as ttlMs: lifetime from creation; NULL: no limit yet.';
COMMENT ON COLUMN perdure.tasks.version IS 'Goes up with all that a client can see.';
COMMENT ON COLUMN perdure.tasks.created_at IS 'When it was created.';
COMMENT ON COLUMN perdure.tasks.updated_at IS 'When version last went up.';
COMMENT ON COLUMN perdure.tasks.finished_at IS 'When it ended.';
COMMENT ON COLUMN perdure.tasks.expires_at IS 'An ended task can be read until then, and is purged some time after.';

CREATE TABLE perdure.workers (
    worker_id UUID NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    version TEXT NOT NULL,
    tools TEXT[] NOT NULL,
    slots INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    beat_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    draining BOOLEAN DEFAULT false NOT NULL,
    CONSTRAINT workers_pkey PRIMARY KEY (worker_id)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
COMMENT ON TABLE perdure.workers IS 'Worker processes, alive as long as they beat.';
COMMENT ON COLUMN perdure.workers.worker_id IS 'Fresh for each process.';
COMMENT ON COLUMN perdure.workers.host IS 'Where it runs.';
COMMENT ON COLUMN perdure.workers.pid IS 'Its process id there.';
COMMENT ON COLUMN perdure.workers.version IS 'Its release of Perdure.';
COMMENT ON COLUMN perdure.workers.tools IS 'The tools that it runs; it claims no others.';
COMMENT ON COLUMN perdure.workers.slots IS 'How many tasks it runs at once.';
COMMENT ON COLUMN perdure.workers.lease_ms IS 'A beat is good for this long.';
COMMENT ON COLUMN perdure.workers.started_at IS 'When it started.';
COMMENT ON COLUMN perdure.workers.beat_at IS 'Its last beat; older than the lease: lost.';
COMMENT ON COLUMN perdure.workers.draining IS 'It stops, and claims no more.';

CREATE TABLE perdure.tools (
    name TEXT NOT NULL,
    definition JSON NOT NULL,
    options JSON NOT NULL,
    digest TEXT NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT tools_pkey PRIMARY KEY (name)
)
 WITH (fillfactor = 50);
COMMENT ON TABLE perdure.tools IS 'The catalogue: what the workers of the fleet can run.';
COMMENT ON COLUMN perdure.tools.name IS 'The tool''s name, as clients call it.';
COMMENT ON COLUMN perdure.tools.definition IS 'What tools/list shows.';
COMMENT ON COLUMN perdure.tools.options IS 'The policy for its tasks.';
COMMENT ON COLUMN perdure.tools.digest IS 'Changes with the definition or the options.';
COMMENT ON COLUMN perdure.tools.seen_at IS 'When a worker last brought it.';

CREATE TABLE perdure.task_requests (
    task_id UUID NOT NULL,
    method TEXT NOT NULL,
    params JSON NOT NULL,
    capabilities JSON NOT NULL,
    revision TEXT,
    trace_context JSON,
    retention_ms BIGINT NOT NULL,
    timeout_ms BIGINT,
    answer_within_ms BIGINT NOT NULL,
    loss_limit INTEGER NOT NULL,
    CONSTRAINT task_requests_pkey PRIMARY KEY (task_id),
    CONSTRAINT task_requests_task_id_fkey FOREIGN KEY(task_id) REFERENCES perdure.tasks (task_id) ON DELETE CASCADE
)
 WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE perdure.task_requests IS 'What a task was asked to do, and its tool''s policy as it was then.';
COMMENT ON COLUMN perdure.task_requests.task_id IS 'The task that this belongs to.';
COMMENT ON COLUMN perdure.task_requests.method IS 'The request''s method: tools/call.';
COMMENT ON COLUMN perdure.task_requests.params IS 'The request''s params, without _meta.';
COMMENT ON COLUMN perdure.task_requests.capabilities IS 'What the client declared; a retried request replaces it.';
COMMENT ON COLUMN perdure.task_requests.revision IS 'The protocol revision that the request declared; NULL: none.';
COMMENT ON COLUMN perdure.task_requests.trace_context IS 'W3C trace context of the request.';
COMMENT ON COLUMN perdure.task_requests.retention_ms IS 'How long the ended task can be read.';
COMMENT ON COLUMN perdure.task_requests.timeout_ms IS 'How long one attempt may run; NULL: as long as it takes.';
COMMENT ON COLUMN perdure.task_requests.answer_within_ms IS 'How long a question may wait.';
COMMENT ON COLUMN perdure.task_requests.loss_limit IS 'How many lost workers it survives.';

CREATE TABLE perdure.task_outcomes (
    task_id UUID NOT NULL,
    result JSON,
    error JSON,
    epoch INTEGER,
    CONSTRAINT task_outcomes_pkey PRIMARY KEY (task_id),
    CONSTRAINT task_outcomes_one_of_both CHECK (num_nonnulls(result, error) = 1),
    CONSTRAINT task_outcomes_task_id_fkey FOREIGN KEY(task_id) REFERENCES perdure.tasks (task_id) ON DELETE CASCADE
)
 WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE perdure.task_outcomes IS 'How a task ended: a result or an error, never both.';
COMMENT ON COLUMN perdure.task_outcomes.task_id IS 'The task that this belongs to.';
COMMENT ON COLUMN perdure.task_outcomes.result IS 'The full result of the request, where it completed.';
COMMENT ON COLUMN perdure.task_outcomes.error IS 'The JSON-RPC error, where it failed.';
COMMENT ON COLUMN perdure.task_outcomes.epoch IS 'The attempt that wrote it; NULL: no attempt did.';

CREATE TABLE perdure.task_input_requests (
    task_id UUID NOT NULL,
    key TEXT NOT NULL,
    request JSON NOT NULL,
    epoch INTEGER NOT NULL,
    position SMALLINT NOT NULL,
    asked_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT task_input_requests_pkey PRIMARY KEY (task_id, key),
    CONSTRAINT task_input_requests_task_id_fkey FOREIGN KEY(task_id) REFERENCES perdure.tasks (task_id) ON DELETE CASCADE
)
 WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE perdure.task_input_requests IS 'Questions of tasks to their clients (inputRequests).';
COMMENT ON COLUMN perdure.task_input_requests.task_id IS 'The task that this belongs to.';
COMMENT ON COLUMN perdure.task_input_requests.key IS 'Unique over the task''s life.';
COMMENT ON COLUMN perdure.task_input_requests.request IS 'The request to the client: method and params.';
COMMENT ON COLUMN perdure.task_input_requests.epoch IS 'The round: the attempt that asked.';
COMMENT ON COLUMN perdure.task_input_requests.position IS 'Order within the round.';
COMMENT ON COLUMN perdure.task_input_requests.asked_at IS 'When it was asked.';

CREATE TABLE perdure.task_steps (
    task_id UUID NOT NULL,
    name TEXT NOT NULL,
    value JSON NOT NULL,
    epoch INTEGER NOT NULL,
    stepped_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT task_steps_pkey PRIMARY KEY (task_id, name),
    CONSTRAINT task_steps_task_id_fkey FOREIGN KEY(task_id) REFERENCES perdure.tasks (task_id) ON DELETE CASCADE
)
 WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE perdure.task_steps IS 'Steps of handlers that have run, and must not run again.';
COMMENT ON COLUMN perdure.task_steps.task_id IS 'The task that this belongs to.';
COMMENT ON COLUMN perdure.task_steps.name IS 'The step''s name within its handler.';
COMMENT ON COLUMN perdure.task_steps.value IS 'What the step returned; replays get it without running the step.';
COMMENT ON COLUMN perdure.task_steps.epoch IS 'The attempt that ran it.';
COMMENT ON COLUMN perdure.task_steps.stepped_at IS 'When it was recorded.';

CREATE TABLE perdure.task_attempts (
    task_id UUID NOT NULL,
    epoch INTEGER NOT NULL,
    worker_id UUID,
    started_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    ended TEXT NOT NULL,
    error TEXT,
    CONSTRAINT task_attempts_pkey PRIMARY KEY (task_id, epoch),
    CONSTRAINT task_attempts_ended CHECK (ended IN ('lost', 'retried', 'released', 'cancelled', 'expired', 'error')),
    CONSTRAINT task_attempts_task_id_fkey FOREIGN KEY(task_id) REFERENCES perdure.tasks (task_id) ON DELETE CASCADE
)
 WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE perdure.task_attempts IS 'Attempts that ended in neither an outcome nor a question, or in an internal error.';
COMMENT ON COLUMN perdure.task_attempts.task_id IS 'The task that this belongs to.';
COMMENT ON COLUMN perdure.task_attempts.epoch IS 'Number of the attempt.';
COMMENT ON COLUMN perdure.task_attempts.worker_id IS 'The worker that ran it.';
COMMENT ON COLUMN perdure.task_attempts.started_at IS 'When it was claimed.';
COMMENT ON COLUMN perdure.task_attempts.ended_at IS 'When its end was recorded.';
COMMENT ON COLUMN perdure.task_attempts.ended IS 'How: lost, retried, released, cancelled, expired or error.';
COMMENT ON COLUMN perdure.task_attempts.error IS 'For operators: what went wrong, with the traceback. Never sent to clients.';

CREATE TABLE perdure.idempotency_keys (
    owner TEXT NOT NULL,
    tool TEXT NOT NULL,
    key_hash BYTEA NOT NULL,
    task_id UUID NOT NULL,
    fingerprint BYTEA NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (owner, tool, key_hash),
    CONSTRAINT idempotency_keys_task_id_fkey FOREIGN KEY(task_id) REFERENCES perdure.tasks (task_id) ON DELETE CASCADE
)
 WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX idempotency_keys_task ON perdure.idempotency_keys (task_id);
COMMENT ON TABLE perdure.idempotency_keys IS 'Keys that make a repeated tools/call return the same task.';
COMMENT ON COLUMN perdure.idempotency_keys.owner IS 'The principal whose key it is.';
COMMENT ON COLUMN perdure.idempotency_keys.tool IS 'The tool that was called.';
COMMENT ON COLUMN perdure.idempotency_keys.key_hash IS 'SHA-256 of the caller''s key.';
COMMENT ON COLUMN perdure.idempotency_keys.task_id IS 'The task that the key stands for; the key lives as long as it.';
COMMENT ON COLUMN perdure.idempotency_keys.fingerprint IS 'SHA-256 of the request that the key was first used for.';

CREATE TABLE perdure.task_input_responses (
    task_id UUID NOT NULL,
    key TEXT NOT NULL,
    response JSON NOT NULL,
    answered_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT task_input_responses_pkey PRIMARY KEY (task_id, key),
    CONSTRAINT task_input_responses_task_id_fkey FOREIGN KEY(task_id, key) REFERENCES perdure.task_input_requests (task_id, key) ON DELETE CASCADE
)
 WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE perdure.task_input_responses IS 'Answers to questions (inputResponses).';
COMMENT ON COLUMN perdure.task_input_responses.task_id IS 'The task that this belongs to.';
COMMENT ON COLUMN perdure.task_input_responses.key IS 'The question that it answers.';
COMMENT ON COLUMN perdure.task_input_responses.response IS 'The client''s response, as sent. The first one stands.';
COMMENT ON COLUMN perdure.task_input_responses.answered_at IS 'When it was recorded.';

CREATE VIEW perdure.task_overview AS
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
LEFT JOIN perdure.workers AS w ON w.worker_id = t.worker_id;
COMMENT ON VIEW perdure.task_overview IS 'One row a task: all that an operator asks about it, without payloads.';

CREATE VIEW perdure.queue_health AS
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
) AS h;
COMMENT ON VIEW perdure.queue_health IS 'One row a tool: how much waits and runs, the oldest wait, and its live workers.'
"""

DOWNGRADE = """\
DROP VIEW perdure.task_overview;
DROP VIEW perdure.queue_health;
DROP TABLE perdure.idempotency_keys;
DROP TABLE perdure.task_attempts;
DROP TABLE perdure.task_steps;
DROP TABLE perdure.task_input_responses;
DROP TABLE perdure.task_input_requests;
DROP TABLE perdure.task_outcomes;
DROP TABLE perdure.task_requests;
DROP TABLE perdure.tasks;
DROP TABLE perdure.workers;
DROP TABLE perdure.tools
"""


def upgrade() -> None:
    for statement in UPGRADE.split(";\n"):
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWNGRADE.split(";\n"):
        op.execute(statement)
