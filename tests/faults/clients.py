"""Clients under load: each does one thing after the other, as its random numbers say, and keeps what it was told."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from tests.faults.caller import Caller, GaveUp, Lost, Params, Refused
from tests.faults.ledger import Known, Ledger

TERMINAL = ("completed", "failed", "cancelled")
KEY = "dev.perdure/idempotencyKey"
INTERNAL = -32603


class User:
    """A client and its habits.

    Args:
        name: the first part of the refs of its calls.
    """

    def __init__(self, name: str, caller: Caller, ledger: Ledger, random: random.Random) -> None:
        self._name = name
        self._caller = caller
        self._ledger = ledger
        self._random = random
        self._number = 0
        self._habits: dict[Callable[[], Awaitable[None]], int] = {
            self._quick: 3,
            self._any_tool: 14,
            self._endless: 2,
            self._changes_its_mind: 2,
            self._on_the_request: 6,
            self._hangs_up: 1,
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
        started = [await self._start("quick", {}) for _ in range(self._random.randint(1, 4))]
        await self._follow(started[0])

    async def _any_tool(self) -> None:
        tool = self._random.choice(["steps", "steps", "asks", "asks", "slow", "blocking", "fails"])
        await self._follow(await self._start(tool, self._arguments(tool)))

    async def _endless(self) -> None:
        await self._follow(await self._start("endless", {}), cancel_after=self._random.uniform(0.0, 3.0))

    async def _changes_its_mind(self) -> None:
        """Cancel what may run, wait for a worker or for an answer, or have ended just now."""
        tool = self._random.choice(["steps", "asks"])
        known = await self._start(tool, self._arguments(tool))
        await self._follow(known, cancel_after=self._random.uniform(0.0, 2.0))

    async def _on_the_request(self) -> None:
        """Call as a client that knows nothing of tasks; a call that got lost is made again under another name."""
        tool = self._random.choice(["quick", "steps", "asks", "asks", "slow", "blocking"])
        given = self._arguments(tool)
        while True:
            ref = self._new_ref()
            known = Known("", tool, ref, given | {"ref": ref})
            try:
                await self._answered(known)
            except Lost:
                await self._caller.pause()
            else:
                self._ledger.tasks.append(known)
                return

    async def _hangs_up(self) -> None:
        ref = self._new_ref()
        params = {"name": "endless", "arguments": {"ref": ref}}
        await self._caller.hang_up(params, self._random.uniform(0.5, 8.0), ref=ref)

    def _arguments(self, tool: str) -> Params:
        match tool:
            case "steps":
                return {"count": self._random.randint(1, 6), "pause": self._random.choice([0.0, 0.3, 1.0])}
            case "asks":
                return {"together": self._random.choice([1, 1, 2]), "rounds": self._random.choice([1, 1, 2])}
            case "slow":
                return {"seconds": self._random.choice([3.0, 5.0, 8.0])}
            case "blocking":
                return {"count": self._random.randint(1, 20)}
            case "fails":
                return {"how": self._random.choice(["protocol", "told", "broken"])}
        return {}

    # -- what they consist of ---------------------------------------------------------------------------------------

    async def _start(self, tool: str, given: Params) -> Known:
        """Make a task, half of the time with a key that makes it safe to call again."""
        ref = self._new_ref()
        arguments = given | {"ref": ref}
        params: Params = {"name": tool, "arguments": arguments}
        if self._random.random() < 0.5:
            self._ledger.keyed.add(ref)
            params["_meta"] = {KEY: ref}
        result = await self._caller.rpc("tools/call", params, ref=ref)
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
            await asyncio.sleep(self._random.uniform(0.2, 1.0))

    async def _answer(self, known: Known, open_keys: list[str]) -> None:
        """Answer one question or all; sometimes two answers to one question race each other."""
        if again := [key for key in open_keys if key in known.answers]:
            self._ledger.findings.append(f"client: {known} still asks {again}, whose answer was acknowledged")
        keys = open_keys if self._random.random() < 0.5 else open_keys[:1]
        times = 2 if self._random.random() < 0.2 else 1
        given = [self._responses(known, keys) for _ in range(times)]
        await asyncio.gather(*(self._update(known, responses) for responses in given))

    async def _update(self, known: Known, responses: Params) -> None:
        await self._caller.rpc("tasks/update", {"taskId": known.task_id, "inputResponses": responses})

    async def _answered(self, known: Known) -> None:
        """Call a tool and wait for its result, with a retry for each round of questions; a retry can be repeated."""
        params: Params = {"name": known.tool, "arguments": known.arguments}
        while known.end is None:
            try:
                result = await self._caller.once("tools/call", params, ref=known.ref, takes=(INTERNAL,))
            except Refused as refused:
                known.end = {"status": "failed", "error": refused.error}
            except Lost:
                if "requestState" not in params:
                    raise
                await self._caller.pause()
            else:
                if result["resultType"] == "complete":
                    known.end = {"status": "completed", "result": result}
                    return
                responses = self._responses(known, list(result["inputRequests"]))
                params |= {"requestState": result["requestState"], "inputResponses": responses}

    def _responses(self, known: Known, keys: list[str]) -> Params:
        """A new value for each of these questions, kept with those that were sent before."""
        values = {key: f"{known.ref}/{key}/{len(known.answers.get(key, []))}" for key in keys}
        for key, value in values.items():
            known.answers.setdefault(key, []).append(value)
        return {key: {"action": "accept", "content": {"value": value}} for key, value in values.items()}

    def _new_ref(self) -> str:
        self._number += 1
        return f"{self._name}-{self._number}"
