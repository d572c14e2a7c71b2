"""The hot statements about tasks, each with a name, as they are sent. None is built per call.

Rules that all of them keep:
    - one statement is one transition, and its own transaction;
    - the task's row is locked first, then its children are written; many rows are locked in the order of their ids;
    - no statement decides from a child table that it would have to lock: `questions_open` on the row does;
    - `version` and `updated_at` change when a client can see the difference, and only then;
    - an attempt's write is fenced by task, epoch, worker and `status = 'working'`;
    - what is asked of a task beside its id is written `(…) IS TRUE` where an index has it: a plan that was made while
      the tables were small would go through all rows of a worker or an owner, dead ones too, for the one that is meant.

`held` is the fence: it locks the row and sees its newest version, or gives no row. `at` is the time that the
transition writes everywhere, always later than the row's last one.
"""

from __future__ import annotations

from app.domain.task import REQUEST_STATE_MS

# The columns of a `Task`, in the order in which `rows.task` reads them; `t` is the task's row.
POLL_INTERVAL = """coalesce(t.poll_interval_ms,
        least(5000, greatest(1000, extract(epoch FROM now() - t.created_at) * 50))::integer) AS poll_interval_ms"""
TASK = f"""
    t.task_id, t.owner, t.tool, t.status, t.status_message, t.reply, t.epoch, t.version, t.ttl_ms, {POLL_INTERVAL},
    t.created_at, t.updated_at, t.cancel_requested_at IS NOT NULL AS cancel_requested,
    coalesce(t.expires_at <= now(), false) AS expired, t.progress, t.progress_total"""

_AT = "greatest(clock_timestamp(), t.updated_at + interval '1 microsecond') AS at"

_HELD = f"""
held AS MATERIALIZED (
    SELECT t.task_id, t.worker_id, t.epoch, t.started_at, t.status_message, t.cancel_requested_at,
        t.created_at, t.ttl_ms, {_AT}
    FROM perdure.tasks AS t
    WHERE t.task_id = $1 AND t.epoch = $2 AND (t.worker_id = $3) IS TRUE AND t.status = 'working'
    FOR NO KEY UPDATE
)"""

# An ended task is kept for its retention, and never for less than a ttl that was promised; ttlMs follows.
_EXPIRES = """greatest(
    h.created_at + h.ttl_ms * interval '1 millisecond',
    h.at + r.retention_ms * interval '1 millisecond')"""
_ENDED_TTL = f"ceil(extract(epoch FROM {_EXPIRES} - h.created_at) * 1000)::bigint"

# The longest that a question on a request can wait; NULL, which least() passes over, for a task with a handle.
_REQUEST_STATE_MS = f"CASE WHEN t.reply = 'request' THEN {REQUEST_STATE_MS} END"

# $1 task_id $2 owner $3 keys $4 responses $5 what the client can do now, or NULL: the one update of a request.
# Two answers on two replicas: the second waits for the row, and then its INSERT meets the first one's rows.
ANSWER = f"""
WITH parked AS MATERIALIZED (
    SELECT t.task_id, t.created_at, t.ttl_ms, {_AT}
    FROM perdure.tasks AS t
    WHERE t.task_id = $1 AND (t.owner = $2) IS TRUE AND t.status = 'input_required'
    FOR NO KEY UPDATE
), given AS (
    INSERT INTO perdure.task_input_responses (task_id, key, response, answered_at)
    SELECT p.task_id, a.key, a.response, p.at
    FROM parked AS p
    CROSS JOIN unnest($3::text[], $4::json[]) AS a (key, response)
    WHERE EXISTS (
        SELECT 1 FROM perdure.task_input_requests AS i WHERE i.task_id = p.task_id AND i.key = a.key)
    ON CONFLICT (task_id, key) DO NOTHING
    RETURNING key
), declared AS (
    UPDATE perdure.task_requests AS r
    SET capabilities = $5::json
    FROM parked AS p
    WHERE r.task_id = p.task_id AND r.capabilities::text <> $5::json::text
), counted AS (
    SELECT count(*)::integer AS recorded FROM given
), t AS (
    UPDATE perdure.tasks AS t
    SET questions_open = t.questions_open - c.recorded,
        status = CASE WHEN t.questions_open = c.recorded THEN 'working' ELSE t.status END,
        status_message = NULL,
        ready_at = CASE WHEN t.questions_open = c.recorded THEN p.at END,
        deadline_at = CASE WHEN t.questions_open = c.recorded
            THEN p.created_at + p.ttl_ms * interval '1 millisecond' ELSE t.deadline_at END,
        version = t.version + 1,
        updated_at = p.at
    FROM parked AS p, counted AS c
    WHERE t.task_id = p.task_id AND c.recorded > 0
    RETURNING t.*
)
SELECT {TASK}, c.recorded FROM t CROSS JOIN counted AS c"""


