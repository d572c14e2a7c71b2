"""The statements that callers lead to: what they create and read, the keys that they gave, what they subscribe to."""

from __future__ import annotations

from app.storage.statements import POLL_INTERVAL, TASK


def _of_kind(values: str, *names: str) -> str:
    """Columns of a task's kind; an array holds those of all kinds."""
    return ", ".join(
        f"({values})[n.kind * {len(names)} + {place}] AS {name}" for place, name in enumerate(names, start=1)
    )


_TEXTS = _of_kind("$7::text[]", "owner", "tool", "reply", "method", "capabilities", "revision")
_NUMBERS = _of_kind(
    "$8::bigint[]",
    *("priority", "poll_interval_ms", "ttl_ms", "retention_ms", "timeout_ms", "answer_within_ms", "loss_limit"),
)

# Of each task: $1 task_id $2 params $3 trace_context $4 key_hash $5 fingerprint $6 its kind, from 0; the three that few
# tasks have are NULL where none of them has one. Of each kind, one after the other: $7 owner, tool, reply, method,
# capabilities and revision; $8 priority, poll_interval_ms, ttl_ms, retention_ms, timeout_ms, answer_within_ms and
# loss_limit. Most tasks of a batch have these in common, and each argument costs as much as a task's values.
# Primary keys only. A second try of the same id inserts nothing and returns no row; a key that is taken is an error,
# and then there is no task at all.
CREATE = f"""
WITH new AS MATERIALIZED (
    SELECT n.task_id, n.params, n.trace_context, n.key_hash, n.fingerprint,
        {_TEXTS},
        {_NUMBERS}
    FROM unnest($1::uuid[], $2::json[], $3::json[], $4::bytea[], $5::bytea[], $6::integer[])
        AS n (task_id, params, trace_context, key_hash, fingerprint, kind)
), t AS (
    INSERT INTO perdure.tasks AS t (
        task_id, owner, tool, priority, status, reply, poll_interval_ms, ttl_ms, ready_at, deadline_at,
        created_at, updated_at)
    SELECT n.task_id, n.owner, n.tool, n.priority, 'working', n.reply, n.poll_interval_ms, n.ttl_ms,
        c.now, c.now + n.ttl_ms * interval '1 millisecond', c.now, c.now
    FROM new AS n CROSS JOIN (SELECT clock_timestamp() AS now) AS c
    ON CONFLICT (task_id) DO NOTHING
    RETURNING t.task_id, t.poll_interval_ms, t.created_at
), request AS (
    INSERT INTO perdure.task_requests (
        task_id, method, params, capabilities, revision, trace_context,
        retention_ms, timeout_ms, answer_within_ms, loss_limit, ttl_ms)
    SELECT n.task_id, n.method, n.params, n.capabilities::json, n.revision, n.trace_context,
        n.retention_ms, n.timeout_ms, n.answer_within_ms, n.loss_limit, n.ttl_ms
    FROM new AS n WHERE n.task_id = ANY (ARRAY(SELECT t.task_id FROM t))
), key AS (
    INSERT INTO perdure.idempotency_keys (owner, tool, key_hash, task_id, fingerprint)
    SELECT n.owner, n.tool, n.key_hash, n.task_id, n.fingerprint
    FROM new AS n WHERE n.key_hash IS NOT NULL AND n.task_id = ANY (ARRAY(SELECT t.task_id FROM t))
)
SELECT t.task_id, {POLL_INTERVAL}, t.created_at FROM t"""

# $1 owner $2 tool $3 key_hash
KEYED = """
SELECT k.task_id, k.fingerprint, coalesce(t.expires_at <= now(), false) AS expired
FROM perdure.idempotency_keys AS k
JOIN perdure.tasks AS t ON t.task_id = k.task_id
WHERE k.owner = $1 AND k.tool = $2 AND k.key_hash = $3"""

# $1 owner $2 tool $3 key_hash $4 task_id. The task that the key stood for has expired: the key is free again.
FREE_KEY = """
DELETE FROM perdure.idempotency_keys AS k
WHERE k.owner = $1 AND k.tool = $2 AND k.key_hash = $3 AND k.task_id = $4"""

# $1 owner $2 limit. Index tasks_live_of_owner; it counts no further than it has to.
LIVE = """
SELECT count(*)::integer AS live
FROM (SELECT FROM perdure.tasks AS t WHERE t.owner = $1 AND t.finished_at IS NULL LIMIT $2) AS t"""

# $1 owner $2 task_ids. Index tasks_pkey.
READABLE = """
SELECT t.task_id
FROM perdure.tasks AS t
WHERE t.task_id = ANY ($2::uuid[]) AND t.owner = $1 AND coalesce(t.expires_at > now(), true)"""

# $1 task_ids $2 owners $3 versions that are known $4 bytes, or NULL. Primary keys only; of a task that has not changed
# nothing but its row is read, and questions of a parked one only. An outcome of more bytes is not brought along, and
# `omitted`: many of them at once are too much.
GET = f"""
SELECT {TASK}, q.keys, q.requests, s.omitted,
    CASE WHEN NOT s.omitted THEN o.result::text END AS result,
    CASE WHEN NOT s.omitted THEN o.error::text END AS error
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS w (task_id, owner, version)
JOIN perdure.tasks AS t ON t.task_id = w.task_id
LEFT JOIN perdure.task_outcomes AS o ON o.task_id = t.task_id
CROSS JOIN LATERAL (
    SELECT coalesce(octet_length(coalesce(o.result, o.error)::text) > $4::integer, false) AS omitted) AS s
LEFT JOIN LATERAL (
    SELECT array_agg(i.key ORDER BY i.epoch, i.position) AS keys,
        array_agg(i.request::text ORDER BY i.epoch, i.position) AS requests
    FROM perdure.task_input_requests AS i
    WHERE i.task_id = t.task_id AND NOT EXISTS (
        SELECT 1 FROM perdure.task_input_responses AS a WHERE a.task_id = i.task_id AND a.key = i.key)
) AS q ON t.status = 'input_required'
WHERE t.owner = w.owner AND t.version > w.version"""
NEWER = f"{GET} AND coalesce(t.expires_at > now(), true)"
