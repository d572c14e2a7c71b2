"""The worker's lease: one row that beats, from a thread of its own, so that a busy event loop does not lose it."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

import asyncpg
import structlog

from app.storage import fleet
from app.storage.database import FAULTS, asyncpg_dsn

log = structlog.get_logger(__name__)

BEATS_PER_LEASE = 4
FENCE_AT = 0.75
"""When so much of the lease has passed since the last good beat, handlers are stopped: they must end within it."""


class Heartbeat:
    """Keeps the worker's row alive, and knows how long its lease lasts.

    The thread only beats. It reads the monotonic clock before each statement, so that the lease it reckons with never
    ends later than the one that the database grants.

    Args:
        url: the database; the thread has its own connection.
        tools: names of the tools that this worker runs.
        slots: how many tasks it runs at once.
        lease_seconds: how long a beat is good for.
        version: the release, for operators.
        on_fence: called in the thread when the lease nears its end without a beat.
        on_lost: called in the thread with the new id after the row was found gone.
    """

    def __init__(
        self,
        url: str,
        *,
        tools: Sequence[str],
        slots: int,
        lease_seconds: float,
        version: str,
        on_fence: Callable[[], None],
        on_lost: Callable[[UUID], None],
    ) -> None:
        self.worker_id = uuid4()
        self.draining = False
        self._dsn = asyncpg_dsn(url)
        self._tools = list(tools)
        self._slots = slots
        self._lease = lease_seconds
        self._version = version
        self._on_fence = on_fence
        self._on_lost = on_lost
        self._good_until = 0.0
        self._unbroken_since = 0.0
        self._fenced = True
        self._registered = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="perdure-heartbeat", daemon=True)

    @property
    def alive(self) -> bool:
        """True while tasks may be claimed: the lease is not near its end."""
        return time.monotonic() < self._good_until - self._lease * (1 - FENCE_AT)

    @property
    def trusted(self) -> bool:
        """True once the beats have succeeded for a whole lease: only then may the silence of others be believed."""
        return self.alive and time.monotonic() - self._unbroken_since >= self._lease

    def held_since(self, moment: float) -> bool:
        """Whether the lease is good, and did not end since then (monotonic seconds) to be renewed later."""
        return self.alive and self._unbroken_since <= moment

    def start(self) -> None:
        """Start beating; the row is there when `registered` returns."""
        self._thread.start()

    async def registered(self) -> None:
        """Wait for the first good beat."""
        while not self._registered.is_set():
            if not self._thread.is_alive():
                raise RuntimeError("the heartbeat has ended")
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        """Stop beating and take the row away."""
        self._stop.set()
        self._thread.join(timeout=5)

    # -- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.run(self._beat_until_stopped())

    async def _beat_until_stopped(self) -> None:
        connection: asyncpg.Connection[asyncpg.Record] | None = None
        while not self._stop.is_set():
            try:
                if connection is None or connection.is_closed():
                    connection = await self._connect()
                async with connection.transaction():  # a pooler may give each transaction another connection
                    await self._beat(connection)
            except FAULTS as fault:
                log.warning("heartbeat failed", fault=type(fault).__name__)
                if connection is not None:
                    connection.terminate()
                    connection = None
            self._fence_if_late()
            # A failed beat is tried again soon, but not in a tight loop.
            self._stop.wait(self._lease / BEATS_PER_LEASE if connection is not None else min(1.0, self._lease / 20))
        if connection is not None:
            await self._leave(connection)

    async def _connect(self) -> asyncpg.Connection[asyncpg.Record]:
        return await asyncpg.connect(
            self._dsn,
            timeout=self._lease / 4,
            command_timeout=self._lease / 4,
            server_settings={"application_name": "perdure heartbeat"},
            statement_cache_size=0,
        )

    async def _beat(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        started = time.monotonic()
        if not self._registered.is_set():
            await self._register(connection)
        elif await connection.fetchval(fleet.BEAT, self.worker_id, self.draining) is None:
            log.warning("the worker's row is gone; going on under a new id")
            self.worker_id = uuid4()
            await self._register(connection)
            self._on_lost(self.worker_id)
        if started > self._good_until:
            self._unbroken_since = started
        self._good_until = started + self._lease
        self._fenced = False
        self._registered.set()

    async def _register(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        await connection.execute(
            fleet.REGISTER,
            self.worker_id,
            socket.gethostname(),
            os.getpid(),
            self._version,
            self._tools,
            self._slots,
            int(self._lease * 1000),
        )

    def _fence_if_late(self) -> None:
        if not self.alive and not self._fenced:
            self._fenced = True
            log.error("the lease cannot be renewed; handlers are stopped")
            self._on_fence()

    async def _leave(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        try:
            async with connection.transaction():
                await connection.execute(fleet.LEAVE, self.worker_id)
            await connection.close(timeout=2)
        except FAULTS as fault:
            log.warning("the worker's row stays behind until it is forgotten", fault=type(fault).__name__)