def cancel(which: str) -> str:
    """The transition, for these tasks: one that no worker runs ends, one that runs is marked for its worker."""
    return f"""
WITH h AS MATERIALIZED (
    SELECT t.task_id, t.created_at, t.ttl_ms, {_AT}
    FROM perdure.tasks AS t
    WHERE (t.finished_at IS NULL) IS TRUE AND {which}
    FOR NO KEY UPDATE
)
UPDATE perdure.tasks AS t
SET cancel_requested_at = coalesce(t.cancel_requested_at, h.at),
    status = CASE WHEN t.worker_id IS NULL THEN 'cancelled' ELSE t.status END,
    status_message = CASE WHEN t.worker_id IS NULL THEN NULL ELSE t.status_message END,
    questions_open = CASE WHEN t.worker_id IS NULL THEN 0 ELSE t.questions_open END,
    ready_at = NULL,
    deadline_at = CASE WHEN t.worker_id IS NULL THEN NULL ELSE t.deadline_at END,
    finished_at = CASE WHEN t.worker_id IS NULL THEN h.at END,
    expires_at = CASE WHEN t.worker_id IS NULL THEN {_EXPIRES} END,
    ttl_ms = CASE WHEN t.worker_id IS NULL THEN {_ENDED_TTL} ELSE t.ttl_ms END,
    version = t.version + CASE WHEN t.worker_id IS NULL THEN 1 ELSE 0 END,
    updated_at = CASE WHEN t.worker_id IS NULL THEN h.at ELSE t.updated_at END
FROM h
JOIN perdure.task_requests AS r ON r.task_id = h.task_id
WHERE t.task_id = h.task_id
RETURNING {TASK}"""


# $1 task_id $2 owner $3 how its caller must be answered for it to be cancelled, or NULL.
CANCEL = cancel("t.task_id = $1 AND (t.owner = $2) IS TRUE AND t.reply = coalesce($3, t.reply)")

# $1 worker_id $2 tools $3 limit $4 since when they wait. Index tasks_ready: the heads of each tool and priority, so
# that rows which this worker may not take are never stepped over. `now()`: no index can use clock_timestamp(). Never
# waits for a lock. `seen` tells whether more was there than was won, `oldest` since when the first one waits, or now.
# The most urgent ones come first, also in what is returned.
CLAIM = f"""
WITH heads AS MATERIALIZED (
    SELECT h.task_id, h.priority, h.ready_at
    FROM unnest($2::text[]) AS w (tool)
    CROSS JOIN generate_series(0, 3) AS p (priority)
    CROSS JOIN LATERAL (
        SELECT t.task_id, t.priority, t.ready_at
        FROM perdure.tasks AS t
        WHERE t.tool = w.tool AND t.priority = p.priority AND t.ready_at <= now() AND t.ready_at >= $4::timestamptz
        ORDER BY t.ready_at
        LIMIT 4 * $3::integer
    ) AS h
), urgent AS (
    SELECT * FROM heads ORDER BY priority, ready_at LIMIT 4 * $3::integer
), won AS MATERIALIZED (
    SELECT t.task_id, t.ready_at
    FROM urgent AS h
    JOIN perdure.tasks AS t ON t.task_id = h.task_id
    WHERE t.status = 'working' AND (t.ready_at <= now()) IS TRUE
    ORDER BY h.priority, h.ready_at
    LIMIT $3::integer
    FOR NO KEY UPDATE OF t SKIP LOCKED
), claimed AS (
    UPDATE perdure.tasks AS t
    SET worker_id = $1,
        epoch = t.epoch + 1,
        ready_at = NULL,
        progress = NULL,
        progress_total = NULL,
        started_at = clock_timestamp(),
        deadline_at = least(
            t.created_at + t.ttl_ms * interval '1 millisecond',
            clock_timestamp() + r.timeout_ms * interval '1 millisecond')
    FROM won
    JOIN perdure.task_requests AS r ON r.task_id = won.task_id
    WHERE t.task_id = won.task_id AND t.status = 'working' AND (t.ready_at <= now()) IS TRUE
    RETURNING t.*, r.params::text AS params, r.capabilities::text AS capabilities, r.revision,
        r.trace_context::text AS trace_context, won.ready_at AS waited_since
)
SELECT s.seen, s.oldest, {TASK}, t.params, t.capabilities, t.revision, t.trace_context, t.failures,
    (extract(epoch FROM t.deadline_at - clock_timestamp()) * 1000)::bigint AS remaining_ms,
    (extract(epoch FROM t.started_at - t.waited_since) * 1000)::float8 AS waited_ms
FROM (SELECT count(*) AS seen, coalesce(min(h.ready_at), now()) AS oldest FROM heads AS h) AS s
LEFT JOIN claimed AS t ON true
ORDER BY t.priority, t.waited_since"""

