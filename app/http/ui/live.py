"""Tells an open page that there is something new to see. The page then fetches itself again.

Woken by the same notifications as subscriptions; where none are heard, by the clock.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, suppress
from urllib.parse import parse_qsl

from aiohttp import web
from multidict import MultiDict

from app.errors import StoreUnavailable
from app.http.accept import SSE
from app.http.ui.desk import DESK, Desk
from app.http.ui.entrance import LEFT
from app.http.ui.looks import Look, Query, look
from app.http.ui.rendering import ROOT
from app.storage.watches import Watch

MOST = 200
"""So many pages of one process are told at once."""

REST_SECONDS = 1.0
"""So long after a look there is no other."""

LEISURE = 10
"""Nor for so many times as long as it took: what is costly to see is looked at less often."""

KEEPALIVE_SECONDS = 15.0
WRITE_SECONDS = 30.0
STREAM_SECONDS = 3600.0


class Live:
    """The streams of a process."""

    def __init__(self) -> None:
        self._open = 0

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Events `changed`, each with the digest of what there is to see, for the page that is named by its address.

        The page says which digest it shows, so that nothing is missed between it and the stream.
        """
        if self._open >= MOST:
            raise web.HTTPServiceUnavailable
        path, _, text = request.query.get("page", "").partition("?")
        if not path.startswith(f"{ROOT}/"):
            raise web.HTTPNotFound
        place, query = path.removeprefix(ROOT), MultiDict(parse_qsl(text))
        desk, seen = request.app[DESK], request.query.get("seen", "")
        first = await look(desk.operator, place, query)
        response = web.StreamResponse(headers={"Content-Type": SSE, "X-Accel-Buffering": "no"})
        self._open += 1
        try:
            await response.prepare(request)
            with suppress(ConnectionError, TimeoutError), _watching(desk, first) as watch:
                async with asyncio.timeout(min(request[LEFT], STREAM_SECONDS)):
                    await _tell(response, desk, watch, place, query, seen)
        finally:
            self._open -= 1
        return response


def _watching(desk: Desk, first: Look) -> AbstractContextManager[Watch]:
    return desk.watches.on_any() if first.task_id is None else desk.watches.on(first.task_id)


async def _tell(response: web.StreamResponse, desk: Desk, watch: Watch, place: str, query: Query, seen: str) -> None:
    loop = asyncio.get_running_loop()
    said_at = loop.time()
    await _write(response, b"retry: 2000\n\n")
    while not desk.closing.is_set():
        looked_at = loop.time()
        digest = await _digest(desk, place, query)
        rest = max(REST_SECONDS, LEISURE * (loop.time() - looked_at))
        if digest is not None and digest != seen:
            seen = digest
            await _write(response, f"event: changed\ndata: {digest}\n\n".encode())
            said_at = loop.time()
        elif loop.time() - said_at >= KEEPALIVE_SECONDS:
            await _write(response, b": here\n\n")
            said_at = loop.time()
        with suppress(TimeoutError):
            async with asyncio.timeout(rest):
                await desk.closing.wait()
        await _until_changed(desk, watch)


async def _until_changed(desk: Desk, watch: Watch) -> None:
    waits = asyncio.create_task(watch.wait()), asyncio.create_task(desk.closing.wait())
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _digest(desk: Desk, place: str, query: Query) -> str | None:
    """None where there is nothing to see just now: the task was purged, or the database is away."""
    try:
        return (await look(desk.operator, place, query)).digest
    except web.HTTPNotFound:
        return "gone"
    except (StoreUnavailable, TimeoutError):
        return None


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write(data)
