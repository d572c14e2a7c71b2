"""How requests that are being answered end when the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from app.errors import ErrorKind, Refusal

LAST_SECONDS = 5.0
"""How long requests that were told to end may take to clean up and to send their reply."""


class OpenRequests:
    """The requests that are being answered, each in a task of its own."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._limits: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def until_stopped(self) -> AsyncIterator[None]:
        """Answer a request in here: what it awaits is cancelled when the server stops.

        Raises:
            Refusal: UNAVAILABLE, the server has stopped, and what was awaited has ended.
        """
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._limits.add(limit)
                try:
                    yield
                finally:
                    self._limits.discard(limit)
        except TimeoutError:
            if not limit.expired():
                raise
            raise Refusal(ErrorKind.UNAVAILABLE, "The server is stopping. Send the request again.") from None

    async def end(self, grace_seconds: float) -> None:
        """Let them end by themselves, and end those that have not when the grace is over."""
        await self._ended(grace_seconds)
        for limit in self._limits:
            limit.reschedule(asyncio.get_running_loop().time())
        await self._ended(LAST_SECONDS)

    async def _ended(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
