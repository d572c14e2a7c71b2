"""GET /metrics: what was counted, and what is looked at only when somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web
from prometheus_client import REGISTRY
from prometheus_client.aiohttp import make_aiohttp_handler

from app.methods.limits import Limits
from app.storage.database import FAULTS, Database
from app.storage.health import Health
from app.storage.listener import Listener
from app.telemetry import metrics


class Working(Protocol):
    """What is shown of a worker."""

    @property
    def slots(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def obstacle(self) -> str | None: ...


@dataclass(slots=True)
class Scrape:
    """The parts of a process that are looked at, as they come to be there.

    Attributes:
        health: asks the database.
        pools: by what they are for.
        listener: None where changes are found by polling.
        limits: those of the API.
        worker: None where there is none.
    """

    health: Health | None = None
    pools: Mapping[str, Database] = field(default_factory=dict)
    listener: Listener | None = None
    limits: Limits | None = None
    worker: Working | None = None
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer in the format that the scraper takes."""
        async with self._looking:  # one sets the values at a time
            await self._look_at_database()
            self._look_at_process()
            return await _written(request)

    def _look_at_process(self) -> None:
        for name, database in self.pools.items():
            metrics.show_pool(name, database.use.limit, database.use.used, database.use.waiting)
        metrics.HEARING.set(self.listener is not None and self.listener.hearing)
        if self.limits is not None:
            metrics.STREAMS.set(self.limits.open_streams)
            metrics.INLINE.set(self.limits.waiting_calls)
        if self.worker is not None:
            metrics.SLOTS.set(self.worker.slots)
            metrics.RUNNING.set(self.worker.running)
            metrics.CLAIMING.set(self.worker.obstacle is None)

    async def _look_at_database(self) -> None:
        if self.health is None:
            return
        try:
            figures = await self.health.figures()
        except FAULTS:
            metrics.DATABASE_UP.set(0)
            metrics.show_queues(())
            return
        metrics.DATABASE_UP.set(1)
        metrics.show_queues(figures.queues)
        metrics.QUEUE_USE.set(figures.notification_queue)
        metrics.XMIN_AGE.set(figures.xmin_age)


_written = make_aiohttp_handler(REGISTRY)
