"""What every process has, whatever it is for: its event loop, its signals, its background loops, and how it leaves.

The first SIGTERM or SIGINT stops gracefully, the second leaves at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any, NoReturn, Self, TypeVar

import structlog

from app.telemetry import logs
from app.worker.maintenance.loop import repeat

log = structlog.get_logger(__name__)

T = TypeVar("T")

GARBAGE = 50_000
"""So many new objects make the garbage collector look at them: more than a thousand attempts and requests hold, which
leave no cycles themselves."""

RESTART_SECONDS = 1.0
"""After so long a background loop that has died is started again; twice as long after each further death in a row."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run this as the process's work, on uvloop where that is installed."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(work)


class Signals:
    """What SIGTERM and SIGINT do while this is entered.

    Python itself handles them, not the event loop: a tool that blocks that must not keep the second one from leaving.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        main = asyncio.current_task()
        # What is only starting has nothing to finish: it is cancelled.
        self._stop: Callable[[], object] = main.cancel if main else lambda: None
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def on_stop(self, stop: Callable[[], object]) -> None:
        """From now on, call this for the first signal."""
        self._stop = stop

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _received(self, number: int, _: FrameType | None) -> None:
        if self._asked:
            logs.flush()
            os._exit(128 + number)
        self._asked = True
        self._loop.call_soon_threadsafe(lambda: self._stop())


@asynccontextmanager
async def background(name: str, loop: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run a loop beside all else; if it dies, it is logged and started again, after a pause that grows."""
    task = asyncio.create_task(repeat(name, RESTART_SECONDS, loop))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def spare_the_collector() -> None:
    """What is there when a process has started stays: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)


def leave(code: int) -> NoReturn:
    """End the process though handlers still run: leaving in the ordinary way would wait for their threads."""
    log.warning("leaving handlers behind that did not end")
    os._exit(code)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
