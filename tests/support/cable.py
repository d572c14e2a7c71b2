"""A cable between a service and its database, which a test can pull out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sqlalchemy import make_url


class Cable:
    """Relays connections to the database behind a URL."""

    def __init__(self, url: str) -> None:
        self._there = make_url(url)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """The database's URL through the cable."""
        return self._there.set(host="127.0.0.1", port=self._port).render_as_string(hide_password=False)

    async def plug_in(self) -> None:
        """Relay connections, on the same port each time."""
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def pull_out(self) -> None:
        """End all connections, and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._there.host, self._there.port or 5432)
        ends = {writer, far_writer}
        self._writers |= ends
        try:
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            self._writers -= ends
            for end in ends:
                end.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@asynccontextmanager
async def cable_to(url: str) -> AsyncIterator[Cable]:
    """A cable that is plugged in."""
    cable = Cable(url)
    await cable.plug_in()
    try:
        yield cable
    finally:
        await cable.pull_out()
