"""Live tasks that are past their deadline end."""

from __future__ import annotations

from uuid import UUID

import structlog

from app.storage.store import Store
from app.telemetry import metrics

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 5.0


async def expire(store: Store) -> int:
    """End all tasks that are due. Returns how many."""
    ended = 0
    broken: set[UUID] = set()
    while tasks := await store.expire(broken=broken):
        ended += len(tasks)
        metrics.moved(metrics.EXPIRED, (task.tool for task in tasks))
        log.info("ended tasks past their deadline", tasks=len(tasks))
    return ended
