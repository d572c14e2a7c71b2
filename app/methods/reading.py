"""Reads tasks for all the streams of a process: what they want while one reading is under way is read by the next.

A reading starts at once when there is none. None is shared with who came after its start: it may be older than the
change that they have heard of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

import structlog

from app.domain.task import Json
from app.storage.rows import Newer
from app.storage.store import Store
from app.wire.tasks import task_view

log = structlog.get_logger(__name__)

TASKS = 500
"""About how many tasks one statement reads."""


@dataclass(frozen=True, slots=True)
class Current:
    """A task as it is now.

    Attributes:
        view: as the client sees it; None where its outcome is so large that it is to be read by itself.
        last: True in a state that the task never leaves.
    """

    task_id: UUID
    version: int
    view: Json | None
    last: bool


@dataclass(frozen=True, slots=True)
class _Wish:
    owner: str
    known: Mapping[UUID, int]
    found: asyncio.Future[list[Current]]

    def grant(self, read: Mapping[tuple[str, UUID], Current]) -> None:
        if not self.found.done():
            there = [read.get((self.owner, task_id)) for task_id in self.known]
            self.found.set_result([it for it in there if it is not None and it.version > self.known[it.task_id]])

    def fail(self, error: Exception) -> None:
        if not self.found.done():
            self.found.set_exception(error)


class Reader:
    """Reads tasks together.

    Args:
        store: where the tasks are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wishes: list[_Wish] = []
        self._reading: asyncio.Task[None] | None = None

    async def newer(self, owner: str, known: Mapping[UUID, int]) -> list[Current]:
        """Those of an owner's tasks that now have a higher version than is known, by id.

        Raises:
            StoreUnavailable: the database could not be reached in time.
        """
        wish = _Wish(owner, known, asyncio.get_running_loop().create_future())
        self._wishes.append(wish)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        return await wish.found

    async def _read(self) -> None:
        while wishes := self._next():
            oldest: dict[tuple[str, UUID], int] = {}
            for wish in wishes:
                for task_id, version in wish.known.items():
                    key = wish.owner, task_id
                    oldest[key] = min(version, oldest.get(key, version))
            try:
                read = await self._store.newer(oldest)
                found = {
                    (newer.state.task.owner, newer.state.task.task_id): current
                    for newer in read
                    if (current := _current(newer))
                }
            except Exception as error:  # noqa: BLE001  # it is for those who wait
                for wish in wishes:
                    wish.fail(error)
            else:
                for wish in wishes:
                    wish.grant(found)

    def _next(self) -> list[_Wish]:
        """The oldest wishes, so many that they make about one statement."""
        waiting = [wish for wish in self._wishes if not wish.found.done()]
        taken, size = 0, 0
        while taken < len(waiting) and size < TASKS:
            size += len(waiting[taken].known)
            taken += 1
        self._wishes = waiting[taken:]
        return waiting[:taken]


def _current(newer: Newer) -> Current | None:
    """What is sent of a task. One that cannot be shown is passed over: it must not keep back the others."""
    task = newer.state.task
    try:
        view = None if newer.omitted else task_view(newer.state)
    except ValueError:
        log.exception("a task cannot be shown")
        return None
    return Current(task.task_id, task.version, view, task.status.terminal)
