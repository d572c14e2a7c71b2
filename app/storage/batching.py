"""Calls that come together, done together: one statement and one commit for all that arrived during the last one.

No call is held back for others to come. One that finds nothing under way is sent at once, alone; what arrives meanwhile
goes together in the next statement. So a batch is as large as the load makes it, and an idle process is as quick as
without.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Any, Generic, TypeVar

from app.errors import StoreUnavailable

A = TypeVar("A")
R = TypeVar("R")
Waiter = asyncio.Future[R] | Callable[[R | Exception], object]

MOST = 200
"""The most that go together, by default."""

LANES = 2
CROWD = 64
"""So many batches of writes are under way at once where that many calls wait: while one commits, the process prepares
the other. Fewer calls go together instead: a statement costs PostgreSQL as much as some ten rows of it."""

SLOW_SECONDS = 0.1
"""What has been under way for so long may never come back: what waits for it is sent by another lane."""


class Batches(Generic[A, R]):
    """Collects calls of one kind, and does them in batches.

    A caller that is cancelled stops waiting, and that is all: what it asked for is still done, and the others' as well.

    Args:
        work: does all of a batch, and returns what came of each, in the same order; an exception among it is for that
            call alone. Where it raises, nothing was done: the calls are then done one by one, so that each meets its
            own fault and no other's. A database that cannot be reached is all calls' fault at once.
        most: how much goes together.
        size: what a call counts for.
        lanes: how many batches are under way at once, where a crowd waits.
        wanted_only: drop a call whose caller has left before it was sent: for what changes nothing.
    """

    def __init__(
        self,
        work: Callable[[Sequence[A]], Awaitable[Sequence[R | Exception]]],
        *,
        most: int = MOST,
        size: Callable[[A], int] = lambda _: 1,
        lanes: int = 1,
        wanted_only: bool = False,
    ) -> None:
        self._work, self._most, self._size, self._wanted_only = work, most, size, wanted_only
        self._most_lanes = lanes
        self._lanes: dict[asyncio.Task[None], float] = {}  # since when each is at its batch
        self._hurry: asyncio.TimerHandle | None = None
        self._waiting: deque[tuple[A, Waiter[R]]] = deque()

    async def put(self, call: A) -> R:
        """Do this, with others where there are some; what came of it.

        Raises:
            Exception: what the work raises for this call.
        """
        outcome: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._add(call, outcome)
        return await outcome

    def put_soon(self, call: A, tell: Callable[[R | Exception], object]) -> None:
        """As `put`, for one who does not wait: the event loop calls `tell` with what came of it, or what it raised."""
        self._add(call, tell)

    def _add(self, call: A, waiter: Waiter[R]) -> None:
        self._waiting.append((call, waiter))
        self._see_to_it()

    def _see_to_it(self) -> None:
        """See that what waits is sent, now or in time."""
        loop = asyncio.get_running_loop()
        if not self._lanes or (len(self._lanes) < self._most_lanes and self._is_urgent(loop.time())):
            lane = asyncio.create_task(self._run(), context=Context())  # no caller's own: it works for all of them
            self._lanes[lane] = loop.time()
            lane.add_done_callback(self._leaves)
        elif len(self._lanes) < self._most_lanes and self._hurry is None:
            self._hurry = loop.call_later(SLOW_SECONDS, self._hurried)

    def _is_urgent(self, now: float) -> bool:
        """Whether what waits is not to wait for what is under way."""
        return len(self._waiting) >= CROWD or now - min(self._lanes.values()) >= SLOW_SECONDS

    def _hurried(self) -> None:
        self._hurry = None
        if self._waiting:
            self._see_to_it()

    def _leaves(self, lane: asyncio.Task[None]) -> None:
        self._lanes.pop(lane, None)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        lane: Any = asyncio.current_task()
        try:
            while batch := self._next():
                self._lanes[lane] = loop.time()
                calls = [call for call, _ in batch]
                for (_, waiter), came in zip(batch, await self._done(calls), strict=True):
                    if not isinstance(waiter, asyncio.Future):
                        loop.call_soon(waiter, came)
                    elif waiter.done():
                        continue
                    elif isinstance(came, Exception):
                        waiter.set_exception(came)
                    else:
                        waiter.set_result(came)
        finally:
            self._leaves(lane)  # here, not when the task is done: a call that comes in between would find no lane

    def _next(self) -> list[tuple[A, Waiter[R]]]:
        batch: list[tuple[A, Waiter[R]]] = []
        size = 0
        while self._waiting:
            call, waiter = self._waiting[0]
            if not (self._wanted_only and isinstance(waiter, asyncio.Future) and waiter.done()):
                size += self._size(call)
                if batch and size > self._most:
                    break
                batch.append((call, waiter))
            self._waiting.popleft()
        return batch

    async def _done(self, calls: Sequence[A]) -> Sequence[R | Exception]:
        try:
            return await self._work(calls)
        except StoreUnavailable as away:
            return [away] * len(calls)
        except Exception as fault:  # noqa: BLE001  # it is for those who wait
            if len(calls) == 1:
                return [fault]
        return [came for call in calls for came in await self._done([call])]
