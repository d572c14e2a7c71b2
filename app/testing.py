"""For the tests of tool authors: run a tool to its end, with scripted answers and crashes, on a real database.

from app.testing import harness

async def test_the_order_is_placed_once():
    async with harness() as perdure:
        run = await perdure.run(order, answers={"sure": {"yes": True}}, crash_after=["charge"], item="book")
    assert run.text == "ordered"
    assert run.attempts == 3
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.task import Claim, Json, NewTask, Question, Status, TaskState, new_task_id
from app.embedded_pg import throwaway_postgres
from app.errors import PerdureError
from app.storage import migrate
from app.storage.database import Database
from app.storage.store import Store
from app.tools.context import Accepted, Declined, Dismissed
from app.tools.registry import Tool
from app.tools.transactions import Transactions
from app.wire.envelope import dumps
from app.worker.attempt import Attempt

Answer = Accepted[Any] | Declined | Dismissed | BaseModel | dict[str, Any]
Script = Answer | Callable[[dict[str, Any]], Answer]
EVERYTHING: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


class UnansweredError(PerdureError):
    """The tool asked something that the test has no answer for; the message names the key."""


@dataclass(frozen=True)
class Run:
    """What became of a task.

    Attributes:
        status: completed, failed or cancelled.
        result: the CallToolResult of a completed task, as clients get it.
        error: the JSON-RPC error of a failed one.
        questions: the keys that were asked, in order.
        steps: the names of the steps that were recorded, in order.
        attempts: how often the handler was started.
        losses: how often its worker was lost.
    """

    status: Status
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    questions: list[str]
    steps: list[str]
    attempts: int
    losses: int

    @property
    def text(self) -> str:
        """The text of the result's content, block after block."""
        return "\n".join(block.get("text", "") for block in (self.result or {}).get("content", ()))

    @property
    def structured(self) -> Any:
        """The result's structuredContent, None where there is none."""
        return (self.result or {}).get("structuredContent")


