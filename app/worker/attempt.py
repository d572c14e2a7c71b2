"""One attempt at a task: run the handler, and write the one transition that ends the attempt."""

from __future__ import annotations

import asyncio
import contextvars
import json
import random
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from enum import StrEnum
from typing import Any

import structlog

from app.domain.task import Claim, Json, Question, Status, Task
from app.errors import (
    ErrorKind,
    InvalidArguments,
    ProtocolError,
    StaleAttempt,
    StoreUnavailable,
    ToolError,
    UnusableResult,
)
from app.storage.store import TIMED_OUT, Store
from app.tools.calling import alone, plainly
from app.tools.context import SyncToolContext, ToolContext
from app.tools.registry import Tool
from app.tools.replay import Replay, Stopping, Unwound, nobody
from app.tools.results import error_result, says_error
from app.tools.transactions import Transactions
from app.wire.envelope import dumps
from app.wire.revisions import code

log = structlog.get_logger(__name__)

INTERNAL = Json(dumps({"code": code(ErrorKind.INTERNAL, None), "message": "The tool failed with an internal error"}))
TRIED_AGAIN = "The tool failed, and is tried again after a pause"
CANCEL_SECONDS = 10.0
"""How long a handler may take to end after a cancel, before its task ends without it."""

MESSAGE_CHARACTERS = 2000
TRACEBACK_CHARACTERS = 20_000


class Outcome(StrEnum):
    """How an attempt ended, for operators."""

    COMPLETED = "completed"
    TOOL_ERROR = "tool_error"
    """Its result has isError."""
    FAILED = "failed"
    """With an error of the tool's own, or a result that cannot be sent."""
    INTERNAL_ERROR = "internal_error"
    TIMED_OUT = "timed_out"
    RETRIED = "retried"
    ASKED = "asked"
    RELEASED = "released"
    CANCELLED = "cancelled"
    STALE = "stale"
    """What it wrote came too late."""
    UNWRITTEN = "unwritten"
    """Its end could not be written; the task is released, or rescued, and runs again."""


_FAULTY = (Outcome.TOOL_ERROR, Outcome.FAILED, Outcome.INTERNAL_ERROR, Outcome.TIMED_OUT, Outcome.RETRIED)
FAULTY = frozenset(outcome.value for outcome in _FAULTY)
"""Those that are the tool's fault, or at least its error, as words."""


