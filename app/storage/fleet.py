"""The statements about workers and the tools that they bring, as they are sent."""

from __future__ import annotations

REGISTER = """
INSERT INTO perdure.workers (worker_id, host, pid, version, tools, slots, lease_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (worker_id) DO NOTHING"""
BEAT = "UPDATE perdure.workers SET beat_at = clock_timestamp(), draining = $2 WHERE worker_id = $1 RETURNING 1 AS alive"
LEAVE = "DELETE FROM perdure.workers WHERE worker_id = $1"

# $1 worker_id. Index tasks_running: all that the database thinks this worker runs.
HOLDINGS = """
SELECT t.task_id, t.epoch, t.cancel_requested_at IS NOT NULL AS cancel_requested
FROM perdure.tasks AS t
WHERE t.worker_id = $1"""

# $1 worker_id $2 task_ids. Index tasks_pkey: as HOLDINGS, of these tasks only.
HOLDINGS_OF = """
SELECT t.task_id, t.epoch, t.cancel_requested_at IS NOT NULL AS cancel_requested
FROM perdure.tasks AS t
WHERE t.task_id = ANY ($2::uuid[]) AND (t.worker_id = $1) IS TRUE"""

# $1 how long. A worker that is gone for so long, and holds nothing any more.
FORGET_WORKERS = """
DELETE FROM perdure.workers AS w
WHERE w.beat_at < now() - $1::interval
    AND NOT EXISTS (SELECT 1 FROM perdure.tasks AS t WHERE t.worker_id = w.worker_id)"""

# $1 names $2 definitions $3 options $4 digests. In the order of names, so that two workers cannot deadlock.
PUBLISH_TOOLS = """
INSERT INTO perdure.tools AS c (name, definition, options, digest, seen_at)
SELECT n.name, n.definition, n.options, n.digest, now()
FROM unnest($1::text[], $2::json[], $3::json[], $4::text[]) AS n (name, definition, options, digest)
ORDER BY n.name
ON CONFLICT (name) DO UPDATE
SET definition = excluded.definition,
    options = excluded.options,
    digest = excluded.digest,
    seen_at = excluded.seen_at"""

# $1 how long a tool is listed after its last worker.
READ_TOOLS = """
SELECT c.name, c.definition::text AS definition, c.options::text AS options, c.digest
FROM perdure.tools AS c
WHERE c.seen_at > now() - $1::interval
ORDER BY c.name COLLATE "C\""""
