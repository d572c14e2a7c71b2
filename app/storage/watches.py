"""Waiting for tasks to change: woken by notifications where they are heard, by the clock where they are not.

A notification is a hint that can be lost; the row is the truth. So whoever waits registers first, then reads the row,
and reads it again after each wait:

    with watches.on(task_id) as watch:
        while not ended(await store.get(owner, task_id)):
            await watch.wait()
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import ceil
from uuid import UUID

from app.storage.listener import Listener

HEARING_SECONDS = 5.0
"""How often a waiter looks for itself though notifications are heard."""

FIRST_SECONDS = 0.05
"""How soon a waiter for one task looks for itself at first where none are."""

TICKS = 50
"""Those who wait for many tasks look at one of so many moments between two looks: several at once read together."""


class Watches:
    """Those in this process who wait for tasks to change.

    Args:
        listener: hears of changes; None leaves it all to polling.
        poll_seconds: the longest time between two looks while nothing is heard.
    """

    def __init__(self, listener: Listener | None, *, poll_seconds: float = 1.0) -> None:
        self._listener = listener
        self._poll_seconds = poll_seconds
        self._waiting: dict[UUID, set[Watch | Changes]] = {}
        self._curious: set[Watch] = set()
        if listener is not None:
            listener.on_changed(self._changed, self._gap)

    @contextmanager
    def on(self, task_id: UUID) -> Iterator[Watch]:
        """Watch a task for as long as this is entered. Enter it before the task's row is read."""
        watch = Watch(self._listener, self._poll_seconds)
        self.add(task_id, watch)
        try:
            yield watch
        finally:
            self.discard(task_id, watch)

    @contextmanager
    def on_any(self) -> Iterator[Watch]:
        """Watch all tasks, whichever they are, for as long as this is entered. Enter it before they are read."""
        watch = Watch(self._listener, self._poll_seconds)
        self._curious.add(watch)
        try:
            yield watch
        finally:
            self._curious.discard(watch)

    @contextmanager
    def on_all(self, task_ids: Iterable[UUID]) -> Iterator[Changes]:
        """Watch many tasks for as long as this is entered. At first all of them have changed."""
        changes = Changes(self, task_ids, self._listener, self._poll_seconds)
        try:
            yield changes
        finally:
            changes.forget(*changes.watched)

    def add(self, task_id: UUID, waiter: Watch | Changes) -> None:
        """Tell this waiter from now on when the task has changed."""
        self._waiting.setdefault(task_id, set()).add(waiter)

    def discard(self, task_id: UUID, waiter: Watch | Changes) -> None:
        """Tell this waiter no longer."""
        self._waiting[task_id].discard(waiter)
        if not self._waiting[task_id]:
            del self._waiting[task_id]

    def _changed(self, task_id: UUID) -> None:
        for waiter in (*self._waiting.get(task_id, ()), *self._curious):
            waiter.changed(task_id)

    def _gap(self) -> None:
        """Nobody knows what was told meanwhile: all look for themselves."""
        for waiter in self._curious.union(*self._waiting.values()):
            waiter.look()


class Watch:
    """One who waits for one task, or for any. Made by `Watches.on` and `Watches.on_any`."""

    def __init__(self, listener: Listener | None, poll_seconds: float) -> None:
        self._listener = listener
        self._poll_seconds = poll_seconds
        self._woken = asyncio.Event()
        self._pause = FIRST_SECONDS

    def changed(self, _: UUID) -> None:
        """The task has changed."""
        self._woken.set()

    def look(self) -> None:
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


class Changes:
    """One who waits for many tasks, and keeps which of them may have changed: a set, however often they do.

    Made by `Watches.on_all`.
    """

    def __init__(
        self, watches: Watches, task_ids: Iterable[UUID], listener: Listener | None, poll_seconds: float
    ) -> None:
        self._watches = watches
        self._listener = listener
        self._poll_seconds = poll_seconds
        self._loop = asyncio.get_running_loop()
        self.watched = set(task_ids)
        """The tasks that are waited for."""
        self._dirty = set(self.watched)
        self._woken = asyncio.Event()
        self._polled_at = self._loop.time()
        for task_id in self.watched:
            watches.add(task_id, self)

    def changed(self, task_id: UUID) -> None:
        """This task has changed."""
        self._dirty.add(task_id)
        self._woken.set()

    def look(self) -> None:
        """All of them may have changed."""
        self._polled_at = self._loop.time()
        self._dirty |= self.watched
        self._woken.set()

    def wake(self) -> None:
        """Let the wait end, though nothing has changed."""
        self._woken.set()

    def forget(self, *task_ids: UUID) -> None:
        """Wait for these no longer."""
        for task_id in task_ids:
            self.watched.discard(task_id)
            self._dirty.discard(task_id)
            self._watches.discard(task_id, self)

    def take(self, limit: int) -> list[UUID]:
        """Some of the tasks that may have changed since they were last taken; read them now."""
        return [self._dirty.pop() for _ in range(min(limit, len(self._dirty)))]

    async def wait(self, seconds: float) -> None:
        """Return when some of them may have changed since they were last taken, and at the latest after `seconds`.

        When it is time to poll, all of them may have. That comes though single ones change all the time.
        """
        pause = self._poll_at() - self._loop.time()
        if pause <= 0:
            self.look()
        try:
            async with asyncio.timeout(min(max(pause, 0), seconds)):
                await self._woken.wait()
        except TimeoutError:
            if self._poll_at() <= self._loop.time():
                self.look()
        self._woken.clear()

    def _poll_at(self) -> float:
        hearing = self._listener is not None and self._listener.hearing
        pause = HEARING_SECONDS if hearing else self._poll_seconds
        tick = pause / TICKS
        return ceil((self._polled_at + pause) / tick) * tick
