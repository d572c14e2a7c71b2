"""Reaching into the database where a test needs what no API gives."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg

_AGE = """
UPDATE perdure.tasks
SET created_at = created_at - $2::float8 * interval '1 second',
    updated_at = updated_at - $2::float8 * interval '1 second',
    ready_at = ready_at - $2::float8 * interval '1 second',
    started_at = started_at - $2::float8 * interval '1 second',
    deadline_at = deadline_at - $2::float8 * interval '1 second',
    cancel_requested_at = cancel_requested_at - $2::float8 * interval '1 second',
    finished_at = finished_at - $2::float8 * interval '1 second',
    expires_at = expires_at - $2::float8 * interval '1 second'
WHERE task_id = $1
RETURNING 1"""


async def age_task(connection: asyncpg.Connection[Any], task_id: UUID | str, seconds: float) -> None:
    """Let a task be `seconds` older than it is: all of its times move back together."""
    aged = await connection.fetchval(_AGE, UUID(str(task_id)), seconds)
    assert aged == 1, "there is no such task"
