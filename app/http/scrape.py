"""GET /metrics: what was counted, and what is looked at only when somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from app.methods.limits import Limits
from app.storage.database import FAULTS, Database
from app.storage.health import Health
from app.storage.listener import Listener
from app.telemetry import metrics
from app.telemetry.metrics import ACTIVITIES, Sample


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

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer in the format that the scraper takes."""
        metrics.show([*self._process(), *await self._database()])
        encode, kind = choose_encoder(request.headers.get("Accept", ""))
        # A few hundred tools make it half a second's work, which requests need not wait for.
        body = await asyncio.to_thread(encode, REGISTRY)
        response = web.Response(body=body, headers={"Content-Type": kind, "Cache-Control": "no-store"})
        response.enable_compression()
        return response

    def _process(self) -> Iterator[Sample]:
        for name, database in self.pools.items():
            use = database.use
            yield "perdure_pool_limit_connections", use.limit, (name,)
            yield "perdure_pool_used_connections", use.used, (name,)
            yield "perdure_pool_waiting", use.waiting, (name,)
        if self.listener is not None:
            yield "perdure_listener_hearing", self.listener.hearing, ()
        if self.limits is not None:
            yield "perdure_open_streams", self.limits.open_streams, ()
            yield "perdure_inline_calls", self.limits.waiting_calls, ()
        if self.worker is not None:
            yield "perdure_worker_slots", self.worker.slots, ()
            yield "perdure_worker_running", self.worker.running, ()
            yield "perdure_worker_claiming", self.worker.obstacle is None, ()

    async def _database(self) -> list[Sample]:
        if self.health is None:
            return []
        try:
            figures = await self.health.figures()
        except FAULTS:
            return [("perdure_database_up", 0, ())]
        samples: list[Sample] = [
            ("perdure_database_up", 1, ()),
            ("perdure_notification_queue_ratio", figures.notification_queue, ()),
            ("perdure_oldest_xmin_age_transactions", figures.xmin_age, ()),
        ]
        for queue in figures.queues:
            tool = queue["tool"]
            samples += [("perdure_tasks", queue[activity], (tool, activity)) for activity in ACTIVITIES]
            samples.append(("perdure_oldest_wait_seconds", queue["oldest_wait"] or 0, (tool,)))
            samples.append(("perdure_tool_workers", queue["workers"], (tool,)))
        return samples
