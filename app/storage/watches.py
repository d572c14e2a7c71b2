"""Waiting for a task to change: woken by notifications where they are heard, by the clock where they are not.

A notification is a hint that can be lost; the row is the truth. So whoever waits registers first, then reads the row,
and reads it again after each wait:

    with watches.on(task_id) as watch:
        while not ended(await store.get(owner, task_id)):
            await watch.wait()
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from app.storage.listener import Listener

HEARING_SECONDS = 5.0
"""How often a waiter looks for itself though notifications are heard."""

FIRST_SECONDS = 0.05
"""How soon a waiter looks for itself at first where none are."""


class Watches:
    """Those in this process who wait for tasks to change.

    Args:
        listener: hears of changes; None leaves it all to polling.
        poll_seconds: the longest time between two looks while nothing is heard.
    """

    def __init__(self, listener: Listener | None, *, poll_seconds: float = 1.0) -> None:
        self._listener = listener
        self._poll_seconds = poll_seconds
        self._waiting: dict[UUID, set[Watch]] = {}
        if listener is not None:
            listener.on_changed(self._changed, self._gap)

    @contextmanager
    def on(self, task_id: UUID) -> Iterator[Watch]:
        """Watch a task for as long as this is entered. Enter it before the task's row is read."""
        watch = Watch(self._listener, self._poll_seconds)
        self._waiting.setdefault(task_id, set()).add(watch)
        try:
            yield watch
        finally:
            self._waiting[task_id].discard(watch)
            if not self._waiting[task_id]:
                del self._waiting[task_id]

    def _changed(self, task_id: UUID) -> None:
        for watch in self._waiting.get(task_id, ()):
            watch.wake()

    def _gap(self) -> None:
        """Nobody knows what was told meanwhile: all look for themselves."""
        for watches in self._waiting.values():
            for watch in watches:
                watch.wake()


class Watch:
    """One who waits for one task. Made by `Watches.on`."""

    def __init__(self, listener: Listener | None, poll_seconds: float) -> None:
        self._listener = listener
        self._poll_seconds = poll_seconds
        self._woken = asyncio.Event()
        self._pause = FIRST_SECONDS

    def wake(self) -> None:
        """The task may have changed."""
        self._woken.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Return when the task may have changed since the last wait, and at the latest after `seconds`.

        It may have when a notification said so, when some may have been missed, and when it is time to poll.
        """
        limit = self._until_poll()
        try:
            async with asyncio.timeout(limit if seconds is None else min(limit, seconds)):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    def _until_poll(self) -> float:
        if self._listener is not None and self._listener.hearing:
            self._pause = FIRST_SECONDS
            return HEARING_SECONDS
        pause = min(self._pause, self._poll_seconds)
        self._pause = pause * 2
        return pause
