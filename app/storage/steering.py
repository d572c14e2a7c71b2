"""The statements by which operators change tasks, anybody's and many at once, as they are sent."""

from __future__ import annotations

from app.storage import statements as sql

# $1 task_ids. Primary keys only.
OWNERS = "SELECT t.task_id, t.owner FROM perdure.tasks AS t WHERE t.task_id = ANY ($1::uuid[])"

# $1 task_ids. What a new task like one that has ended is made of.
ENDED_REQUESTS = """
SELECT t.task_id, t.owner, t.tool, t.priority, t.poll_interval_ms, r.method, r.params::text AS params,
    r.capabilities::text AS capabilities, r.revision, r.trace_context::text AS trace_context, r.retention_ms,
    r.timeout_ms, r.answer_within_ms, r.loss_limit, r.ttl_ms
FROM perdure.tasks AS t
JOIN perdure.task_requests AS r ON r.task_id = t.task_id
WHERE t.task_id = ANY ($1::uuid[]) AND t.finished_at IS NOT NULL
ORDER BY t.task_id"""

# $1 task_ids
CANCEL_MANY = sql.cancel("t.task_id = ANY ($1::uuid[]) ORDER BY t.task_id")

# $1 task_ids. Children cascade; when a task expires, which maintenance waits for, does not count.
PURGE_ENDED = """
WITH gone AS MATERIALIZED (
    SELECT t.task_id
    FROM perdure.tasks AS t
    WHERE t.task_id = ANY ($1::uuid[]) AND t.finished_at IS NOT NULL
    ORDER BY t.task_id
    FOR UPDATE OF t
)
DELETE FROM perdure.tasks AS t USING gone AS g WHERE t.task_id = g.task_id
RETURNING t.task_id"""
