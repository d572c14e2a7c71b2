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
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.task import Claim, Json, NewTask, Question, Reply, Status, Task, TaskState, new_task_id
from app.embedded_pg import throwaway_postgres
from app.errors import PerdureError, StaleAttempt, UsageError
from app.methods.answers import check_answer
from app.storage import fleet, migrate
from app.storage.database import Database
from app.storage.store import Store
from app.tools.context import Accepted, Declined, Dismissed
from app.tools.registry import Registry, Tool
from app.tools.transactions import Transactions
from app.version import __version__
from app.wire.envelope import dumps
from app.wire.revisions import TASKS_EXTENSION
from app.worker.attempt import Attempt

Answer = Accepted[Any] | Declined | Dismissed | BaseModel | dict[str, Any]
Script = Answer | Callable[[dict[str, Any]], Answer]
EVERYTHING: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {},
    "extensions": {TASKS_EXTENSION: {}},
}
UNWIND_SECONDS = 5.0
LEASE_MS = 86_400_000  # nothing beats here: a worker lives until its attempt ends

_RECORD = """
SELECT t.losses, ARRAY(
    SELECT s.name FROM perdure.task_steps AS s WHERE s.task_id = t.task_id ORDER BY s.stepped_at) AS steps
FROM perdure.tasks AS t
WHERE t.task_id = $1"""


class UnansweredError(PerdureError):
    """The tool asked something that the test has no answer for; the message names the key."""


class NoCrashError(PerdureError):
    """A crash did not happen, because its step was never recorded; the message names it."""


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
        detached: whether the caller has the handle of the task in the end: because it got it at once, or because of
            `ctx.detach()`.
    """

    status: Status
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    questions: list[str]
    steps: list[str]
    attempts: int
    losses: int
    detached: bool

    @property
    def text(self) -> str:
        """The text of the result's content, block after block."""
        return "\n".join(block.get("text", "") for block in (self.result or {}).get("content", ()))

    @property
    def structured(self) -> Any:
        """The result's structuredContent, None where there is none."""
        return (self.result or {}).get("structuredContent")


class Harness:
    """Runs tools on one database, also several at once. Made by `harness`."""

    def __init__(self, database: Database, executor: Executor) -> None:
        self._database = database
        self._executor = executor

    async def run(
        self,
        tool: Tool,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        answers: Mapping[str, Script] | None = None,
        crash_after: Sequence[str] = (),
        owner: str = "tester",
        capabilities: dict[str, Any] | None = None,
        timeout_seconds: float = 60.0,
        **more: Any,
    ) -> Run:
        """Run a tool to its end.

        Args:
            arguments: the tool's arguments; those that are not named as a parameter here can also be given by name.
            answers: what to answer, by key. For a form a dict or a model is its content; for sampling and roots a
                dict is the whole response. A function gets the request and returns one of these.
            crash_after: names of steps; right after each is recorded for the first time, the worker dies. More
                deaths than the tool's `losses` fail its task.
            owner: who calls, as `ctx.owner` shows it.
            capabilities: what the client declares; by default tasks and all that can be asked. Without tasks, or by a
                tool with `starts="request"`, it is answered on its request, where nothing else is asked.

        Raises:
            UnansweredError: a question has no answer here.
            NoCrashError: a step to crash after was never recorded.
            Refusal: an answer is not a response that a client may give to this question.
            UsageError, DeclarationError: the tool never has a task, or could not be loaded.
            TimeoutError: it took longer; the handler was stopped.
        """
        if not Registry([tool]).durable():
            raise UsageError(f"{tool.name!r} has task='never': it has no task to run, call the function itself.")
        crash = _Crash(set(crash_after))
        store, transactions = _CrashingStore(self._database, crash), _CrashingTransactions(self._database, crash)
        task = _new_task(
            tool, {**(arguments or {}), **more}, owner, EVERYTHING if capabilities is None else capabilities
        )
        life = _Life(tool, task, crash, self._database, store, transactions, self._executor)
        try:
            async with asyncio.timeout(timeout_seconds):
                run = await life.live(answers or {})
        finally:
            await store.cancel(owner, task.task_id)  # one that did not end is not left behind
            await transactions.close()
        if crash.after:
            missed = ", ".join(map(repr, sorted(crash.after)))
            raise NoCrashError(f"No crash: {missed} was never recorded; the task {run.status}, with steps {run.steps}.")
        return run


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


