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
from typing import Any, Literal, NoReturn, TypeVar

import pydantic_core
from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.task import Claim, Json, Question
from app.errors import ErrorKind, ProtocolError, StaleAttempt, UsageError
from app.storage.store import Store
from app.tools.transactions import Transactions
from app.wire.envelope import dumps
from app.wire.revisions import Revision, code

T = TypeVar("T")
Stopping = Literal["cancel", "deadline", "shutdown", "question"]

_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")
_in_transaction: ContextVar[bool] = ContextVar("in_transaction", default=False)


class Unwound(BaseException):
    """Ends the thread of a `def` tool whose attempt is over; not an Exception, so that tools do not catch it."""


class Replay:
    """The state of one attempt, shared by its context and the worker that runs it. Lives on the worker's event loop.

    Args:
        claim: the task as it was claimed, with what earlier attempts left.
        store: where steps and status messages go.
        transactions: runs steps that write to the same database.
    """

    def __init__(self, claim: Claim, store: Store, transactions: Transactions) -> None:
        self.claim = claim
        self.stopping: Stopping | None = None
        self.stale = asyncio.Event()
        self._store = store
        self._transactions = transactions
        self._used: set[tuple[str, str]] = set()
        self._pending: dict[str, Question] = {}
        self._asked = asyncio.Event()
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._unwinding = False
        self._calls: set[asyncio.Task[Any]] = set()

    # -- for the worker -----------------------------------------------------------------------------------------

    async def pause(self) -> list[Question]:
        """Wait until the handler only waits for answers, close the context, and return what it asks.

        That is so when no step is under way and the loop has gone round twice without a new question: questions that
        are asked side by side become outstanding together.
        """
        await self._asked.wait()
        while True:
            await self._idle.wait()
            waiting = len(self._pending)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if not self._busy and waiting == len(self._pending):
                self._closed = True
                return list(self._pending.values())

    def unwind(self) -> None:
        """From now on every call of the context ends its caller instead of waiting, also those that wait already."""
        self._closed = self._unwinding = True
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
            self._busy += 1
            self._idle.clear()
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
        if not self._busy:
            self._idle.set()

    async def ask(self, key: str, request: dict[str, Any]) -> Any:
        """Return the stored response to this question; without one, wait to be paused."""
        await self._enter("question", key)
        self._require(request)
        if (earlier := self.claim.questions.get(key)) is not None:
            if _kind(json.loads(earlier)) != _kind(request):
                raise UsageError(f"The key {key!r} stands for another question already. Give each one its own key.")
            if (answer := self.claim.answers.get(key)) is not None:
                return json.loads(answer)
        self._pending[key] = Question(key, dumps(request))
        self._asked.set()
        return await self._wait()

    async def status(self, text: str) -> None:
        """Set the status message, while the attempt may still write."""
        await self._open()
        await self._write(self._store.status(self.claim, text))

    # -- within -----------------------------------------------------------------------------------------------------

    async def _enter(self, kind: str, name: str) -> None:
        await self._open()
        if not _NAME.fullmatch(name):
            raise UsageError(f"The name of a {kind} is 1 to 200 printable characters.")
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
            return await self._wait()

    def _require(self, request: dict[str, Any]) -> None:
        """Under 2026-07-28 a question may only be of a kind that the client declared (Multi Round-Trip Requests)."""
        if self.claim.revision == Revision.V2026_07_28:
            declared = json.loads(self.claim.capabilities)
            needed = _capability(request)
            if not _declares(declared, needed):
                raise ProtocolError(
                    code(ErrorKind.MISSING_CAPABILITY, Revision.V2026_07_28),
                    "Missing required client capability",
                    {"requiredCapabilities": needed},
                )


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


def _capability(request: dict[str, Any]) -> dict[str, Any]:
    match request["method"], request.get("params", {}).get("mode"):
        case "elicitation/create", "url":
            return {"elicitation": {"url": {}}}
        case "elicitation/create", _:
            return {"elicitation": {"form": {}}}
        case "sampling/createMessage", _:
            return {"sampling": {}}
        case _:
            return {"roots": {}}


def _declares(declared: dict[str, Any], needed: dict[str, Any]) -> bool:
    if needed == {"elicitation": {"form": {}}} and declared.get("elicitation") == {}:
        return True  # an empty object means forms
    return all(
        isinstance(declared.get(name), dict) and _declares(declared[name], inner) for name, inner in needed.items()
    )