# $1 task_ids: what earlier attempts left behind, for those that have had one.
HISTORY = """
SELECT s.task_id, 'step' AS kind, s.name AS key, s.value::text AS value, NULL AS request
FROM perdure.task_steps AS s
WHERE s.task_id = ANY ($1::uuid[])
UNION ALL
SELECT i.task_id, 'question', i.key, a.response::text, i.request::text
FROM perdure.task_input_requests AS i
LEFT JOIN perdure.task_input_responses AS a ON a.task_id = i.task_id AND a.key = i.key
WHERE i.task_id = ANY ($1::uuid[])"""

# $1 task_id $2 epoch $3 worker_id $4 keys $5 requests. With a cancel pending the task ends instead.
ASK = f"""
WITH {_HELD}, asked AS (
    INSERT INTO perdure.task_input_requests (task_id, key, request, epoch, position, asked_at)
    SELECT h.task_id, q.key, q.request, h.epoch, q.position, h.at
    FROM held AS h
    CROSS JOIN unnest($4::text[], $5::json[]) WITH ORDINALITY AS q (key, request, position)
    WHERE h.cancel_requested_at IS NULL
), attempt AS (
    INSERT INTO perdure.task_attempts (task_id, epoch, worker_id, started_at, ended_at, ended)
    SELECT h.task_id, h.epoch, h.worker_id, h.started_at, h.at, 'cancelled'
    FROM held AS h
    WHERE h.cancel_requested_at IS NOT NULL
)
UPDATE perdure.tasks AS t
SET status = CASE WHEN h.cancel_requested_at IS NULL THEN 'input_required' ELSE 'cancelled' END,
    status_message = NULL,
    worker_id = NULL,
    questions_open = CASE WHEN h.cancel_requested_at IS NULL THEN cardinality($4::text[]) ELSE 0 END,
    deadline_at = CASE WHEN h.cancel_requested_at IS NULL THEN least(
        h.created_at + h.ttl_ms * interval '1 millisecond',
        h.at + least(r.answer_within_ms, {_REQUEST_STATE_MS}) * interval '1 millisecond') END,
    finished_at = CASE WHEN h.cancel_requested_at IS NOT NULL THEN h.at END,
    expires_at = CASE WHEN h.cancel_requested_at IS NOT NULL THEN {_EXPIRES} END,
    ttl_ms = CASE WHEN h.cancel_requested_at IS NOT NULL THEN {_ENDED_TTL} ELSE t.ttl_ms END,
    version = t.version + 1,
    updated_at = h.at
FROM held AS h
JOIN perdure.task_requests AS r ON r.task_id = h.task_id
WHERE t.task_id = h.task_id
RETURNING {TASK}"""

# $1 task_id $2 epoch $3 worker_id $4 name $5 value. A step that is there already is never overwritten.
STEP = f"""
WITH {_HELD}
INSERT INTO perdure.task_steps (task_id, name, value, epoch, stepped_at)
SELECT h.task_id, $4::text, $5::json, h.epoch, h.at FROM held AS h
ON CONFLICT (task_id, name) DO NOTHING
RETURNING value::text AS value"""

