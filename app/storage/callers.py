"""The statements about callers: the keys that they gave, how many live tasks they have, and what they subscribe to."""

from __future__ import annotations

from app.storage import statements as sql

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

# $1 task_ids $2 owners $3 versions that are known $4 bytes. Primary keys only; of a task that has not changed nothing
# but its row is read. A larger outcome is not brought along, and `omitted`: many of them at once are too much.
NEWER = f"""
SELECT {sql.SHOWN}, s.omitted,
    CASE WHEN NOT s.omitted THEN o.result::text END AS result,
    CASE WHEN NOT s.omitted THEN o.error::text END AS error
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS w (task_id, owner, version)
JOIN perdure.tasks AS t ON t.task_id = w.task_id
LEFT JOIN perdure.task_outcomes AS o ON o.task_id = t.task_id
CROSS JOIN LATERAL (
    SELECT coalesce(octet_length(coalesce(o.result, o.error)::text) > $4::integer, false) AS omitted) AS s
LEFT JOIN {sql.OPEN_QUESTIONS}
WHERE t.owner = w.owner AND t.version > w.version AND coalesce(t.expires_at > now(), true)"""