class Harness:
    """Runs tools on one database. Made by `harness`."""

    def __init__(self, database: Database, executor: ThreadPoolExecutor) -> None:
        self._database = database
        self._executor = executor

    async def run(
        self,
        tool: Tool,
        /,
        *,
        answers: Mapping[str, Script] | None = None,
        crash_after: Sequence[str] = (),
        owner: str = "tester",
        capabilities: dict[str, Any] | None = None,
        timeout_seconds: float = 60.0,
        **arguments: Any,
    ) -> Run:
        """Run a tool to its end.

        Args:
            answers: what to answer, by key. For a form a dict or a model is its content; for sampling and roots a
                dict is the whole response. A function gets the request and returns one of these.
            crash_after: names of steps; right after each is recorded for the first time, the worker dies.
            owner: who calls, as `ctx.owner` shows it.
            capabilities: what the client declares; by default all that can be asked.
            arguments: the tool's arguments.

        Raises:
            UnansweredError: a question has no answer here.
            TimeoutError: it took longer.
        """
        crash = _Crash(set(crash_after))
        transactions = _CrashingTransactions(self._database, crash)
        store = _CrashingStore(self._database, crash)
        try:
            async with asyncio.timeout(timeout_seconds):
                task_id = await self._create(store, tool, owner, capabilities, arguments)
                return await self._drive(store, transactions, crash, tool, owner, task_id, answers or {})
        finally:
            await transactions.close()

    async def _create(
        self, store: Store, tool: Tool, owner: str, capabilities: dict[str, Any] | None, arguments: dict[str, Any]
    ) -> UUID:
        new = NewTask(
            task_id=new_task_id(),
            owner=owner,
            tool=tool.name,
            params=dumps({"name": tool.name, "arguments": arguments}),
            capabilities=dumps(EVERYTHING if capabilities is None else capabilities),
            policy=tool.options.to_policy(),
        )
        return (await store.create(new)).task_id

    async def _drive(
        self,
        store: Store,
        transactions: Transactions,
        crash: _Crash,
        tool: Tool,
        owner: str,
        task_id: UUID,
        answers: Mapping[str, Script],
    ) -> Run:
        asked: list[str] = []
        while True:
            for claim in await store.claim(uuid4(), [tool.name], 1):
                await self._attempt(Attempt(claim, tool, store, transactions, self._executor), store, crash)
            state = await store.get(owner, task_id)
            if state is None:
                raise AssertionError("the task is gone")
            if state.task.status.terminal:
                return await self._report(state, asked)
            asked += [question.key for question in state.questions]
            responses = {question.key: _response(question, answers) for question in state.questions}
            if responses:
                await store.answer(owner, task_id, responses)

    async def _attempt(self, attempt: Attempt, store: Store, crash: _Crash) -> None:
        """Run an attempt until it ends or its worker is to die; then the task is rescued as by another worker."""
        running, dying = asyncio.create_task(attempt.run()), asyncio.create_task(crash.now.wait())
        await asyncio.wait({running, dying}, return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if crash.now.is_set():
            crash.now.clear()
            attempt.abandon()
            await running
            await store.rescue()  # its worker has no row, like one that is long gone
        await running

    async def _report(self, state: TaskState, asked: list[str]) -> Run:
        steps = await self._database.fetch(
            "SELECT name FROM perdure.task_steps WHERE task_id = $1 ORDER BY stepped_at", state.task.task_id
        )
        losses = await self._database.fetch("SELECT losses FROM perdure.tasks WHERE task_id = $1", state.task.task_id)
        return Run(
            status=state.task.status,
            result=None if state.result is None else json.loads(state.result),
            error=None if state.error is None else json.loads(state.error),
            questions=asked,
            steps=[row["name"] for row in steps],
            attempts=state.task.epoch,
            losses=losses[0]["losses"],
        )


@asynccontextmanager
async def harness(database_url: str | None = None) -> AsyncIterator[Harness]:
    """A database to run tools on.

    Args:
        database_url: a database that may be migrated and written to; by default a PostgreSQL of its own is started,
            and thrown away at the end. Start it once for many tests.
    """
    with nullcontext() if database_url else throwaway_postgres() as server:
        url = database_url or (server.url() if server else "")
        await migrate.upgrade(url)
        executor = ThreadPoolExecutor(4, thread_name_prefix="perdure-tool")
        try:
            async with Database(url, connections=4) as database:
                yield Harness(database, executor)
        finally:
            executor.shutdown(wait=False)


class _Crash:
    """When a worker is to die: right after these steps, each the first time."""

    def __init__(self, after: set[str]) -> None:
        self._after = after
        self.now = asyncio.Event()

    async def come(self, name: str) -> None:
        """Die here, if it is time: what comes behind is never reached."""
        if name in self._after:
            self._after.remove(name)
            self.now.set()
            await asyncio.get_running_loop().create_future()


class _CrashingStore(Store):
    def __init__(self, database: Database, crash: _Crash) -> None:
        super().__init__(database)
        self._crash = crash

    async def step(self, claim: Claim, name: str, value: Json) -> Json:
        stands = await super().step(claim, name, value)
        await self._crash.come(name)
        return stands


class _CrashingTransactions(Transactions):
    def __init__(self, database: Database, crash: _Crash) -> None:
        super().__init__(database)
        self._crash = crash

    async def run(self, claim: Claim, name: str, fn: Callable[[AsyncConnection], Awaitable[Json]]) -> Json:
        value = await super().run(claim, name, fn)
        await self._crash.come(name)
        return value


def _response(question: Question, answers: Mapping[str, Script]) -> Json:
    request = json.loads(question.request)
    if question.key not in answers:
        wanted = f"answers={{{question.key!r}: …}}"
        raise UnansweredError(f"The tool asked {question.key!r}, which the test does not answer: give {wanted}.")
    answer = answers[question.key]
    if callable(answer) and not isinstance(answer, BaseModel):
        answer = answer(request)
    return dumps(_wire(answer, is_form=request["method"] == "elicitation/create"))


def _wire(answer: Answer, *, is_form: bool) -> dict[str, Any]:
    match answer:
        case Declined():
            return {"action": "decline"}
        case Dismissed():
            return {"action": "cancel"}
        case Accepted(content=None):
            return {"action": "accept"}
        case Accepted(content=content):
            return _wire(content, is_form=True)
        case BaseModel():
            plain = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
            return {"action": "accept", "content": plain} if is_form else plain
        case _:
            return {"action": "accept", "content": answer} if is_form else answer
