"""Names the tool that blocks the event loop: it holds up all the others, and its author cannot know."""

from __future__ import annotations

import asyncio
import threading

import structlog

log = structlog.get_logger(__name__)

BLOCKED_SECONDS = 2.0
"""A handler that does not give the loop back for so long is told of."""


class LoopWatch:
    """A thread that asks the loop for a sign of life, and says who keeps it from giving one.

    Args:
        loop: the worker's.
        seconds: how long the loop may be silent.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float = BLOCKED_SECONDS) -> None:
        self._loop = loop
        self._seconds = seconds
        self._alive = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="perdure-loop-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        told = False
        self._ask()
        while not self._stop.wait(self._seconds):
            if self._alive.is_set():
                told = False
                self._ask()
            elif not told:
                told = True
                task = asyncio.current_task(self._loop)
                by = "something" if task is None else task.get_name()
                log.warning("the event loop is blocked; use a `def` tool or a thread for what does not await", by=by)

    def _ask(self) -> None:
        self._alive.clear()
        self._loop.call_soon_threadsafe(self._alive.set)
