"""How a client sends its requests: to any of the APIs, as through a load balancer, and what it makes of errors."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any

import aiohttp

from tests.faults.ledger import HungUp, Ledger
from tests.faults.processes import Member
from tests.support.rpc import TASKS, Client, Reply

FORMS: dict[str, Any] = {"elicitation": {}}
ANSWER_SECONDS = 60.0
"""How long any request may take at most: longer than the product's patience with its database."""

Params = dict[str, Any]


class GaveUp(Exception):
    """The run is over and the task has not ended; the audit tells."""


class Lost(Exception):
    """The API was killed before it answered; the call may or may not have had an effect."""


class Refused(Exception):
    """The reply is a JSON-RPC error that the caller said it would take."""

    def __init__(self, error: Params) -> None:
        super().__init__(error["message"])
        self.error = error


class Caller:
    """Sends requests; every reply is checked against the protocol, and what should not be goes to the ledger.

    Attributes:
        give_up_at: when no request is sent any more, by the monotonic clock.
    """

    def __init__(
        self, session: aiohttp.ClientSession, apis: list[Member], ledger: Ledger, random: random.Random
    ) -> None:
        self._session = session
        self._apis = apis
        self._ledger = ledger
        self._random = random
        self.give_up_at = float("inf")

    async def rpc(self, method: str, params: Params, *, ref: str = "") -> Params:
        """Send a request of a client that declares the extension, until it is answered.

        Raises:
            GaveUp: the run is over.
        """
        while True:
            try:
                return await self.once(method, params, ref=ref, capabilities=TASKS | FORMS)
            except Lost:
                await self.pause()

    async def pause(self) -> None:
        """What a client waits before it tries again."""
        await asyncio.sleep(self._random.uniform(0.1, 0.5))

    async def once(
        self, method: str, params: Params, *, ref: str, capabilities: Params = FORMS, takes: tuple[int, ...] = ()
    ) -> Params:
        """Send a request once. An error is a finding unless `takes` has its code.

        Raises:
            Lost: it was not answered.
            Refused: it was answered with an error of such a code.
            GaveUp: the run is over.
        """
        if time.monotonic() >= self.give_up_at:
            raise GaveUp
        api, sent = self._random.choice(self._apis), time.time()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reply = await Client(self._session, api.url, capabilities=capabilities).rpc(method, params)
        except aiohttp.ClientConnectorError as refused:  # it cannot have had an effect
            self._judge(type(refused).__name__, api, f"{method}: {refused!r}", sent)
            raise Lost from None
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as lost:
            self._judge(type(lost).__name__, api, f"{method}: {lost!r}", sent)
        except (TimeoutError, AssertionError) as wrong:
            self._find(api, f"{method}: {type(wrong).__name__}: {wrong}", sent)
        else:
            self._ledger.requests += 1
            if "result" in reply.message:
                result: Params = reply.message["result"]
                return result
            self._refused(reply, api, sent, takes)
        if method == "tools/call":
            self._ledger.unanswered[ref] += 1
        raise Lost

    async def hang_up(self, params: Params, seconds: float, *, ref: str) -> None:
        """Call a tool on the request, and close the connection after so long."""
        api, sent = self._random.choice(self._apis), time.time()
        try:
            async with asyncio.timeout(seconds):
                await Client(self._session, api.url, capabilities=FORMS).rpc("tools/call", params)
        except (TimeoutError, aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
            self._ledger.hung_up.append(HungUp(ref, api, sent, time.time()))
        except AssertionError as wrong:
            self._find(api, f"tools/call: {wrong}", sent)
        self._ledger.unanswered[ref] += 1

    def _refused(self, reply: Reply, api: Member, sent: float, takes: tuple[int, ...]) -> None:
        error: Params = reply.message["error"]
        told = f"HTTP {reply.status}, {json.dumps(error)}"
        if "server is stopping" in error["message"]:
            self._judge("“The server is stopping”", api, told, sent)
        elif error["code"] in takes:
            raise Refused(error)
        else:
            self._find(api, told, sent)

    def _judge(self, kind: str, api: Member, what: str, sent: float) -> None:
        """An error that there must be when an API goes down, and only then."""
        if api.was_down(sent, time.time()):
            self._ledger.expected[kind] += 1
        else:
            self._find(api, f"{what}, though nobody took the API down", sent)

    def _find(self, api: Member, what: str, sent: float) -> None:
        self._ledger.findings.append(f"client: {api.name} at {sent:.2f}, after {time.time() - sent:.2f} s: {what}")
