"""What the library that reads HTTP says about connections, and on them.

It reports every request that breaks the rules of HTTP as an error of ours, with a traceback: whoever reaches a port
could fill the log. And it answers such a request itself, with its own name and version.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from app.http.origins import SERVER

logger = logging.getLogger(__name__)
"""For the runners of all servers: faults of ours pass, bad requests do not."""


class Connection(web.RequestHandler):
    """Speaks HTTP with one client."""

    __slots__ = ("_act", "_act_at", "_timer", "_timer_at")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._act: Callable[[], object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._act_at = self._timer_at = 0.0

    def remind(self, seconds: float, act: Callable[[], object]) -> None:
        """Call `act` after so many seconds, unless it is forgotten before. There is one at a time.

        A timer for each request would cost as much as its log line: one that is there goes on, and looks when it rings.
        """
        loop = asyncio.get_running_loop()
        self._act, self._act_at = act, loop.time() + seconds
        if self._timer is not None and self._timer_at > self._act_at:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._ring_at(self._act_at)

    def forget(self) -> None:
        """What there was to be reminded of is done."""
        self._act = None

    def _ring_at(self, moment: float) -> None:
        self._timer, self._timer_at = asyncio.get_running_loop().call_at(moment, self._ring), moment

    def _ring(self) -> None:
        self._timer = None
        if self._act is not None and self._timer_at >= self._act_at:
            act, self._act = self._act, None
            act()
        elif self._act is not None:
            self._ring_at(self._act_at)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client has left, or was hung up on."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer to what is no request, and to one that has failed."""
        response = super().handle_error(request, status, exc, message)
        response.headers[hdrs.SERVER] = SERVER
        return response


def _is_bad_request(record: logging.LogRecord) -> bool:
    return record.exc_info is not None and isinstance(record.exc_info[1], HttpProcessingError)


logger.addFilter(lambda record: not _is_bad_request(record))