def _new_task(tool: Tool, arguments: dict[str, Any], owner: str, capabilities: dict[str, Any]) -> NewTask:
    task_id = new_task_id()
    begins_as_task = tool.options.starts == "task" and TASKS_EXTENSION in capabilities.get("extensions", ())
    return NewTask(
        task_id=task_id,
        owner=owner,
        tool=f"{tool.name} {task_id}",  # no other worker on this database claims it
        params=dumps({"name": tool.name, "arguments": to_jsonable_python(arguments)}),
        capabilities=dumps(capabilities),
        policy=tool.options.to_policy(),
        reply=Reply.TASK if begins_as_task else Reply.REQUEST,
    )


@dataclass(frozen=True)
class _Life:
    """One task from its creation to its end."""

    tool: Tool
    task: NewTask
    crash: _Crash
    database: Database
    store: Store
    transactions: Transactions
    executor: Executor

    async def live(self, answers: Mapping[str, Script]) -> Run:
        await self.store.create(self.task)
        asked: list[str] = []
        while True:
            await self._work()
            state = await self.store.get(self.task.owner, self.task.task_id)
            if state is None:
                raise AssertionError("the task is gone")
            if state.task.status.terminal:
                return await self._report(state, asked)
            asked += [question.key for question in state.questions]
            responses = {question.key: _response(question, answers) for question in state.questions}
            if responses:
                await self.store.answer(self.task.owner, self.task.task_id, responses)

    async def _work(self) -> None:
        """Be a worker for one attempt. If it dies, others find its row gone, and rescue what it ran."""
        worker_id, queue = uuid4(), [self.task.tool]
        await self.database.fetch(
            fleet.REGISTER, worker_id, "app.testing", os.getpid(), __version__, queue, 1, LEASE_MS
        )
        try:
            for claim in await self.store.claim(worker_id, queue, 1):
                await self._attempt(claim)
        finally:
            await self.database.fetch(fleet.LEAVE, worker_id)
            await self.store.rescue()
            self.crash.now.clear()

    async def _attempt(self, claim: Claim) -> None:
        attempt = Attempt(claim, self.tool, self.store, self.transactions, self.executor)
        running, dying = asyncio.create_task(attempt.run()), asyncio.create_task(self.crash.now.wait())
        try:
            await asyncio.wait({running, dying}, return_when=asyncio.FIRST_COMPLETED)
        finally:  # it has ended, its worker dies, or the test's time is over
            dying.cancel()
            attempt.abandon()
            await asyncio.wait({running}, timeout=UNWIND_SECONDS)
        if running.done():
            running.result()

    async def _report(self, state: TaskState, asked: list[str]) -> Run:
        row = await self.database.fetchrow(_RECORD, state.task.task_id)
        if row is None:
            raise AssertionError("the task is gone")
        return Run(
            status=state.task.status,
            result=None if state.result is None else json.loads(state.result),
            error=None if state.error is None else json.loads(state.error),
            questions=asked,
            steps=row["steps"],
            attempts=state.task.epoch,
            losses=row["losses"],
            detached=state.task.reply is Reply.TASK,
        )


class _Crash:
    """When a worker is to die: right after these steps, each the first time."""

    def __init__(self, after: set[str]) -> None:
        self.after = after
        self.now = asyncio.Event()

    async def come(self, name: str) -> None:
        """Die here, if it is time: what comes behind is never reached."""
        if name in self.after:
            self.after.remove(name)
            self.now.set()
            await asyncio.get_running_loop().create_future()

    def refuse(self) -> None:
        """The dead do not write, though here their handlers take a moment to end."""
        if self.now.is_set():
            raise StaleAttempt("The worker of this attempt is dead.")


class _CrashingStore(Store):
    def __init__(self, database: Database, crash: _Crash) -> None:
        super().__init__(database)
        self._crash = crash

    async def step(self, claim: Claim, name: str, value: Json) -> Json:
        self._crash.refuse()
        stands = await super().step(claim, name, value)
        await self._crash.come(name)
        return stands

    async def _fenced(self, claim: Claim, statement: str, *args: object, own: str | None = None) -> Task:
        self._crash.refuse()
        return await super()._fenced(claim, statement, *args, own=own)


class _CrashingTransactions(Transactions):
    def __init__(self, database: Database, crash: _Crash) -> None:
        super().__init__(database)
        self._crash = crash

    async def run(self, claim: Claim, name: str, fn: Callable[[AsyncConnection], Awaitable[Json]]) -> Json:
        async def unless_dead(connection: AsyncConnection) -> Json:
            value = await fn(connection)
            self._crash.refuse()
            return value

        value = await super().run(claim, name, unless_dead)
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
    response = to_jsonable_python(_wire(answer, is_form=request["method"] == "elicitation/create"))
    check_answer(question, response)
    return dumps(response)


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
