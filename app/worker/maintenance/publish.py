"""The worker's tools stay in the catalogue as long as it runs."""

from __future__ import annotations

from app.storage.store import Store
from app.tools.registry import Registry

INTERVAL_SECONDS = 60.0


async def publish(store: Store, registry: Registry) -> None:
    """Bring the tools that get tasks into the catalogue, or say that they are still here."""
    await store.publish_tools(registry.catalogue())
