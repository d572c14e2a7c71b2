"""Hears what other processes tell, on a connection of its own, and proves to itself that it still does.

It cannot go through a transaction pooler: there LISTEN is accepted, but nothing arrives. Then the ping that it sends
itself stays away, it says so, and everything goes on by polling.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import UUID

import asyncpg
import structlog

from app.storage.database import FAULTS, asyncpg_dsn
from app.storage.notifier import CHANGED, READY
from app.telemetry.metrics import LOSSES

log = structlog.get_logger(__name__)

PING_SECONDS = 5.0
PONG_SECONDS = 5.0
RECONNECT_SECONDS = 1.0


class Listener:
    """One LISTEN connection of a process, and those who want to be woken.

    Args:
        url: the database, reached directly.
        ping_seconds: how often it proves that it still hears. A lost connection is noticed at once, one that is
            there but no longer listens by a ping.
        pong_seconds: how long its own ping may take.
        reconnect_seconds: the pause before it listens again.
        for_worker: whether it hears that tools have work, which an API alone says often and never needs to hear.
    """

    def __init__(
        self,
        url: str,
        *,
        ping_seconds: float = PING_SECONDS,
        pong_seconds: float = PONG_SECONDS,
        reconnect_seconds: float = RECONNECT_SECONDS,
        for_worker: bool = True,
    ) -> None:
        self._dsn = asyncpg_dsn(url)
        self._ping_seconds = ping_seconds
        self._pong_seconds = pong_seconds
        self._reconnect_seconds = reconnect_seconds
        self._for_worker = for_worker
        self._on_ready: list[tuple[frozenset[str], Callable[[], None]]] = []
        self._on_changed: list[Callable[[UUID], None]] = []
        self._on_gap: list[Callable[[], None]] = []
        self._ping_channel = f"perdure_ping_{secrets.token_hex(8)}"
        self._pong = asyncio.Event()
        self.hearing = False
        """True while notifications are known to arrive."""

    def on_ready(self, tools: Sequence[str], wake: Callable[[], None]) -> None:
        """Call wake when one of these tools has work, and after every gap in the hearing."""
        self._on_ready.append((frozenset(tools), wake))
        self._on_gap.append(wake)

    def on_changed(self, tell: Callable[[UUID], None], gap: Callable[[], None] | None = None) -> None:
        """Call tell with the id of each task that changed, and gap after every gap in the hearing."""
        self._on_changed.append(tell)
        if gap is not None:
            self._on_gap.append(gap)

    async def run(self) -> None:
        """Listen until cancelled; after any loss, again, and those who wait are woken to look for themselves."""
        while True:
            try:
                await self._listen()
            except FAULTS as fault:
                log.warning("not hearing notifications; polling goes on", fault=type(fault).__name__)
                LOSSES.inc()
            finally:
                self.hearing = False
            await asyncio.sleep(self._reconnect_seconds)

    async def _listen(self) -> None:
        connection = await asyncpg.connect(
            self._dsn, timeout=10, command_timeout=10, server_settings={"application_name": "perdure listener"}
        )
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        try:
            if self._for_worker:
                await connection.add_listener(READY, self._heard_ready)
            await connection.add_listener(CHANGED, self._heard_changed)
            await connection.add_listener(self._ping_channel, self._heard_ping)
            while not lost.is_set():
                await self._prove(connection)
                if not self.hearing:
                    self.hearing = True
                    self._gap()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._ping_seconds):
                        await lost.wait()
            raise ConnectionResetError("the connection was lost")
        finally:
            connection.terminate()

    async def _prove(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._pong.clear()
        await connection.execute(f"NOTIFY {self._ping_channel}")
        async with asyncio.timeout(self._pong_seconds):  # Python 3.11's wait_for can swallow a cancellation
            await self._pong.wait()

    def _gap(self) -> None:
        for wake in self._on_gap:
            wake()

    def _heard_ready(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        tools = set(str(payload).split(" "))
        for wanted, wake in self._on_ready:
            if not wanted.isdisjoint(tools):
                wake()

    def _heard_changed(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        with suppress(ValueError):  # anybody who may connect may notify anything
            for task_id in [UUID(word) for word in str(payload).split(" ")]:
                for tell in self._on_changed:
                    tell(task_id)

    def _heard_ping(self, _connection: object, _pid: int, _channel: str, _payload: object) -> None:
        self._pong.set()
