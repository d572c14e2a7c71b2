"""What an attempt tells of how it gets on: written at once, and of what comes too fast only the newest."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog

from app.errors import StaleAttempt, StoreUnavailable, UsageError

log = structlog.get_logger(__name__)

REPORT_SECONDS = 0.25
"""An attempt writes no more often than this, however often it has something to say."""

STATUS_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Report:
    """A status message, and how much is done; None where it does not say, and what was said before stands."""

    message: str
    progress: float | None = None
    total: float | None = None

    def after(self, earlier: Report | None) -> Report:
        """What stands once both are told."""
        if earlier is None or self.progress is not None:
            return self
        return replace(self, progress=earlier.progress, total=earlier.total)


class Reports:
    """Writes the reports of one attempt.

    Args:
        write: stores one.
        stale: called when the task is found to be no longer this attempt's while nobody waits for the write.
    """

    def __init__(self, write: Callable[[Report], Awaitable[object]], stale: Callable[[], object]) -> None:
        self._write = write
        self._stale = stale
        self._waiting: Report | None = None
        self._due = 0.0
        self._writing = asyncio.Lock()
        self._later: asyncio.Task[None] | None = None

    async def put(self, report: Report) -> None:
        """Write a report if none was written just now; else it is written in time, unless a newer one takes its place.

        Raises:
            StaleAttempt: the task is no longer this attempt's.
        """
        self._waiting = report.after(self._waiting)
        if self._later is None or self._later.done():
            if time.monotonic() >= self._due and not self._writing.locked():
                await self.flush()
                return
            self._later = asyncio.create_task(self._write_later())
        await asyncio.sleep(0)  # a handler that computes and reports would never let go of the loop

    async def flush(self) -> None:
        """Write what waits, now.

        Raises:
            StaleAttempt: the task is no longer this attempt's.
        """
        if self._waiting is None and not self._writing.locked():
            return
        async with self._writing:
            if (report := self._take()) is None:
                return
            self._due = time.monotonic() + REPORT_SECONDS
            try:
                await self._write(report)
            except asyncio.CancelledError:  # perhaps it was written, perhaps not
                self._waiting = report if self._waiting is None else self._waiting.after(report)
                raise

    def _take(self) -> Report | None:
        report, self._waiting = self._waiting, None
        return report

    @property
    def quiet(self) -> bool:
        """Whether nothing waits to be written, or is just being written."""
        return self._waiting is None and not self._writing.locked()

    async def flush_unheard(self) -> None:
        """Write what waits, now, where nobody is there to be told of a fault."""
        try:
            await self.flush()
        except StaleAttempt:
            self._stale()
        except StoreUnavailable:
            log.warning("status not written: the task store cannot be reached")
        except Exception:
            log.exception("status not written")

    def close(self) -> None:
        """Write nothing more by itself."""
        if self._later is not None:
            self._later.cancel()

    async def _write_later(self) -> None:
        while self._waiting is not None:
            await asyncio.sleep(max(0.0, self._due - time.monotonic()))
            await self.flush_unheard()


def progress_report(done: float, total: float | None, message: str | None) -> Report:
    """A report of progress; without a message of its own it says how much is done.

    Raises:
        UsageError: a number is none or is not finite, total is not positive, or the message cannot be told.
    """
    if total is not None and _finite("total", total) <= 0:
        raise UsageError("The total of ctx.progress() is greater than 0, or None where it is not known.")
    shown = _shown(_finite("done", done)) + ("" if total is None else f" of {_shown(total)}")
    return Report(checked_message(shown if message is None else message), done, total)


def checked_message(text: str) -> str:
    """The text of a status message.

    Raises:
        UsageError: it is empty, too long, or has characters that cannot be stored.
    """
    if not 0 < len(text) <= STATUS_CHARACTERS:
        raise UsageError(f"A status message is a text of 1 to {STATUS_CHARACTERS} characters.")
    if "\x00" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise UsageError("A status message cannot hold the character NUL or half of a surrogate pair.")
    return text


def _finite(name: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            if math.isfinite(value):
                return value
    raise UsageError(f"ctx.progress() takes finite numbers: {name} is none.")


def _shown(value: float) -> str:
    """A number as people write it: whole ones in full, others to six places, none with an exponent."""
    return f"{value:.6f}".rstrip("0").rstrip(".")
