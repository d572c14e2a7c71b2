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
        self._within: set[UntilStopped] = set()

    def until_stopped(self) -> UntilStopped:
        """Answer a request in here: what it awaits is cancelled when the server stops."""
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a request is answered in a task")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return UntilStopped(task, self._within)

    async def end(self, grace_seconds: float) -> None:
        """Let them end by themselves, and end those that have not when the grace is over."""
        await self._ended(grace_seconds)
        for request in self._within:
            request.end()
        await self._ended(LAST_SECONDS)

    async def _ended(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)


class UntilStopped:
    """Surrounds the answering of a request; made by `OpenRequests.until_stopped`. It is what asyncio.timeout is, for an
    end that comes by itself once in a server's life.

    Raises:
        Refusal: UNAVAILABLE, the server has stopped, and what was awaited has ended.
    """

    __slots__ = ("_before", "_stopped", "_task", "_within")

    def __init__(self, task: asyncio.Task[Any], within: set[UntilStopped]) -> None:
        self._task, self._within, self._before, self._stopped = task, within, task.cancelling(), False

    def __enter__(self) -> None:
        """The server may stop from now on."""
        self._within.add(self)

    def end(self) -> None:
        """The server stops."""
        self._stopped = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It has been answered, or the server has stopped."""
        self._within.discard(self)
        if self._stopped and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise Refusal(ErrorKind.UNAVAILABLE, "The server is stopping. Send the request again.") from None
