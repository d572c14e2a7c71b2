"""A cable that loses replies: the statement has committed, and whoever sent it never hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.cable import Cable

_READY = b"Z\x00\x00\x00\x05I"
"""ReadyForQuery, outside a transaction: what a server sends last, after the commit."""


class ForgetfulCable(Cable):
    """Relays connections as a cable does, until one runs the statement whose reply is to be lost."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._statement: bytes | None = None
        self.lost = asyncio.Event()

    def lose_the_reply_to(self, statement: str) -> None:
        """Break the next connection that runs this statement, right after its commit."""
        self._statement = statement.encode()
        self.lost.clear()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._there.host, self._there.port or 5432)
        doomed = asyncio.Event()
        ends = {writer, far_writer}
        self._writers |= ends
        try:
            requests = self._requests(reader, far_writer, doomed)
            await asyncio.gather(requests, self._replies(far_reader, writer, doomed))
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, doomed: asyncio.Event
    ) -> None:
        """Pass on what the client sends. A statement is prepared under a name, and run by that name."""
        names: dict[bytes, bytes] = {}
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if data[:1] == b"P":
                    name, _, rest = data[5:].partition(b"\x00")
                    names[name] = rest.partition(b"\x00")[0]
                elif data[:1] == b"B":
                    _, _, rest = data[5:].partition(b"\x00")
                    if self._statement is not None and names.get(rest.partition(b"\x00")[0]) == self._statement:
                        self._statement = None
                        doomed.set()
                writer.write(data)
        writer.transport.abort()

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, doomed: asyncio.Event) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if not doomed.is_set():
                    writer.write(data)
                elif data.endswith(_READY):
                    self.lost.set()
                    break
        writer.transport.abort()


@asynccontextmanager
async def forgetful_cable_to(url: str) -> AsyncIterator[ForgetfulCable]:
    """A forgetful cable that is plugged in."""
    cable = ForgetfulCable(url)
    await cable.plug_in()
    try:
        yield cable
    finally:
        await cable.pull_out()
