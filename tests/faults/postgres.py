"""The database server of a fault run: it can be killed, and comes back on the same port and data."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from app.embedded_pg import EmbeddedPostgres, EmbeddedPostgresError
from tests.faults.windows import Window

T = TypeVar("T")
RESTART_SECONDS = 60.0


class Postgres:
    """One server, started by `running`.

    Attributes:
        downs: when it was away.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._port = free_port()
        # The server ends with the thread that started it: this one lives as long as the run.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="postgres")
        self._server = self._new()
        self.downs: list[Window] = []

    @property
    def url(self) -> str:
        """The database's URL."""
        return self._server.url()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start it; at the end, stop it and delete its data, but not its log."""
        try:
            await self._in_thread(self._server.start)
            yield
        finally:
            self._thread.submit(lambda: self._server.stop())  # the one of then: a restart may be under way
            self._thread.shutdown()
            with suppress(FileNotFoundError):
                (self._root / "log").replace(self._root.with_name("postgres-log"))
            shutil.rmtree(self._root, ignore_errors=True)

    async def crash(self, how: signal.Signals, seconds: float) -> None:
        """Kill the postmaster, wait for so long, and start another one on the same data."""
        down = Window(time.time())
        self.downs.append(down)
        os.kill(self._server.pid, how)
        await self._in_thread(self._server.stop)
        await asyncio.sleep(seconds)
        await self._in_thread(self._restart)
        down.end = time.time()

    def _restart(self) -> None:
        """Start it, as soon as the backends of a killed postmaster have noticed and left."""
        end = time.monotonic() + RESTART_SECONDS
        while True:
            self._server = self._new()
            try:
                self._server.start()
            except EmbeddedPostgresError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
            else:
                return

    def _new(self) -> EmbeddedPostgres:
        """Processes are killed, the machine is not: nothing must be flushed to the disk, but all must be written."""
        settings = {"port": str(self._port), "fsync": "off", "max_connections": "200", "log_line_prefix": "%m [%p] %a "}
        return EmbeddedPostgres(self._root, die_with_parent=True, settings=settings)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
