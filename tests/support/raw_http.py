"""HTTP in bytes, for what no client library would send."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPMessage, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)

Head = Sequence[tuple[bytes, bytes]]
"""Header names and values, in their order."""


@dataclass(frozen=True)
class Answer:
    """A response as it came."""

    status: int
    headers: HTTPMessage
    body: bytes


async def post(url: str, head: Head, body: bytes) -> Answer:
    """Send these bytes on a connection of their own and read what comes until the server closes it.

    Without `Connection` and `Content-Length` in the head, the right ones are added.

    Raises:
        ConnectionError: the server closed without an answer.
    """
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        with suppress(ConnectionError):  # refused before all of it was read: the answer is there nevertheless
            writer.write(_request(where.path, head, body))
            await writer.drain()
        return _parse(await reader.read(-1))
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def receive(reader: asyncio.StreamReader) -> Answer:
    """The next response on a connection that may go on. It must say how long it is."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return _parse(head + await reader.readexactly(int(length[1]) if length else 0))


def _request(path: str, head: Head, body: bytes) -> bytes:
    named = {name.lower() for name, _ in head}
    fields = list(head)
    if b"connection" not in named:
        fields.append((b"Connection", b"close"))
    if b"content-length" not in named:
        fields.append((b"Content-Length", str(len(body)).encode()))
    lines = [b"POST %s HTTP/1.1" % path.encode(), *(name + b": " + value for name, value in fields)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class _Received:
    """What http.client takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: Any) -> io.BytesIO:
        return io.BytesIO(self._data)


def _parse(data: bytes) -> Answer:
    if not data:
        raise ConnectionError("the server closed without an answer")
    response = HTTPResponse(_Received(data))  # type: ignore[arg-type]  # all that it uses of a socket
    response.begin()
    return Answer(response.status, response.headers, response.read())
