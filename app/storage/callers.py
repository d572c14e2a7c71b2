"""The statements about callers: the keys that they gave, and how many live tasks they have."""

from __future__ import annotations

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
