"""What a process shows operators, from its first moment to its last: a port, and behind it health and metrics, to which
its parts are added as they come to be there."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import structlog
from aiohttp import web
from pydantic import SecretStr

from app.errors import SettingsError
from app.http.guards import Guard
from app.http.ops import Ops
from app.http.readiness import Check, Readiness, shared_checks
from app.http.scrape import Scrape
from app.http.ui.desk import LOOK_SECONDS
from app.http.ui.rendering import ROOT
from app.http.ui.site import Site
from app.storage.database import Database
from app.storage.health import Health
from app.storage.listener import Listener
from app.storage.notifier import Notifier
from app.storage.operator import Operator
from app.storage.watches import Watches
from app.telemetry import metrics
from app.version import __version__

log = structlog.get_logger(__name__)

PAGES_CONNECTIONS = 4
"""Apart from those for requests: neither keeps the other from the database."""


class Operations:
    """The port for operators of one process.

    Args:
        role: serve, worker or dev.
        guard: refuses requests from the wrong place.
        password: what operators log in with to the pages; None for no pages.
    """

    def __init__(self, role: str, guard: Guard | None = None, password: SecretStr | None = None) -> None:
        self.ready, self.scrape = Readiness(), Scrape()
        self._role = role
        self._site = None if password is None else Site(password.get_secret_value())
        pages = None if self._site is None else {ROOT: self._site.app}
        self._ops = Ops(self.ready, guard, routes=[web.get("/metrics", self.scrape.handle)], pages=pages)
        metrics.show_build(__version__, role)

    async def listen(self, host: str, port: int, *, required: bool) -> None:
        """Answer from now on.

        Args:
            required: the port was asked for, since probes and scrapers go there. A default one that is taken, by
                another process on this machine, is passed over.

        Raises:
            SettingsError: it cannot be had.
        """
        try:
            bound = await self._ops.start(host, port)
        except OSError as refused:
            if refused.errno == errno.EADDRINUSE and not required:
                says = "no health and no metrics: the default port is taken; PERDURE_OPS_PORT sets another"
                log.warning(says, port=port)
                return
            raise SettingsError(
                f"The operations port cannot listen on {authority(host)}:{port} ({reason(refused)}): "
                "choose another with PERDURE_OPS_HOST and PERDURE_OPS_PORT"
            ) from refused
        log.info("answering operators", url=f"http://{authority(host)}:{bound}")

    async def stop(self) -> None:
        """Answer no longer."""
        await self._ops.stop()

    @asynccontextmanager
    async def showing(
        self, url: str, pools: Mapping[str, Database], listener: Listener | None
    ) -> AsyncIterator[dict[str, Check]]:
        """Show the database and what leads to it while this is entered; gives the checks of it."""
        health = Health(url, name=f"perdure {self._role} health")
        self.scrape.health, self.scrape.listener, self.scrape.pools = health, listener, pools
        try:
            yield shared_checks(health, listener)
        finally:
            self.ready.stopping()
            self.scrape.health = None
            await health.close()

    @asynccontextmanager
    async def pages(self, like: Database, notifier: Notifier | None, watches: Watches) -> AsyncIterator[None]:
        """Let the pages, where there are any, show and do something while this is entered.

        Args:
            like: the database, as others of the process reach it.
        """
        if self._site is None:
            yield
            return
        async with Database(
            like.url,
            name=f"perdure {self._role} pages",
            connections=PAGES_CONNECTIONS,
            statement_seconds=LOOK_SECONDS,
            pooled=like.pooled,
            by_index=False,
        ) as database:
            with self._site.desk.staffed(Operator(database, notifier), watches):
                yield


def authority(host: str) -> str:
    """A host as it is written before a port."""
    return f"[{host}]" if ":" in host else host


def reason(refused: OSError) -> str:
    """Why an address cannot be had."""
    return os.strerror(refused.errno) if refused.errno and refused.errno > 0 else str(refused)
