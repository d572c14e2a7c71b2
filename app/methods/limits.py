"""What one principal may have at the same time, so that no one takes the service from the others.

The numbers are far above what people do: they stop a loop that has run wild. They are kept to roughly, without a lock.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.errors import ErrorKind, Refusal
from app.storage.store import Store

LIVE_TASKS = 100_000
INLINE_CALLS = 1_000
FRESH_SECONDS = 1.0
"""How long a count of live tasks is good for; those that are created meanwhile are added to it."""

KNOWN_OWNERS = 10_000
"""Counts that are kept; beyond it all are counted anew."""


@dataclass(slots=True)
class _Count:
    live: int
    until: float


class Limits:
    """Counts what principals have, and refuses them more.

    Args:
        store: where the tasks are counted.
        live_tasks: the most tasks of a principal that have not ended.
        inline_calls: the most calls of a principal that wait in this process for their answer.
    """

    def __init__(self, store: Store, *, live_tasks: int = LIVE_TASKS, inline_calls: int = INLINE_CALLS) -> None:
        self._store = store
        self._live_tasks, self._inline_calls = live_tasks, inline_calls
        self._counts: dict[str, _Count] = {}
        self._inline: Counter[str] = Counter()

    async def task(self, owner: str) -> None:
        """Count one more task in.

        Raises:
            Refusal: LIMIT, if the principal has as many as it may.
        """
        count = self._counts.get(owner)
        if count is None or count.until <= time.monotonic() or count.live >= self._live_tasks:
            count = await self._count(owner)
        if count.live >= self._live_tasks:
            raise Refusal(ErrorKind.LIMIT, f"Too many tasks: {self._live_tasks} have not ended; let some of them end")
        count.live += 1

    @contextmanager
    def inline(self, owner: str) -> Iterator[None]:
        """Count a call in that waits for its answer, for as long as this is entered.

        Raises:
            Refusal: LIMIT, if as many of the principal wait as may.
        """
        if self._inline[owner] >= self._inline_calls:
            raise Refusal(ErrorKind.LIMIT, f"Too many calls at once: {self._inline_calls} wait for their answers")
        self._inline[owner] += 1
        try:
            yield
        finally:
            self._inline[owner] -= 1
            if not self._inline[owner]:
                del self._inline[owner]

    async def _count(self, owner: str) -> _Count:
        live = await self._store.count_live(owner, self._live_tasks)
        if len(self._counts) >= KNOWN_OWNERS:
            self._counts.clear()
        self._counts[owner] = count = _Count(live, time.monotonic() + FRESH_SECONDS)
        return count