# The memo of a step whose function ran in the same transaction: there a duplicate must fail, not be passed over.
FENCE = f"WITH {_HELD} SELECT 1 AS held FROM held"
MEMO = "INSERT INTO perdure.task_steps (task_id, name, value, epoch) VALUES ($1, $2, $3, $4)"


def _status(message: str, progress: str, total: str) -> str:
    return f"""
    status_message = {message},
    progress = coalesce({progress}, t.progress),
    progress_total = CASE WHEN {progress} IS NULL THEN t.progress_total ELSE {total} END,
    version = t.version + CASE WHEN t.status_message IS DISTINCT FROM {message} THEN 1 ELSE 0 END,
    updated_at = CASE WHEN t.status_message IS DISTINCT FROM {message}
        THEN greatest(clock_timestamp(), t.updated_at + interval '1 microsecond') ELSE t.updated_at END"""


# $1 task_id $2 epoch $3 worker_id $4 message $5 progress or NULL to leave it $6 total. The same message is no change:
# progress is not in a task's view, it is for operators and for requests that wait.
STATUS = f"""
UPDATE perdure.tasks AS t
SET {_status("$4", "$5::float8", "$6::float8")}
WHERE t.task_id = $1 AND t.epoch = $2 AND (t.worker_id = $3) IS TRUE AND t.status = 'working'
RETURNING {TASK}"""

# $1 task_ids $2 epochs $3 worker_ids $4 messages $5 progress $6 totals: as STATUS, for those of them that nobody locks.
STATUS_MANY = f"""
WITH held AS MATERIALIZED (
    SELECT t.task_id, w.message, w.progress, w.total
    FROM unnest($1::uuid[], $2::integer[], $3::uuid[], $4::text[], $5::float8[], $6::float8[])
        AS w (task_id, epoch, worker_id, message, progress, total)
    JOIN perdure.tasks AS t ON t.task_id = w.task_id AND t.epoch = w.epoch AND (t.worker_id = w.worker_id) IS TRUE
    WHERE t.status = 'working'
    ORDER BY t.task_id
    FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE perdure.tasks AS t
SET {_status("h.message", "h.progress", "h.total")}
FROM held AS h
WHERE t.task_id = h.task_id
RETURNING {TASK}"""

# $1 task_id $2 epoch $3 worker_id. Clients that see the task at all see no difference.
DETACH = f"""
UPDATE perdure.tasks AS t
SET reply = 'task'
WHERE t.task_id = $1 AND t.epoch = $2 AND (t.worker_id = $3) IS TRUE AND t.status = 'working'
RETURNING {TASK}"""

# $1 task_id $2 owner. A question that is open can from now on be answered for as long as the tool lets it.
DETACH_FOR = f"""
WITH h AS MATERIALIZED (
    SELECT t.task_id, t.created_at, t.ttl_ms, t.status, {_AT}
    FROM perdure.tasks AS t
    WHERE t.task_id = $1 AND (t.owner = $2) IS TRUE AND (t.finished_at IS NULL) IS TRUE AND t.reply = 'request'
    FOR NO KEY UPDATE
)
UPDATE perdure.tasks AS t
SET reply = 'task',
    deadline_at = CASE WHEN h.status = 'input_required' THEN least(
        h.created_at + h.ttl_ms * interval '1 millisecond',
        h.at + r.answer_within_ms * interval '1 millisecond') ELSE t.deadline_at END
FROM h
JOIN perdure.task_requests AS r ON r.task_id = h.task_id
WHERE t.task_id = h.task_id
RETURNING {TASK}"""

_FINISHED = f"""
    worker_id = NULL,
    deadline_at = NULL,
    finished_at = h.at,
    expires_at = {_EXPIRES},
    ttl_ms = {_ENDED_TTL},
    version = t.version + 1,
    updated_at = h.at
FROM held AS h
JOIN perdure.task_requests AS r ON r.task_id = h.task_id
WHERE t.task_id = h.task_id
RETURNING """

# $1 task_id $2 epoch $3 worker_id $4 result
FINISH = f"""
WITH {_HELD}, outcome AS (
    INSERT INTO perdure.task_outcomes (task_id, result, epoch)
    SELECT h.task_id, $4::json, h.epoch FROM held AS h
)
UPDATE perdure.tasks AS t
SET status = 'completed',
    status_message = NULL,{_FINISHED}{TASK}"""

