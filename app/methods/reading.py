"""Reads tasks for all the streams of a process, together.

No reading is shared with who came after its start: it may be older than the change that they have heard of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog

from app.domain.task import Json
from app.storage.batching import Batches
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

    def granted(self, read: Mapping[tuple[str, UUID], Current]) -> list[Current]:
        there = [read.get((self.owner, task_id)) for task_id in self.known]
        return [it for it in there if it is not None and it.version > self.known[it.task_id]]


class Reader:
    """Reads tasks together.

    Args:
        store: where the tasks are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wishes = Batches(self._read, most=TASKS, size=lambda wish: len(wish.known), wanted_only=True)

    async def newer(self, owner: str, known: Mapping[UUID, int]) -> list[Current]:
        """Those of an owner's tasks that now have a higher version than is known, by id.

        Raises:
            StoreUnavailable: the database could not be reached in time.
        """
        return await self._wishes.put(_Wish(owner, known))

    async def _read(self, wishes: Sequence[_Wish]) -> list[list[Current]]:
        oldest: dict[tuple[str, UUID], int] = {}
        for wish in wishes:
            for task_id, version in wish.known.items():
                key = wish.owner, task_id
                oldest[key] = min(version, oldest.get(key, version))
        found = {
            (newer.state.task.owner, newer.state.task.task_id): current
            for newer in await self._store.newer(oldest)
            if (current := _current(newer))
        }
        return [wish.granted(found) for wish in wishes]


def _current(newer: Newer) -> Current | None:
    """What is sent of a task. One that cannot be shown is passed over: it must not keep back the others."""
    task = newer.state.task
    try:
        view = None if newer.omitted else task_view(newer.state)
    except ValueError:
        log.exception("a task cannot be shown")
        return None
    return Current(task.task_id, task.version, view, task.status.terminal)
