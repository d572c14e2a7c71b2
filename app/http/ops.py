"""The port for operators: health, metrics, and what other modules add. It is the first to start and the last to stop.

/livez    200 while the event loop answers, and nothing else
/readyz   200 while the process should be given work, else 503; the body names each check
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from app.http import connections
from app.http.guards import Guard
from app.http.origins import name_server
from app.http.readiness import Readiness
from app.wire.headers import Head

log = structlog.get_logger(__name__)

STOP_SECONDS = 1.0
"""How long answers that are under way get when the process ends."""

MAX_BODY = 1024 * 1024
"""Bytes of a request."""


class Ops:
    """Serves operators on an address of its own.

    It starts before what its routes show is there: a handler whose parts are still missing answers 503.

    Args:
        readiness: what /readyz says.
        guard: refuses requests from the wrong place.
        routes: further ones.
        pages: applications of their own, by the path that they live under, such as `/ui`. What they keep open they
            end in their `on_shutdown`.
    """

    def __init__(
        self,
        readiness: Readiness,
        guard: Guard | None = None,
        *,
        routes: Iterable[web.AbstractRouteDef] = (),
        pages: Mapping[str, web.Application] | None = None,
    ) -> None:
        self._readiness = readiness
        app = web.Application(client_max_size=MAX_BODY, middlewares=[_guarded(guard or Guard(addresses=True))])
        app.add_routes([web.get("/livez", self._live), web.get("/readyz", self._ready), *routes])
        for path, page in (pages or {}).items():
            app.add_subapp(path, page)
        app.on_response_prepare.append(name_server)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=STOP_SECONDS, logger=connections.logger
        )

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which the system chose if 0 was given.

        Raises:
            OSError: the address cannot be had.
        """
        await self._runner.setup()
        try:
            site = web.TCPSite(self._runner, host, port)
            await site.start()
        except BaseException:
            await self._runner.cleanup()
            raise
        return site.port

    async def stop(self) -> None:
        """Answer no longer."""
        await self._runner.cleanup()

    async def _live(self, _: web.Request) -> web.Response:
        return _fresh(web.json_response({"live": True}))

    async def _ready(self, _: web.Request) -> web.Response:
        ready, body = await self._readiness.look()
        return _fresh(web.json_response(body, status=200 if ready else 503))


def _fresh(response: web.Response) -> web.Response:
    response.headers["Cache-Control"] = "no-store"
    return response


def _guarded(guard: Guard) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        objection = guard.objection(Head(request.headers.items()))
        if objection is not None:
            raise web.HTTPForbidden(text=objection)
        return await handler(request)

    return check