# $1 task_ids $2 epochs $3 worker_ids $4 results: as FINISH, for those of these attempts whose rows nobody else has
# locked. A batch waits for no row: what it does not return is left to FINISH. Nobody asks for the rows after it.
FINISH_MANY = f"""
WITH held AS MATERIALIZED (
    SELECT t.task_id, t.epoch, t.created_at, t.ttl_ms, w.result, {_AT}
    FROM unnest($1::uuid[], $2::integer[], $3::uuid[], $4::json[]) AS w (task_id, epoch, worker_id, result)
    JOIN perdure.tasks AS t ON t.task_id = w.task_id AND t.epoch = w.epoch AND (t.worker_id = w.worker_id) IS TRUE
    WHERE t.status = 'working'
    ORDER BY t.task_id
    FOR NO KEY UPDATE OF t SKIP LOCKED
), outcome AS (
    INSERT INTO perdure.task_outcomes (task_id, result, epoch)
    SELECT h.task_id, h.result, h.epoch FROM held AS h
)
UPDATE perdure.tasks AS t
SET status = 'completed',
    status_message = NULL,{_FINISHED}t.task_id"""

# $1 task_id $2 epoch $3 worker_id $4 error $5 status_message $6 error for operators or NULL
FAIL = f"""
WITH {_HELD}, outcome AS (
    INSERT INTO perdure.task_outcomes (task_id, error, epoch)
    SELECT h.task_id, $4::json, h.epoch FROM held AS h
), attempt AS (
    INSERT INTO perdure.task_attempts (task_id, epoch, worker_id, started_at, ended_at, ended, error)
    SELECT h.task_id, h.epoch, h.worker_id, h.started_at, h.at, 'error', $6::text
    FROM held AS h
    WHERE $6::text IS NOT NULL
)
UPDATE perdure.tasks AS t
SET status = 'failed',
    status_message = $5,{_FINISHED}{TASK}"""

# $1 task_id $2 epoch $3 worker_id $4 pause in ms $5 message $6 error for operators. The attempt failed, and another one
# is made after the pause; with a cancel pending the task ends instead.
RETRY = f"""
WITH {_HELD}, attempt AS (
    INSERT INTO perdure.task_attempts (task_id, epoch, worker_id, started_at, ended_at, ended, error)
    SELECT h.task_id, h.epoch, h.worker_id, h.started_at, h.at,
        CASE WHEN h.cancel_requested_at IS NULL THEN 'retried' ELSE 'cancelled' END, $6::text
    FROM held AS h
)
UPDATE perdure.tasks AS t
SET status = CASE WHEN h.cancel_requested_at IS NULL THEN 'working' ELSE 'cancelled' END,
    status_message = CASE WHEN h.cancel_requested_at IS NULL THEN $5::text END,
    worker_id = NULL,
    failures = t.failures + 1,
    ready_at = CASE WHEN h.cancel_requested_at IS NULL THEN h.at + $4::bigint * interval '1 millisecond' END,
    deadline_at = CASE WHEN h.cancel_requested_at IS NULL THEN h.created_at + h.ttl_ms * interval '1 millisecond' END,
    finished_at = CASE WHEN h.cancel_requested_at IS NOT NULL THEN h.at END,
    expires_at = CASE WHEN h.cancel_requested_at IS NOT NULL THEN {_EXPIRES} END,
    ttl_ms = CASE WHEN h.cancel_requested_at IS NOT NULL THEN {_ENDED_TTL} ELSE t.ttl_ms END,
    version = t.version + 1,
    updated_at = h.at
FROM held AS h
JOIN perdure.task_requests AS r ON r.task_id = h.task_id
WHERE t.task_id = h.task_id
RETURNING {TASK}"""

