"""How every background loop goes round: a plain function as its body, an interval, and no silent death."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from app.domain.pace import rest
from app.errors import StoreUnavailable
from app.telemetry.metrics import LOOP_FAILURES

log = structlog.get_logger(__name__)

LONGEST_PAUSE_SECONDS = 60.0


async def repeat(name: str, seconds: float, body: Callable[[], Awaitable[object]], *, rests: bool = False) -> None:
    """Run body again and again, every so many seconds, until this is cancelled.

    A body that fails is logged and tried again after a pause that doubles with each failure in a row. One
    that `rests` is given a longer rest where it took long and says that there was nothing (0) to do.
    """
    failures, counted = 0, LOOP_FAILURES.labels(name)
    while True:
        began, pause = time.monotonic(), seconds
        try:
            if await body() == 0 and rests:
                pause = rest(seconds, time.monotonic() - began)
            failures = 0
        except StoreUnavailable:
            failures += 1
            counted.inc()
        except Exception:
            failures += 1
            counted.inc()
            log.exception("background loop failed", loop=name, failures=failures)
        await asyncio.sleep(min(pause * 2**failures, max(pause, LONGEST_PAUSE_SECONDS)))
