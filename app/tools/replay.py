"""What one attempt remembers of earlier ones, and the one place where it may change its task.

An attempt runs its handler from the top. A step that has run returns its stored value, a question that was answered
its stored answer. A question without an answer waits; once nothing else that the store should know is under way,
the attempt is paused: all that waits is asked together, the handler is unwound, and a later attempt replays.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NoReturn, TypeVar

import pydantic_core
import structlog
from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.task import Claim, Json, Question, Reply
from app.errors import ProtocolError, Refusal, StaleAttempt, StoreUnavailable, ToolError, UsageError
from app.storage.store import Store
from app.tools.reports import Report, Reports
from app.tools.transactions import Transactions
from app.wire.envelope import dumps
from app.wire.input_requests import declares, needed_capability
from app.wire.revisions import LEGACY, TASKS_EXTENSION, Revision, code, missing_capability, missing_tasks_capability

log = structlog.get_logger(__name__)

T = TypeVar("T")
Stopping = Literal["cancel", "deadline", "shutdown", "question"]

CANNOT_BE_ASKED = (
    "This tool has to ask the user something, and this client cannot be asked over the protocol version that it speaks."
)

QUESTION_CHARACTERS = 262_144

MOST_NAMES = 10_000
"""Steps and questions of one attempt, and so of a task: each is kept, and read again for every attempt."""

_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")
_in_transaction: ContextVar[bool] = ContextVar("in_transaction", default=False)


class Unwound(BaseException):
    """Ends the thread of a `def` tool whose attempt is over; not an Exception, so that tools do not catch it."""


class Alarm:
    """A flag that calls somebody when it is set: cheaper than a task that waits for an event.

    Attributes:
        is_set: whether it is.
        rings: what is called.
    """

    __slots__ = ("is_set", "rings")

    def __init__(self) -> None:
        self.is_set = False
        self.rings: Callable[[], object] = nobody

    def set(self) -> None:
        """Set it, and call."""
        self.is_set = True
        self.rings()


def nobody() -> None:
    """Stands where nobody is to be called."""


class Replay:
    """The state of one attempt, shared by its context and the worker that runs it. Lives on the worker's event loop.

    Args:
        claim: the task as it was claimed, with what earlier attempts left.
        store: where steps and status messages go.
        transactions: runs steps that write to the same database.
        task_required: whether the tool only goes on for callers that can use a task, once it detaches.

    Attributes:
        stopping: why the attempt is being stopped; None while it is not.
        stale: set when the task is no longer this attempt's.
        asked: set when there is a question: then `pause` is to be waited for.
    """

    def __init__(self, claim: Claim, store: Store, transactions: Transactions, *, task_required: bool = False) -> None:
        self.claim = claim
        self.stopping: Stopping | None = None
        self.stale = Alarm()
        self.asked = Alarm()
        self._store = store
        self._transactions = transactions
        self._task_required = task_required
        self._reports: Reports | None = None
        self._used: set[tuple[str, str]] = set()
        self._pending: dict[str, Question] = {}
        self._busy = 0
        self._idle: asyncio.Event | None = None
        self._closed = False
        self._unwinding = False
        self._calls: set[asyncio.Task[Any]] = set()

    # -- for the worker -----------------------------------------------------------------------------------------

    async def pause(self) -> list[Question]:
        """Wait until the handler only waits for answers, close the context, and return what it asks.

        That is so when no step is under way and the loop has gone round twice without a new question: questions that
        are asked side by side become outstanding together.
        """
        self._idle = asyncio.Event()
        while True:
            if self._busy:
                self._idle.clear()
                await self._idle.wait()
            waiting = len(self._pending)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if not self._busy and waiting == len(self._pending):
                self._closed = True
                return list(self._pending.values())

    @property
    def settled(self) -> bool:
        """Whether `settle` has nothing to do."""
        return self._reports is None or self._reports.quiet

    async def settle(self) -> None:
        """Write a status that still waits, before the end of the attempt is written."""
        if self._reports is not None:
            await self._reports.flush_unheard()

    def unwind(self) -> None:
        """From now on every call of the context ends its caller instead of waiting, also those that wait already."""
        self._closed = self._unwinding = True
        if self._reports is not None:
            self._reports.close()
        for call in self._calls:
            call.cancel()

    def call(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
        """Do the work of a blocking call on the loop, while the calling thread waits.

        Raises:
            Unwound: the attempt is over for this thread.
        """

        async def tracked() -> T:
            task = asyncio.current_task()
            if task is None:
                raise AssertionError("a call is made outside of a task")
            self._calls.add(task)
            try:
                return await work
            finally:
                self._calls.discard(task)

        try:
            return asyncio.run_coroutine_threadsafe(tracked(), loop).result()
        except CancelledError:
            raise Unwound from None

    # -- for the context ------------------------------------------------------------------------------------------

    async def recall(self, name: str) -> Json | None:
        """What the step returned in an earlier attempt. None: it must run now, and the caller ends it with `done`."""
        await self._enter("step", name)
        if (stored := self.claim.steps.get(name)) is None:
            self._begin()
        return stored

    async def record(self, name: str, value: Json) -> Json:
        """Store what the step returned; the value that stands is returned."""
        return await self._write(self._store.step(self.claim, name, value))

    async def record_transaction(self, name: str, fn: Callable[[AsyncConnection], Awaitable[Any]]) -> Json:
        """Run fn in a transaction that also stores what it returned; the value that stands is returned."""

        async def run(connection: AsyncConnection) -> Json:
            token = _in_transaction.set(True)
            try:
                return memo(name, await fn(connection))
            finally:
                _in_transaction.reset(token)

        return await self._write(self._transactions.run(self.claim, name, run))

    def done(self) -> None:
        """The step that `recall` opened is over, whichever way."""
        self._busy -= 1
        if not self._busy and self._idle is not None:
            self._idle.set()

    async def ask(self, key: str, request: dict[str, Any]) -> Any:
        """Return the stored response to this question; without one, wait to be paused."""
        await self._enter("question", key)
        if (earlier := self.claim.questions.get(key)) is not None:
            if _kind(json.loads(earlier)) != _kind(request):
                raise UsageError(f"The key {key!r} stands for another question already. Give each one its own key.")
            if (answer := self.claim.answers.get(key)) is not None:
                return json.loads(answer)
        await self._require(request)
        text = dumps(request)
        if len(text) > QUESTION_CHARACTERS:
            raise UsageError(f"A question has at most {QUESTION_CHARACTERS:,} characters, with its form. Ask for less.")
        self._pending[key] = Question(key, text)
        self.asked.set()
        return await self._wait()

    async def report(self, report: Report) -> None:
        """Tell how the task gets on, while the attempt may still write; of what comes too fast only the newest."""
        await self._open()
        if self._reports is None:
            self._reports = Reports(partial(_store_report, self._store, self.claim), self.stale.set)
        await self._write(self._reports.put(report))

    async def detach(self) -> None:
        """Give the caller that waits on its request the handle of the task, if it can use one.

        Raises:
            ProtocolError: it cannot, and the tool insists on it.
        """
        await self._open()
        if self.claim.task.reply is Reply.TASK:
            return
        if declares(self._capabilities(), {"extensions": {TASKS_EXTENSION: {}}}):
            await self._write(self._store.detach(self.claim))
            self._has_handle()
        elif self._task_required and await self._on_request():
            raise self._ending(missing_tasks_capability())

    # -- within -----------------------------------------------------------------------------------------------------

    async def _enter(self, kind: str, name: str) -> None:
        await self._open()
        if not _NAME.fullmatch(name):
            raise UsageError(f"The name of a {kind} is 1 to 200 printable characters.")
        if len(self._used) >= MOST_NAMES:
            raise UsageError(f"A task has at most {MOST_NAMES} steps and questions. Do more in each of them.")
        if (kind, name) in self._used:
            raise UsageError(f"The {kind} {name!r} is used twice in one attempt. Give each {kind} its own name.")
        self._used.add((kind, name))

    async def _open(self) -> None:
        if _in_transaction.get():
            raise UsageError("The context cannot be used inside a transaction's function. Return from it first.")
        if self._closed:
            await self._wait()

    async def _wait(self) -> NoReturn:
        if self._unwinding:
            raise asyncio.CancelledError
        await asyncio.get_running_loop().create_future()
        raise AssertionError("a future that nobody has was completed")

    async def _write(self, writing: Awaitable[T]) -> T:
        try:
            return await writing
        except StaleAttempt:
            self.stale.set()
        except StoreUnavailable:
            # No fault of the tool, which must not come to see it: the attempt is given up, and another one replays.
            log.error("the store cannot be reached; the attempt is given up", attempt=self.claim.epoch)
            self.stale.set()
        return await self._wait()

    async def _require(self, request: dict[str, Any]) -> None:
        """Refuse a question that this client cannot be asked (Multi Round-Trip Requests).

        On a request only what it declares is asked, and nothing at all where its protocol has no way to. A client that
        has a handle may find an answer to more than it declared; only 2026-07-28 forbids to try.
        """
        needed, revision = needed_capability(request), self.claim.revision
        mute = revision in LEGACY
        if declares(self._capabilities(), needed) and not mute:
            return
        on_request = await self._on_request()
        if on_request and mute:
            raise ToolError(CANNOT_BE_ASKED)
        if on_request or revision == Revision.V2026_07_28:
            raise self._ending(missing_capability(needed))

    async def _on_request(self) -> bool:
        """Whether a request still waits for the outcome. The API may have told its caller to come back meanwhile."""
        if self.claim.task.reply is Reply.REQUEST:
            self._begin()
            try:
                state = await self._store.get(self.claim.task.owner, self.claim.task_id)
            finally:
                self.done()
            if state is not None and state.task.reply is Reply.TASK:
                self._has_handle()
        return self.claim.task.reply is Reply.REQUEST

    def _ending(self, refusal: Refusal) -> ProtocolError:
        """A refusal as the error that ends the task, with the number that it has in the request's revision."""
        number = code(refusal.kind, Revision(self.claim.revision or Revision.DRAFT))
        return ProtocolError(number, refusal.message, refusal.data)

    def _has_handle(self) -> None:
        self.claim = replace(self.claim, task=replace(self.claim.task, reply=Reply.TASK))

    def _begin(self) -> None:
        self._busy += 1

    def _capabilities(self) -> dict[str, Any]:
        declared: dict[str, Any] = json.loads(self.claim.capabilities)
        return declared


async def _store_report(store: Store, claim: Claim, report: Report) -> None:
    await store.status(claim, report.message, report.progress, report.total)


def memo(name: str, value: Any) -> Json:
    """A step's value as JSON text.

    Raises:
        UsageError: JSON cannot hold it.
    """
    try:
        return dumps(pydantic_core.to_jsonable_python(value))
    except (ValueError, TypeError, RecursionError) as unfit:
        raise UsageError(f"The step {name!r} returned something that JSON cannot hold. Return plain data.") from unfit


def rebuild(stored: Json, returns: Any) -> Any:
    """What a step returns to its handler: its value after JSON, as the type that the caller names."""
    if returns is None:
        return json.loads(stored)
    return TypeAdapter(returns).validate_json(stored)


def _kind(request: dict[str, Any]) -> tuple[Any, ...]:
    """What must not change between two questions of one key; the wording may."""
    params = request.get("params", {})
    return request["method"], params.get("mode"), params.get("requestedSchema")