# $1 task_ids $2 epochs $3 worker_id. Goes back to the queue at once and uses nothing up; a pending cancel ends it.
RELEASE = f"""
WITH held AS MATERIALIZED (
    SELECT t.task_id, t.worker_id, t.epoch, t.started_at, t.status_message, t.cancel_requested_at,
        t.created_at, t.ttl_ms, {_AT}
    FROM perdure.tasks AS t
    JOIN unnest($1::uuid[], $2::integer[]) AS w (task_id, epoch) ON w.task_id = t.task_id AND w.epoch = t.epoch
    WHERE (t.worker_id = $3) IS TRUE AND t.status = 'working'
    ORDER BY t.task_id
    FOR NO KEY UPDATE OF t
), attempt AS (
    INSERT INTO perdure.task_attempts (task_id, epoch, worker_id, started_at, ended_at, ended)
    SELECT h.task_id, h.epoch, h.worker_id, h.started_at, h.at,
        CASE WHEN h.cancel_requested_at IS NULL THEN 'released' ELSE 'cancelled' END
    FROM held AS h
)
UPDATE perdure.tasks AS t
SET status = CASE WHEN h.cancel_requested_at IS NULL THEN 'working' ELSE 'cancelled' END,
    status_message = NULL,
    worker_id = NULL,
    ready_at = CASE WHEN h.cancel_requested_at IS NULL THEN h.at END,
    deadline_at = CASE WHEN h.cancel_requested_at IS NULL THEN h.created_at + h.ttl_ms * interval '1 millisecond' END,
    finished_at = CASE WHEN h.cancel_requested_at IS NOT NULL THEN h.at END,
    expires_at = CASE WHEN h.cancel_requested_at IS NOT NULL THEN {_EXPIRES} END,
    ttl_ms = CASE WHEN h.cancel_requested_at IS NOT NULL THEN {_ENDED_TTL} ELSE t.ttl_ms END,
    version = t.version + CASE WHEN coalesce(h.cancel_requested_at::text, h.status_message) IS NULL THEN 0 ELSE 1 END,
    updated_at = CASE WHEN coalesce(h.cancel_requested_at::text, h.status_message) IS NULL
        THEN t.updated_at ELSE h.at END
FROM held AS h
JOIN perdure.task_requests AS r ON r.task_id = h.task_id
WHERE t.task_id = h.task_id
RETURNING {TASK}"""

# $1 task_ids $2 epochs $3 worker_ids $4 error $5 message. Of these attempts, those whose worker's beat is old, or whose
# worker is gone. The lock insists on the same epoch and worker, so that a task which moved on meanwhile is left alone.
RESCUE = f"""
WITH h AS MATERIALIZED (
    SELECT t.task_id, t.worker_id, t.epoch, t.started_at, t.status_message, t.created_at, t.ttl_ms, {_AT},
        CASE
            WHEN t.cancel_requested_at IS NOT NULL THEN 'cancelled'
            WHEN t.losses >= r.loss_limit THEN 'failed'
            ELSE 'working'
        END AS next
    FROM perdure.tasks AS t
    JOIN unnest($1::uuid[], $2::integer[], $3::uuid[]) AS l (task_id, epoch, worker_id)
        ON l.task_id = t.task_id AND l.epoch = t.epoch AND (l.worker_id = t.worker_id) IS TRUE
    LEFT JOIN perdure.workers AS w ON w.worker_id = l.worker_id
    JOIN perdure.task_requests AS r ON r.task_id = t.task_id
    WHERE t.status = 'working'
        AND (w.beat_at IS NULL OR w.beat_at <= now() - w.lease_ms * interval '1 millisecond')
    ORDER BY t.task_id
    FOR NO KEY UPDATE OF t SKIP LOCKED
), attempt AS (
    INSERT INTO perdure.task_attempts (task_id, epoch, worker_id, started_at, ended_at, ended)
    SELECT h.task_id, h.epoch, h.worker_id, h.started_at, h.at, 'lost' FROM h
), outcome AS (
    INSERT INTO perdure.task_outcomes (task_id, error)
    SELECT h.task_id, $4::json FROM h WHERE h.next = 'failed'
)
UPDATE perdure.tasks AS t
SET status = h.next,
    status_message = CASE WHEN h.next = 'failed' THEN $5::text END,
    worker_id = NULL,
    losses = t.losses + 1,
    ready_at = CASE WHEN h.next = 'working' THEN h.at END,
    deadline_at = CASE WHEN h.next = 'working' THEN h.created_at + h.ttl_ms * interval '1 millisecond' END,
    finished_at = CASE WHEN h.next <> 'working' THEN h.at END,
    expires_at = CASE WHEN h.next <> 'working' THEN {_EXPIRES} END,
    ttl_ms = CASE WHEN h.next <> 'working' THEN {_ENDED_TTL} ELSE t.ttl_ms END,
    version = t.version + CASE WHEN h.next = 'working' AND h.status_message IS NULL THEN 0 ELSE 1 END,
    updated_at = CASE WHEN h.next = 'working' AND h.status_message IS NULL THEN t.updated_at ELSE h.at END
FROM h
JOIN perdure.task_requests AS r ON r.task_id = h.task_id
WHERE t.task_id = h.task_id
RETURNING {TASK}"""

