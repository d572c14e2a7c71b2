"""Tasks that have long expired are deleted, and workers that are long gone forgotten."""

from __future__ import annotations

from uuid import UUID

from app.storage.store import Store
from app.telemetry.metrics import PURGED

INTERVAL_SECONDS = 60.0


async def purge(store: Store) -> int:
    """Delete all tasks that have long expired, and forget workers that are long gone. Returns how many tasks."""
    purged = 0
    broken: set[UUID] = set()
    while deleted := await store.purge(broken=broken):
        purged += deleted
        PURGED.inc(deleted)
    await store.forget_workers()
    return purged
