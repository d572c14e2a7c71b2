"""How far back a claim looks for tasks that wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from app.domain.pace import LONGEST_SECONDS, rest
from app.domain.task import EVER

REACHES = (*(timedelta(seconds=seconds) for seconds in (0.1, 1, 10, 100)), None)
"""So long before the oldest task that the last claim found; None: all that there is."""

AGAIN_SECONDS = 0.5
"""So often claims look further back than the shortest reach, each as far as has its turn."""


class LookBack:
    """From when on each claim of a worker looks.

    Before the oldest task that the last claim found there are only rows that are dead, as many as were claimed since
    the oldest transaction in the database began, and tasks whose commit took longer than that of others. The later such
    a commit came, the more rows there may be to read, so each reach has its turn by what it cost the last time, and at
    the latest after the time that it reaches back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._oldest, self._usual = EVER, 0.0
        self._due = [0.0] * len(REACHES)
        self._reach = 0

    def since(self) -> datetime:
        """From when on the claim that comes now looks."""
        now = self._clock()
        self._reach = max((at for at, due in enumerate(self._due) if due <= now), default=0)
        reach = REACHES[self._reach]
        return EVER if reach is None else self._oldest - reach

    def looked(self, began: float, oldest: datetime) -> None:
        """The claim that `since` was for has looked.

        Args:
            began: when, by the clock.
            oldest: since when the first task that it saw had waited.
        """
        now, reach = self._clock(), REACHES[self._reach]
        if self._reach == 0:
            self._usual = now - began  # whatever the reach: the way there and back, the rows that were claimed
        longest = LONGEST_SECONDS if reach is None else min(LONGEST_SECONDS, reach.total_seconds())
        self._due[: self._reach] = [max(due, now + AGAIN_SECONDS) for due in self._due[: self._reach]]
        self._due[self._reach] = now + rest(AGAIN_SECONDS, now - began - self._usual, longest=longest)
        self._oldest = oldest

    @property
    def complete(self) -> bool:
        """Whether the last look passed nothing over."""
        return REACHES[self._reach] is None