# $1 task_ids $2 how long a worker gets to end an attempt itself. Of these tasks, those that are past their deadline.
# $3 $4 error and message of one whose ttl is over, $5 $6 of one not answered, $7 $8 of one that ran too long.
EXPIRE = f"""
WITH h AS MATERIALIZED (
    SELECT t.task_id, t.worker_id, t.epoch, t.started_at, t.created_at, t.ttl_ms, {_AT},
        CASE
            WHEN t.created_at + t.ttl_ms * interval '1 millisecond' <= now() THEN 'ttl'
            WHEN t.status = 'input_required' AND t.reply = 'request' THEN 'abandoned'
            WHEN t.status = 'input_required' THEN 'unanswered'
            ELSE 'timeout'
        END AS why
    FROM perdure.tasks AS t
    WHERE t.task_id = ANY ($1::uuid[])
        AND (t.deadline_at <= now()) IS TRUE
        AND (t.worker_id IS NULL OR t.deadline_at <= now() - $2::interval)
    ORDER BY t.task_id
    FOR NO KEY UPDATE OF t SKIP LOCKED
), attempt AS (
    INSERT INTO perdure.task_attempts (task_id, epoch, worker_id, started_at, ended_at, ended)
    SELECT h.task_id, h.epoch, h.worker_id, h.started_at, h.at, 'expired' FROM h WHERE h.worker_id IS NOT NULL
), outcome AS (
    INSERT INTO perdure.task_outcomes (task_id, error)
    SELECT h.task_id, CASE h.why WHEN 'ttl' THEN $3::json WHEN 'unanswered' THEN $5::json ELSE $7::json END
    FROM h
    WHERE h.why <> 'abandoned'
)
UPDATE perdure.tasks AS t
SET status = CASE h.why WHEN 'abandoned' THEN 'cancelled' ELSE 'failed' END,
    status_message = CASE h.why WHEN 'ttl' THEN $4::text WHEN 'unanswered' THEN $6 WHEN 'timeout' THEN $8 END,
    worker_id = NULL,
    ready_at = NULL,
    questions_open = 0,
    deadline_at = NULL,
    finished_at = h.at,
    expires_at = {_EXPIRES},
    ttl_ms = {_ENDED_TTL},
    version = t.version + 1,
    updated_at = h.at
FROM h
JOIN perdure.task_requests AS r ON r.task_id = h.task_id
WHERE t.task_id = h.task_id
RETURNING {TASK}"""

# Own lost acknowledgements, looked up after a fenced write found nothing: $1 task_id $2 epoch, and $3 a step's name.
# A step of a later attempt is none of ours.
OWN_OUTCOME = f"""
SELECT {TASK} FROM perdure.tasks AS t
JOIN perdure.task_outcomes AS o ON o.task_id = t.task_id
WHERE t.task_id = $1 AND o.epoch = $2"""
OWN_STEP = "SELECT value::text AS value FROM perdure.task_steps WHERE task_id = $1 AND epoch <= $2 AND name = $3"
OWN_RETRY = f"""
SELECT {TASK} FROM perdure.tasks AS t
JOIN perdure.task_attempts AS a ON a.task_id = t.task_id
WHERE t.task_id = $1 AND a.epoch = $2 AND a.ended IN ('retried', 'cancelled')"""
OWN_QUESTION = f"""
SELECT {TASK} FROM perdure.tasks AS t
WHERE t.task_id = $1 AND EXISTS (
    SELECT 1 FROM perdure.task_input_requests AS i WHERE i.task_id = t.task_id AND i.epoch = $2)"""