class Attempt:
    """Runs one claimed task until its attempt is over.

    Args:
        claim: what was claimed.
        tool: the tool that runs it.
        store: where the end of it is written.
        transactions: for steps that write to the same database.
        executor: runs `def` tools.
        max_result_bytes: a larger result fails the task.
        cancel_seconds: how long the handler may take to end after a cancel.
    """

    def __init__(
        self,
        claim: Claim,
        tool: Tool,
        store: Store,
        transactions: Transactions,
        executor: Executor,
        *,
        max_result_bytes: int = 10 * 1024 * 1024,
        cancel_seconds: float = CANCEL_SECONDS,
    ) -> None:
        self.claim = claim
        self._tool = tool
        self._store = store
        self._executor = executor
        self._max_result = max_result_bytes
        self._replay = Replay(claim, store, transactions, task_required=tool.options.task == "required")
        self._root: asyncio.Task[Any] | None = None
        self._over: Callable[[], object] = nobody
        self._context = contextvars.Context()
        self._returned = Json("")
        self._told = False
        self.outcome = Outcome.UNWRITTEN
        """How it ended, once it has."""
        self.fault: Exception | None = None
        """What broke the attempt off, once it has ended; None: nothing did, whatever its outcome."""
        self.handler_ended: Callable[[], object] = nobody
        """Called when the handler has ended, before the end of the attempt is written."""
        self._cancel_seconds = cancel_seconds
        self._overdue = False
        self._ending = False
        self._pausing: asyncio.Task[list[Question]] | None = None
        self._winding_up: asyncio.Task[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self._tool.name

    async def run(self) -> None:
        """Begin, and wait until it is over.

        Raises:
            Exception: what broke it off.
        """
        over = asyncio.Event()
        self.begin(over.set)
        await over.wait()
        if self.fault is not None:
            raise self.fault

    def begin(self, over: Callable[[], object]) -> None:
        """Start the handler. Faults of the tool end the task; faults of the store leave it to be released.

        Args:
            over: called when the handler has ended and the end of the attempt is written. Most handlers just return:
                then nothing but this callback waits for the write, and no second asyncio task is made.
        """
        self._over, self._context = over, contextvars.copy_context()
        self._replay.asked.rings, self._replay.stale.rings = self._pause, self._ring
        self._root = asyncio.create_task(self._handler(), name=f"tool {self._tool.name}")
        if (self._told or self._replay.stale.is_set) and self._tool.is_async:
            self._root.cancel()
        self._limit()
        self._root.add_done_callback(self._handler_is_done)
        if self._replay.stale.is_set:
            self._ring()

    def announce(self, reason: Stopping) -> None:
        """Let the handler see in `ctx.stopping` that it will be stopped, while it may still finish."""
        if self._replay.stopping is None:
            self._replay.stopping = reason

    def stop(self, reason: Stopping) -> None:
        """Stop the handler, once: an `async def` one is cancelled, a `def` one is unwound by its next call of ctx.

        A cancel lets a `def` one go on, that it can end in its own way: it polls `ctx.stopping`.
        """
        if self._told:
            return
        self._told = True
        self._replay.stopping = reason
        if reason == "cancel":
            self._timers.append(asyncio.get_running_loop().call_later(self._cancel_seconds, self._be_overdue))
        if self._tool.is_async and self._root is not None:
            self._root.cancel()
        elif not self._tool.is_async and reason != "cancel":
            self._replay.unwind()

    def abandon(self) -> None:
        """The task is no longer this attempt's: end the handler and write nothing."""
        self._replay.stale.set()

    # -- the handler ------------------------------------------------------------------------------------------------

    async def _handler(self) -> Any:
        arguments = self._tool.bind(json.loads(self.claim.params)["arguments"])
        if (parameter := self._tool.takes_context) is not None:
            capabilities = json.loads(self.claim.capabilities)
            kind = ToolContext if self._tool.is_async else SyncToolContext
            arguments[parameter] = kind(self._tool.name, self.claim.task.owner, capabilities, self._replay)
        try:
            if self._tool.is_async:
                return await self._tool.fn(**arguments)
            return await self._in_thread(arguments)
        except SystemExit as leaving:  # would end the loop, and every other task with it
            raise RuntimeError("The handler called sys.exit(); raise ToolError instead.") from leaving

    async def _in_thread(self, arguments: dict[str, Any]) -> Any:
        """Run a `def` tool in its thread. Cancelling this does not end the thread: it is waited for."""
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, context.run, plainly, self._tool.fn, arguments)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _handler_is_done(self, _: asyncio.Task[Any]) -> None:
        self.handler_ended()
        self._ring()

    def _ring(self) -> None:
        """What ends the attempt has happened: the handler ended or pauses or is overdue, or the task is not its own."""
        root = self._root
        if self._ending or root is None:
            return
        self._ending = True
        came: Json | BaseException | None = None
        if self._just_returned(root):
            came = self._came_to(root)
        if isinstance(came, str):
            self._returned = came
            self._store.finish_soon(self.claim, came, self._came)
        else:
            self._wind_up(self._otherwise(root, came))

    def _just_returned(self, root: asyncio.Task[Any]) -> bool:
        """Whether the handler ended, and there is nothing else to be seen to."""
        busy = self._overdue or self._replay.stale.is_set or self._pausing is not None
        return root.done() and not busy and self._replay.settled

    def _came(self, came: bool | Exception) -> None:
        self._context.run(self._written, came)

    def _written(self, came: bool | Exception) -> None:
        """What the handler returned was written together with others, or could not be."""
        outcome = Outcome.TOOL_ERROR if says_error(self._returned) else Outcome.COMPLETED
        if came is True:
            self.outcome = outcome
            self._leave()
        else:
            self._wind_up(self._settle(outcome, self._finish(came)))

    async def _finish(self, came: bool | Exception) -> Task:
        try:
            if isinstance(came, Exception):
                raise came
            return await self._store.finish(self.claim, self._returned)
        finally:
            del came  # a fault's traceback leads here

    def _wind_up(self, work: Coroutine[Any, Any, None]) -> None:
        """What is still to be done takes time."""
        # Whoever rang may have been the tool's own code: what its context holds is none of ours.
        self._winding_up = asyncio.create_task(self._to_the_end(work), context=self._context)

    async def _to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as fault:  # noqa: BLE001  it is told by who runs the attempt
            self.fault = fault
        finally:
            self._leave()

    def _leave(self) -> None:
        """The attempt is over."""
        self._close()
        for timer in self._timers:
            timer.cancel()
        if self._pausing is not None:
            self._pausing.cancel()
        self._replay.asked.rings = self._replay.stale.rings = nobody
        # No cycle is left for the garbage collector; an error, too, leads back here by its traceback.
        over, self._over, self._root, self._winding_up = self._over, nobody, None, None
        over()

    async def _otherwise(self, root: asyncio.Task[Any], came: BaseException | None) -> None:
        """End the attempt in another way than by just writing its result.

        Args:
            came: why the handler has none; None: it may have.
        """
        if self._overdue:
            await self._cancelled_without_it()
        elif self._replay.stale.is_set:
            self.outcome = Outcome.STALE
            log.info("attempt is stale", tool=self._tool.name)
        elif root.done() or self._pausing is None:
            await self._conclude(self._came_to(root) if came is None else came)
        else:
            await self._park(self._pausing.result())
        await self._unwind(root)

    def _be_overdue(self) -> None:
        self._overdue = True
        self._ring()

    def _pause(self) -> None:
        """The handler asks something: watch out for when it does nothing else any more."""
        if self._pausing is None:
            self._pausing = asyncio.create_task(self._replay.pause())
            self._pausing.add_done_callback(lambda _: self._ring())

    async def _cancelled_without_it(self) -> None:
        """The handler goes on though it was cancelled: its task ends now, its slot is free when it does."""
        log.warning("handler goes on after a cancel; its task has ended", tool=self._tool.name)
        await self._release()

    async def _park(self, questions: list[Question]) -> None:
        if self._replay.stopping == "deadline":
            await self._settle(Outcome.TIMED_OUT, self._store.fail(self.claim, *TIMED_OUT))
        else:
            await self._settle(Outcome.ASKED, self._store.ask(self.claim, questions))

    def _close(self) -> None:
        """From now on the handler's context does nothing."""
        if self._replay.stopping is None:
            self._replay.stopping = "question"
        self._replay.unwind()

    async def _unwind(self, root: asyncio.Task[Any]) -> None:
        """End a handler whose attempt is over, and drop what comes of it."""
        self._close()
        if self._tool.is_async:
            root.cancel()
        if not root.done():
            await asyncio.wait({root})
        if not root.cancelled():
            root.exception()  # looked at, so that it is not reported as never retrieved

    def _came_to(self, root: asyncio.Task[Any]) -> Json | BaseException:
        """The handler's result, or why there is none."""
        # Not raised again: a traceback that leads through here would hold the task that holds its error.
        error = asyncio.CancelledError() if root.cancelled() else root.exception()
        if error is not None:
            return error
        try:
            return self._result(root.result())
        except BaseException as raised:  # noqa: BLE001  whatever a tool raises ends its task, never the worker
            return raised

    async def _conclude(self, came: Json | BaseException) -> None:
        """Write what the handler came to."""
        if isinstance(came, BaseException):
            await self._raised(alone(came))
        else:
            outcome = Outcome.TOOL_ERROR if says_error(came) else Outcome.COMPLETED
            await self._settle(outcome, self._store.finish(self.claim, came))

    def _result(self, value: Any) -> Json:
        return self._bounded(self._tool.result(value))

    def _bounded(self, outcome: Json) -> Json:
        if len(outcome.encode()) > self._max_result:
            raise UnusableResult(f"The result is larger than {self._max_result} bytes.")
        return outcome

    async def _raised(self, error: BaseException) -> None:
        match error:
            case asyncio.CancelledError() | Unwound():
                await self._stopped()
            case InvalidArguments() | ToolError() | ProtocolError() | UnusableResult():
                await self._say(error)
            case Exception() if self._tool.retries.covers(error, self.claim.failures):
                await self._try_again(error)
            case _:
                await self._internal_error(error)

    async def _say(self, error: Exception) -> None:
        """End the task with what the tool says in its error, if that can be said."""
        try:
            end = self._end(error)
        except UnusableResult as unusable:
            error, end = unusable, self._end(unusable)
        except Exception as unfit:  # noqa: BLE001  what an error holds is the author's, and may break when it is written
            await self._internal_error(unfit)
            return
        tool_error = isinstance(error, InvalidArguments | ToolError)
        await self._settle(Outcome.TOOL_ERROR if tool_error else Outcome.FAILED, end)

    def _end(self, error: Exception) -> Coroutine[Any, Any, Any]:
        """The transition that an error of the tool's stands for."""
        if isinstance(error, InvalidArguments | ToolError):
            says = f"Invalid arguments: {error}" if isinstance(error, InvalidArguments) else str(error)
            return self._store.finish(self.claim, self._bounded(error_result(says)))
        if isinstance(error, ProtocolError):
            body = {"code": error.code, "message": error.message}
            text = self._bounded(dumps(body if error.data is None else body | {"data": error.data}))
            return self._store.fail(self.claim, text, storable(error.message))
        body = {"code": code(ErrorKind.INTERNAL, None), "message": str(error)}
        return self._store.fail(self.claim, dumps(body), str(error))

    async def _try_again(self, error: BaseException) -> None:
        """Another attempt is made after a pause, at which no worker waits."""
        pause = self._tool.retries.pause_ms(self.claim.failures, random.uniform(-1, 1))  # noqa: S311
        error, shown = _shown(error)
        log.warning("tool failed, and is tried again", tool=self._tool.name, attempt=self.claim.epoch, exc_info=error)
        await self._settle(Outcome.RETRIED, self._store.retry(self.claim, pause, TRIED_AGAIN, shown))

    async def _internal_error(self, error: BaseException) -> None:
        """Clients learn that it failed; operators learn why, from the log and from `task_attempts`."""
        error, shown = _shown(error)
        log.error("tool failed", tool=self._tool.name, attempt=self.claim.epoch, exc_info=error)
        message = "The tool failed with an internal error"
        failing = self._store.fail(self.claim, INTERNAL, message, internal=shown)
        await self._settle(Outcome.INTERNAL_ERROR, failing)

    async def _stopped(self) -> None:
        """The handler ended because it was told to, or because something cancelled it that was not Perdure."""
        match self._replay.stopping:
            case "cancel" | "shutdown":
                await self._release()
            case "deadline":
                await self._settle(Outcome.TIMED_OUT, self._store.fail(self.claim, *TIMED_OUT))
            case _:
                await self._internal_error(RuntimeError("The handler was cancelled, but not by Perdure."))

    async def _release(self) -> None:
        releasing = self._store.release(self.claim.worker_id, [(self.claim.task_id, self.claim.epoch)])
        await self._settle(Outcome.RELEASED, releasing)

    async def _settle(self, outcome: Outcome, transition: Coroutine[Any, Any, Task | list[Task]]) -> None:
        """Write the end of the attempt. What was written before by others stands; nothing is raised."""
        await self._replay.settle()
        try:
            self.outcome = _stands(outcome, await transition)
        except StaleAttempt:
            self.outcome = Outcome.STALE
            log.info("late write refused", tool=self._tool.name, attempt=self.claim.epoch)
        except StoreUnavailable:
            log.error("attempt could not be ended; it will be released and run again", tool=self._tool.name)

    def _limit(self) -> None:
        if self.claim.remaining_ms is not None:
            seconds = max(0.0, self.claim.remaining_ms / 1000)
            self._timers.append(asyncio.get_running_loop().call_later(seconds, self.stop, "deadline"))


