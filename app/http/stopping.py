"""How requests that are being answered end when the server stops."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from app.errors import ErrorKind, Refusal

LAST_SECONDS = 5.0
"""How long requests that were told to end may take to clean up and to send their reply."""


class OpenRequests:
    """The requests that are being answered, each in a task of its own."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._limits: set[asyncio.Timeout] = set()

    def until_stopped(self) -> UntilStopped:
        """Answer a request in here: what it awaits is cancelled when the server stops."""
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return UntilStopped(self._limits)

    async def end(self, grace_seconds: float) -> None:
        """Let them end by themselves, and end those that have not when the grace is over."""
        await self._ended(grace_seconds)
        for limit in self._limits:
            limit.reschedule(asyncio.get_running_loop().time())
        await self._ended(LAST_SECONDS)

    async def _ended(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)


class UntilStopped:
    """Surrounds the answering of a request; made by `OpenRequests.until_stopped`.

    Raises:
        Refusal: UNAVAILABLE, the server has stopped, and what was awaited has ended.
    """

    def __init__(self, limits: set[asyncio.Timeout]) -> None:
        self._limits, self._limit = limits, asyncio.timeout(None)

    async def __aenter__(self) -> None:
        """The server may stop from now on."""
        await self._limit.__aenter__()
        self._limits.add(self._limit)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It has been answered, or the server has stopped."""
        self._limits.discard(self._limit)
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            raise Refusal(ErrorKind.UNAVAILABLE, "The server is stopping. Send the request again.") from None
