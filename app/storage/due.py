"""What maintenance moves: found without a lock, then moved all at once, or one by one where that fails.

So one row that cannot be moved does not keep the others. The statements that move them look again under their locks.
"""

from __future__ import annotations

from uuid import UUID

import asyncpg
import structlog

from app.storage.database import Database

log = structlog.get_logger(__name__)

Found = list[asyncpg.Record]
Statement = tuple[str, *tuple[object, ...]]
"""The text of a statement, and its last arguments."""

# Of each: $1 limit $2 ids to pass over. The tool comes first, then the columns by which a task is named to be moved.

# Index tasks_running. Tasks whose worker's beat is old, or whose worker is gone: those between the ids of the workers
# that are alive, so that no row is read of what these have ended since the oldest transaction of the database began.
LOST = """
WITH alive AS (
    SELECT w.worker_id FROM perdure.workers AS w WHERE w.beat_at > now() - w.lease_ms * interval '1 millisecond'
    UNION ALL VALUES ('ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
), between AS (
    SELECT lag(a.worker_id, 1, '00000000-0000-0000-0000-000000000000') OVER (ORDER BY a.worker_id) AS first,
        a.worker_id AS last
    FROM alive AS a
)
SELECT t.tool, t.task_id, t.epoch, t.worker_id
FROM between AS b
CROSS JOIN LATERAL (
    SELECT t.tool, t.task_id, t.epoch, t.worker_id
    FROM perdure.tasks AS t
    WHERE t.worker_id > b.first AND t.worker_id < b.last AND t.task_id <> ALL ($2::uuid[])
    LIMIT $1
) AS t
LIMIT $1"""

# Index tasks_deadline. $3 how long a worker gets to end an attempt itself.
OVERDUE = """
SELECT t.tool, t.task_id
FROM perdure.tasks AS t
WHERE t.deadline_at <= now()
    AND (t.worker_id IS NULL OR t.deadline_at <= now() - $3::interval)
    AND t.task_id <> ALL ($2::uuid[])
ORDER BY t.deadline_at
LIMIT $1"""

# Index tasks_expires. $3 how long an expired task is still told apart from an unknown one.
SPENT = """
SELECT t.tool, t.task_id
FROM perdure.tasks AS t
WHERE t.expires_at <= now() - $3::interval
    AND t.task_id <> ALL ($2::uuid[])
ORDER BY t.expires_at
LIMIT $1"""

# $1 task_ids $2 how long an expired task is still told apart from an unknown one. Children cascade.
PURGE = """
WITH gone AS MATERIALIZED (
    SELECT t.task_id
    FROM perdure.tasks AS t
    WHERE t.task_id = ANY ($1::uuid[]) AND (t.expires_at <= now() - $2::interval) IS TRUE
    ORDER BY t.task_id
    FOR UPDATE OF t SKIP LOCKED
)
DELETE FROM perdure.tasks AS t USING gone AS g WHERE t.task_id = g.task_id
RETURNING t.task_id"""


async def move(
    database: Database, verb: str, look: Statement, act: Statement, *, limit: int, broken: set[UUID]
) -> Found:
    """Move a batch of tasks that are due.

    Args:
        look: one of the statements of this file.
        act: the statement that moves what was found; its first arguments name the tasks, a column each.
        broken: tasks to pass over; those that turn out to be unmovable are told to operators, and added.

    Returns:
        What `act` returned; nothing once nothing is left to move.
    """
    while found := await database.fetch(look[0], limit, list(broken), *look[1:]):
        known = len(broken)
        moved = await _move(database, verb, found, act, broken)
        if moved or len(broken) == known:
            return moved
    return []


async def _move(database: Database, verb: str, found: Found, act: Statement, broken: set[UUID]) -> Found:
    names = zip(*(tuple(row)[1:] for row in found), strict=True)
    try:
        return await database.fetch(act[0], *map(list, names), *act[1:])
    except asyncpg.PostgresError as fault:
        if len(found) > 1:
            return [row for one in found for row in await _move(database, verb, [one], act, broken)]
        broken.add(found[0]["task_id"])
        log.error("a task is passed over", verb=verb, tool=found[0]["tool"], fault=type(fault).__name__)
        log.debug("a task is passed over", verb=verb, task_id=str(found[0]["task_id"]), reason=str(fault))
        return []