def _stands(outcome: Outcome, written: Task | list[Task]) -> Outcome:
    """What a transition came to: a cancel that was pending goes first, and a release may find nothing."""
    task = written if isinstance(written, Task) else next(iter(written), None)
    if task is None:
        return Outcome.STALE
    return Outcome.CANCELLED if task.status is Status.CANCELLED else outcome


def _shown(error: BaseException) -> tuple[BaseException, str]:
    """An error and its traceback for operators; where its class keeps it from being shown, one that says so."""
    # An error's class, and the module that it comes from, are the author's, and may break when they are looked at.
    try:
        return error, _traceback(error)
    except Exception as broken:  # noqa: BLE001
        says = f"{type(error).__qualname__} was raised, and cannot be shown: {type(broken).__name__}"
    try:
        plain = RuntimeError(says).with_traceback(error.__traceback__)
        return plain, _traceback(plain)
    except Exception:  # noqa: BLE001
        return RuntimeError(says), says


def _traceback(error: BaseException) -> str:
    bool(error)  # whoever writes it to the log asks for that
    return storable("".join(traceback.format_exception(error)), TRACEBACK_CHARACTERS)


def storable(text: str, limit: int = MESSAGE_CHARACTERS) -> str:
    """Text as a `text` column can hold it: without NUL and halves of surrogate pairs, and of bounded length."""
    clean = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
