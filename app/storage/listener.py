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

from app.storage.database import PASSING, asyncpg_dsn
from app.storage.notifier import CHANGED, READY

log = structlog.get_logger(__name__)

PING_SECONDS = 15.0
PONG_SECONDS = 5.0
RECONNECT_SECONDS = 1.0


class Listener:
    """One LISTEN connection of a process, and those who want to be woken.

    Args:
        url: the database, reached directly.
    """

    def __init__(self, url: str) -> None:
        self._dsn = asyncpg_dsn(url)
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

    def on_changed(self, tell: Callable[[UUID], None]) -> None:
        """Call tell with the id of each task that changed."""
        self._on_changed.append(tell)

    async def run(self) -> None:
        """Listen until cancelled; after any loss, again, and those who wait are woken to look for themselves."""
        while True:
            try:
                await self._listen()
            except PASSING as fault:
                log.warning("not hearing notifications; polling goes on", fault=type(fault).__name__)
            finally:
                self.hearing = False
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self) -> None:
        connection = await asyncpg.connect(
            self._dsn, timeout=10, command_timeout=10, server_settings={"application_name": "perdure listener"}
        )
        try:
            await connection.add_listener(READY, self._heard_ready)
            await connection.add_listener(CHANGED, self._heard_changed)
            await connection.add_listener(self._ping_channel, self._heard_ping)
            while True:
                await self._prove(connection)
                if not self.hearing:
                    self.hearing = True
                    self._gap()
                await asyncio.sleep(PING_SECONDS)
        finally:
            connection.terminate()

    async def _prove(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._pong.clear()
        await connection.execute(f"NOTIFY {self._ping_channel}")
        await asyncio.wait_for(self._pong.wait(), PONG_SECONDS)

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
