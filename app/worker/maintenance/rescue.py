"""Tasks whose worker is lost go back to the queue."""

from __future__ import annotations

from uuid import UUID

import structlog

from app.storage.store import Store
from app.telemetry import metrics
from app.worker.heartbeat import Heartbeat

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 5.0


async def rescue(store: Store, heartbeat: Heartbeat) -> int:
    """Rescue once. Returns how many tasks were taken from lost workers.

    A worker whose own beats have just failed cannot tell whether others are lost or the database was away: it rescues
    nobody until its beats have succeeded for a whole lease.
    """
    rescued = 0
    broken: set[UUID] = set()
    while heartbeat.trusted and (tasks := await store.rescue(broken=broken)):
        rescued += len(tasks)
        metrics.moved(metrics.RESCUED, (task.tool for task in tasks))
        log.warning("rescued tasks of lost workers", tasks=len(tasks), tools=sorted({t.tool for t in tasks}))
    return rescued
