"""Clients under load: each user starts tasks, polls them, answers and cancels, and keeps what it was told."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from tests.faults.ledger import Known, Ledger
from tests.faults.processes import Member
from tests.support.rpc import TASKS, Client, Reply

CAPABILITIES = TASKS | {"elicitation": {}}
TERMINAL = ("completed", "failed", "cancelled")
ANSWER_SECONDS = 60.0
"""How long any request may take at most: longer than the product's patience with its database."""

Params = dict[str, Any]


class GaveUp(Exception):
    """The run is over and the task has not ended; the audit tells."""


class Caller:
    """Sends requests to any of the APIs, as through a load balancer, and again when a connection was lost."""

    def __init__(
        self, session: aiohttp.ClientSession, apis: list[Member], ledger: Ledger, random: random.Random
    ) -> None:
        self._clients = [(api, Client(session, api.url, capabilities=CAPABILITIES)) for api in apis]
        self._ledger = ledger
        self._random = random
        self.give_up_at = float("inf")

    async def rpc(self, method: str, params: Params, *, ref: str = "") -> Params:
        """Send a request until it is answered. Whatever is no result is a finding, and asked again.

        Raises:
            GaveUp: the run is over.
        """
        while time.monotonic() < self.give_up_at:
            api, client = self._random.choice(self._clients)
            sent = time.time()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    reply = await client.rpc(method, params)
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as lost:
                self._lost(api, method, sent, lost)
            except (TimeoutError, AssertionError) as wrong:
                self._found(api, method, f"{type(wrong).__name__}: {wrong}", sent)
            else:
                self._ledger.requests += 1
                if "result" in reply.message:
                    result: Params = reply.message["result"]
                    return result
                self._found(api, method, _error(reply), sent)
            if method == "tools/call":
                self._ledger.unanswered[ref] += 1
            await asyncio.sleep(self._random.uniform(0.05, 0.3))
        raise GaveUp

    def _lost(self, api: Member, method: str, sent: float, lost: Exception) -> None:
        if api.was_down(sent, time.time()):
            self._ledger.expected[type(lost).__name__] += 1
        else:
            self._found(api, method, f"the connection was lost though nobody killed the API: {lost!r}", sent)

    def _found(self, api: Member, method: str, what: str, sent: float) -> None:
        took = time.time() - sent
        self._ledger.findings.append(f"client: {method} on {api.name} at {sent:.2f}, after {took:.2f} s: {what}")


class User:
    """One client that does one thing after the other, as its random numbers say."""

    def __init__(self, name: str, caller: Caller, ledger: Ledger, random: random.Random) -> None:
        self._name = name
        self._caller = caller
        self._ledger = ledger
        self._random = random
        self._number = 0
        self._habits: dict[Callable[[], Awaitable[None]], int] = {
            self._quick: 4,
            self._steps: 4,
            self._asks: 4,
            self._slow: 2,
            self._blocking: 2,
            self._fails: 2,
            self._endless: 2,
            self._changes_its_mind: 2,
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Go on until `stop`, and with the last thing to its end."""
        habits, weights = list(self._habits), list(self._habits.values())
        try:
            while not stop.is_set():
                [habit] = self._random.choices(habits, weights)
                await habit()
        except GaveUp:
            return

    async def look_again(self, known: Known) -> None:
        """Read a task that was left alone until it has ended."""
        try:
            await self._follow(known)
        except GaveUp:
            return

    # -- habits -----------------------------------------------------------------------------------------------------

    async def _quick(self) -> None:
        """Start a handful at once, and look after one of them; the others are for the end of the run."""
        started = [await self._start("quick") for _ in range(self._random.randint(1, 4))]
        await self._follow(started[0])

    async def _steps(self) -> None:
        await self._follow(await self._start("steps", **self._steps_arguments()))

    async def _asks(self) -> None:
        await self._follow(await self._start("asks", **self._asks_arguments()))

    async def _slow(self) -> None:
        await self._follow(await self._start("slow", seconds=self._random.choice([2.0, 4.0, 6.0])))

    async def _blocking(self) -> None:
        await self._follow(await self._start("blocking", count=self._random.randint(1, 5)))

    async def _fails(self) -> None:
        await self._follow(await self._start("fails", how=self._random.choice(["protocol", "told", "broken"])))

    async def _endless(self) -> None:
        await self._follow(await self._start("endless"), cancel_after=self._random.uniform(0.0, 3.0))

    async def _changes_its_mind(self) -> None:
        """Cancel what may run, wait for a worker or for an answer, or have ended just now."""
        if self._random.random() < 0.5:
            known = await self._start("steps", **self._steps_arguments())
        else:
            known = await self._start("asks", **self._asks_arguments())
        await self._follow(known, cancel_after=self._random.uniform(0.0, 2.0))

    def _steps_arguments(self) -> Params:
        return {"count": self._random.randint(1, 4), "pause": self._random.choice([0.0, 0.2, 0.6])}

    def _asks_arguments(self) -> Params:
        return {"together": self._random.choice([1, 1, 2]), "rounds": self._random.choice([1, 1, 2])}

    # -- what they consist of ---------------------------------------------------------------------------------------

    async def _start(self, tool: str, **arguments: Any) -> Known:
        self._number += 1
        ref = f"{self._name}-{self._number}"
        arguments["ref"] = ref
        result = await self._caller.rpc("tools/call", {"name": tool, "arguments": arguments}, ref=ref)
        known = Known(result["taskId"], tool, ref, arguments)
        self._ledger.tasks.append(known)
        return known

    async def _follow(self, known: Known, cancel_after: float | None = None) -> None:
        """Poll a task to its end, answer what it asks, and cancel it when its time has come."""
        cancel_at = None if cancel_after is None else time.monotonic() + cancel_after
        while True:
            state = await self._caller.rpc("tasks/get", {"taskId": known.task_id})
            if state["status"] in TERMINAL:
                known.end = state
                return
            if cancel_at is not None and time.monotonic() >= cancel_at:
                await self._caller.rpc("tasks/cancel", {"taskId": known.task_id})
                known.cancelled, cancel_at = True, None
            elif state["status"] == "input_required" and self._random.random() < 0.7:
                await self._answer(known, list(state["inputRequests"]))
            await asyncio.sleep(self._random.uniform(0.1, 0.5))

    async def _answer(self, known: Known, open_keys: list[str]) -> None:
        """Answer one question or all; sometimes two answers to one question race each other."""
        if again := [key for key in open_keys if key in known.answers]:
            self._ledger.findings.append(f"client: {known.task_id} still asks {again}, whose answer was acknowledged")
        keys = open_keys if self._random.random() < 0.5 else open_keys[:1]
        times = 2 if self._random.random() < 0.2 else 1
        for key in keys:
            known.answers[key] = [f"{known.ref}/{key}/{number}" for number in range(times)]
        await asyncio.gather(*(self._give(known, {key: known.answers[key][n] for key in keys}) for n in range(times)))

    async def _give(self, known: Known, values: dict[str, str]) -> None:
        responses = {key: {"action": "accept", "content": {"value": value}} for key, value in values.items()}
        await self._caller.rpc("tasks/update", {"taskId": known.task_id, "inputResponses": responses})


def _error(reply: Reply) -> str:
    return f"HTTP {reply.status}, {json.dumps(reply.message.get('error'))}"
