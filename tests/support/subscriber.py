"""One who listens to a subscription, and judges each event as it comes and the whole at the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.support.events import is_comment
from tests.support.oracle import check_notification
from tests.support.rpc import Client, Reply

SECONDS = 20.0
"""How long an event is waited for."""


class Subscriber:
    """An open stream, read event by event.

    Attributes:
        honoured: what the server has acknowledged.
        keepalives: how many comments have been passed over.
    """

    def __init__(
        self, client: Client, response: aiohttp.ClientResponse, request: tuple[bytes, dict[str, str]], honoured: Any
    ) -> None:
        self.response = response
        self.honoured: dict[str, Any] = honoured
        self.keepalives = 0
        self._client, (self._body, self._headers) = client, request
        self._subscription = json.loads(self._body)["id"]
        self._received, self._read = bytearray(), 0

    async def next(self, *, seconds: float = SECONDS, task: dict[str, Any] | None = None) -> dict[str, Any]:
        """The params of the next notification; `task` is what tasks/get shows, which it must equal."""
        return (await self.message(seconds=seconds, task=task))["params"]  # type: ignore[no-any-return]

    async def message(self, *, seconds: float = SECONDS, task: dict[str, Any] | None = None) -> dict[str, Any]:
        """The next notification as a whole."""
        return check_notification(await self.data(seconds=seconds), subscription=self._subscription, task=task)

    async def data(self, *, seconds: float = SECONDS) -> bytes:
        """The bytes of the next event."""
        async with asyncio.timeout(seconds):
            while is_comment(block := await self._block()):
                self.keepalives += 1
        return block.removeprefix(b"event: message\ndata: ")

    async def _block(self) -> bytes:
        """The next event or comment; cancelled, it has lost nothing."""
        looked = self._read
        while (end := self._received.find(b"\n\n", max(looked - 1, self._read))) < 0:
            looked = len(self._received)
            some = await self.response.content.readany()
            assert some, f"the stream has ended: {bytes(self._received[self._read :])!r}"
            self._received += some
        block = bytes(self._received[self._read : end])
        self._read = end + 2
        return block

    async def until(self, **members: Any) -> dict[str, Any]:
        """The first task from here on that has these members."""
        while True:
            task = await self.next()
            if members.items() <= task.items():
                return task

    async def rest(self) -> Reply:
        """The whole reply, judged as such, once the server has ended it."""
        async with asyncio.timeout(SECONDS):
            return await self._client.receive(self.response, self._body, self._headers, received=bytes(self._received))


@asynccontextmanager
async def subscribed(
    client: Client, *task_ids: str, request_id: str | int = "s", meta: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[Subscriber]:
    """Subscribe to tasks, and to what else is named; leaving closes the connection."""
    filtered = ({"taskIds": list(task_ids)} if task_ids else {}) | more
    params = {"notifications": filtered, "_meta": meta or {}}
    body, headers = client.request("subscriptions/listen", params, request_id=request_id)
    async with client.sending(body, headers) as response:
        assert response.status == 200, await response.read()
        assert response.headers["Content-Type"] == "text/event-stream"
        subscriber = Subscriber(client, response, (body, headers), {})
        first = await subscriber.message()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        subscriber.honoured = first["params"]["notifications"]
        yield subscriber
        response.close()
