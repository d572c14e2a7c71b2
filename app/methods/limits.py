"""What one principal may have at the same time, and how often it may call, so that none takes the service from others.

The numbers are far above what people do: they stop a loop that has run wild. They are kept to roughly, without a lock.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.domain.pace import rest
from app.errors import ErrorKind, Refusal
from app.storage.store import Store

LIVE_TASKS = 100_000
CALLS_PER_MINUTE = 120_000
INLINE_CALLS = 1_000
STREAMS = 1_000
STREAM_TASKS = 1_000
FRESH_SECONDS = 1.0
"""How long a count of live tasks is good for, or longer if it took long; those that are created meanwhile are added."""

KNOWN_OWNERS = 10_000
"""Counts that are kept; beyond it all are counted anew."""


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


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
        streams: the most subscriptions of a principal that are open in this process.
        stream_tasks: the most tasks that one subscription may name.
        calls_per_minute: how many tools a principal may call in this process, a minute's worth of them at once. What
            only reads is not counted.
    """

    def __init__(
        self,
        store: Store,
        *,
        live_tasks: int = LIVE_TASKS,
        inline_calls: int = INLINE_CALLS,
        streams: int = STREAMS,
        stream_tasks: int = STREAM_TASKS,
        calls_per_minute: int = CALLS_PER_MINUTE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._live_tasks, self._inline_calls, self._streams = live_tasks, inline_calls, streams
        self._stream_tasks, self._calls_per_minute, self._clock = stream_tasks, calls_per_minute, clock
        self._buckets: dict[str, _Bucket] = {}
        self._counts: dict[str, _Count] = {}
        self._calling: Counter[str] = Counter()
        self._streaming: Counter[str] = Counter()

    @property
    def open_streams(self) -> int:
        """Subscriptions that are open in this process."""
        return self._streaming.total()

    @property
    def waiting_calls(self) -> int:
        """Calls that wait in this process for their answer."""
        return self._calling.total()

    def call(self, owner: str) -> None:
        """Count one more call of a tool in (core, "Tools", "Security Considerations").

        Raises:
            Refusal: LIMIT, if the principal has called too often.
        """
        now, most = self._clock(), self._calls_per_minute
        bucket = self._buckets.get(owner)
        if bucket is None:
            bucket = self._new_bucket(owner, now)
        bucket.left = min(most, bucket.left + (now - bucket.at) * most / 60)
        bucket.at = now
        if bucket.left < 1:
            raise Refusal(ErrorKind.LIMIT, f"Too many calls: {most} a minute are allowed; call more slowly")
        bucket.left -= 1

    async def task(self, owner: str) -> None:
        """Count one more task in.

        Raises:
            Refusal: LIMIT, if the principal has as many as it may.
        """
        count, now = self._counts.get(owner), time.monotonic()
        if count is None or count.until <= now or count.live >= self._live_tasks:
            if count is not None:
                count.until = now + FRESH_SECONDS  # one of those who come at once counts for all of them
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
        if self._calling[owner] >= self._inline_calls:
            raise Refusal(ErrorKind.LIMIT, f"Too many calls at once: {self._inline_calls} wait for their answers")
        with _counted(self._calling, owner):
            yield

    @contextmanager
    def stream(self, owner: str, tasks: int) -> Iterator[None]:
        """Count a subscription to so many tasks in, for as long as this is entered.

        Raises:
            Refusal: INVALID_PARAMS for too many tasks, which no waiting would help; LIMIT, if as many subscriptions of
                the principal are open as may be.
        """
        if tasks > self._stream_tasks:
            says = f"names more than {self._stream_tasks} tasks; open several subscriptions"
            raise Refusal(ErrorKind.INVALID_PARAMS, f"Invalid params: params.notifications.taskIds {says}")
        if self._streaming[owner] >= self._streams:
            raise Refusal(ErrorKind.LIMIT, f"Too many subscriptions: {self._streams} are open; let some of them end")
        with _counted(self._streaming, owner):
            yield

    def _new_bucket(self, owner: str, now: float) -> _Bucket:
        if len(self._buckets) >= KNOWN_OWNERS:  # the oldest one is full again, or its owner gains a minute's worth
            del self._buckets[next(iter(self._buckets))]
        self._buckets[owner] = bucket = _Bucket(self._calls_per_minute, now)
        return bucket

    async def _count(self, owner: str) -> _Count:
        began = time.monotonic()
        live = await self._store.count_live(owner, self._live_tasks)
        if len(self._counts) >= KNOWN_OWNERS:
            self._counts.clear()
        now = time.monotonic()
        self._counts[owner] = count = _Count(live, now + rest(FRESH_SECONDS, now - began))
        return count


@contextmanager
def _counted(counter: Counter[str], owner: str) -> Iterator[None]:
    counter[owner] += 1
    try:
        yield
    finally:
        counter[owner] -= 1
        if not counter[owner]:
            del counter[owner]
