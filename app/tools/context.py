"""The context that a tool's function gets: durable steps, questions to the user, and what is known of its task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

import structlog
from mcp_types import CreateMessageRequestParams, CreateMessageResult, ListRootsResult, Root
from pydantic import BaseModel, ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.urls import is_secure
from app.errors import ToolError, UsageError
from app.tools.forms import form_schema, reasons
from app.tools.replay import Replay, Stopping, memo, rebuild
from app.tools.reports import Report, checked_message, progress_report

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Content = TypeVar("Content")
R = TypeVar("R")

ROUNDS = 20
"""So often a form is asked for until an answer fits."""

ReportTo = Callable[[float, float | None, str | None], Awaitable[None]]
"""Told of the progress of a tool that has no task: done, total and message, as the tool gave them."""


@dataclass(frozen=True, slots=True)
class Accepted(Generic[Content]):
    """The user agreed. `content` is the form as filled in: the model that was asked for, or plain data."""

    content: Content


@dataclass(frozen=True, slots=True)
class Declined:
    """The user said no."""


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The user closed the question without a choice."""


class ContextFacts:
    """What both kinds of context know.

    Args:
        tool: the tool's name.
        owner: the principal that calls.
        capabilities: what the client declared.
        replay: the attempt behind it; None in a tool that runs in the API's process and has no task.
        report: told of the progress of such a tool; None where nobody listens.
    """

    def __init__(
        self,
        tool: str,
        owner: str,
        capabilities: dict[str, Any],
        replay: Replay | None,
        report: ReportTo | None = None,
    ) -> None:
        self._attempt = replay
        self._report = report
        self.task_id: str | None = str(replay.claim.task_id) if replay else None
        """The task's id. It is a secret of its owner: keep it out of logs."""
        self.owner = owner
        """The principal that created the task."""
        self.attempt = replay.claim.epoch if replay else 1
        """The number of this attempt, from 1. A question, a crash and a deploy each lead to another attempt."""
        self.capabilities = capabilities
        """What the client declared that it can do."""
        self.log: structlog.stdlib.BoundLogger = structlog.get_logger("tool").bind(tool=tool, attempt=self.attempt)
        """A structured logger that names the tool and the attempt."""

    @property
    def _replay(self) -> Replay:
        if self._attempt is None:
            raise UsageError('A tool with task="never" has no steps, no questions and no status: it has no task.')
        return self._attempt

    @property
    def stopping(self) -> Stopping | None:
        """Why the handler is being stopped, or None: "cancel", "deadline", "shutdown" or "question"."""
        return self._attempt.stopping if self._attempt else None


class ToolContext(ContextFacts):
    """The context of an `async def` tool."""

    async def step(self, name: str, fn: Callable[[], Awaitable[T]], *, returns: type[T] | None = None) -> T:
        """Run fn once over all attempts; a replay gets the stored value instead.

        Args:
            name: the step's name, once in an attempt.
            fn: what to run. A crash between its effect and the record of it makes it run again.
            returns: the type to rebuild the value as; without it the value comes back as plain JSON data.

        Raises:
            UsageError: the name is used twice, or the value is not JSON.
        """
        if (stored := await self._replay.recall(name)) is None:
            try:
                stored = await self._replay.record(name, memo(name, await fn()))
            finally:
                self._replay.done()
        value: T = rebuild(stored, returns)
        return value

    async def transaction(
        self, name: str, fn: Callable[[AsyncConnection], Awaitable[T]], *, returns: type[T] | None = None
    ) -> T:
        """Run fn with a connection to Perdure's database; its writes happen exactly once over all attempts.

        The writes commit together with the memory of the step, and only while the attempt still holds its task.

        Args:
            name: the step's name, once in an attempt.
            fn: gets a SQLAlchemy connection inside a transaction; it must not commit, nor use the context.
            returns: the type to rebuild the value as; without it the value comes back as plain JSON data.

        Raises:
            UsageError: the name is used twice, or the value is not JSON.
        """
        if (stored := await self._replay.recall(name)) is None:
            try:
                stored = await self._replay.record_transaction(name, fn)
            finally:
                self._replay.done()
        value: T = rebuild(stored, returns)
        return value

    @overload
    async def elicit(self, key: str, message: str, schema: type[M]) -> Accepted[M] | Declined | Dismissed: ...
    @overload
    async def elicit(
        self, key: str, message: str, schema: dict[str, Any]
    ) -> Accepted[dict[str, Any]] | Declined | Dismissed: ...
    async def elicit(
        self, key: str, message: str, schema: type[BaseModel] | dict[str, Any]
    ) -> Accepted[Any] | Declined | Dismissed:
        """Ask the user to fill in a form; the answer may come days later, to another worker.

        Args:
            key: names the question over the task's life.
            message: what the user is asked.
            schema: a pydantic model, or a JSON Schema with flat, primitive properties. An answer that does not fit a
                model is asked for again, under a new key; one to a JSON Schema is handed over as it came.

        Raises:
            UsageError: the key stands for another question, or the form is empty, nested or very large.
            ProtocolError: the client did not declare that it can be asked (revision 2026-07-28).
            ToolError: it was asked for ROUNDS times, and no answer fitted.
        """
        form = form_schema(schema)
        asked, wording = 1, message
        while True:
            params = {"mode": "form", "message": wording, "requestedSchema": form}
            this_key = key if asked == 1 else f"{key}#{asked}"
            answer = await self._replay.ask(this_key, {"method": "elicitation/create", "params": params})
            if answer["action"] != "accept":
                return _refused(answer)
            content = answer.get("content") or {}
            if isinstance(schema, dict):
                return Accepted(content)
            try:
                return Accepted(schema.model_validate(content))
            except ValidationError as invalid:
                if asked == ROUNDS:
                    raise ToolError(f"No answer fitted the form, though it was asked for {ROUNDS} times.") from invalid
                asked, wording = asked + 1, f"{message}\n\n{reasons(invalid)}"

    async def elicit_url(
        self, key: str, message: str, url: str, *, allow_http: bool = False
    ) -> Accepted[None] | Declined | Dismissed:
        """Ask the user to open a page, for what must not pass through the client.

        Accepted means that the user agreed to open it, not that they finished there.

        Args:
            url: an https address; an http one only on the user's own machine.
            allow_http: take http for any host (core, "Elicitation", "Safe URL Handling").

        Raises:
            UsageError: the key stands for another question, or the address is none to send a user to.
            ProtocolError: the client did not declare that it can be asked (revision 2026-07-28).
        """
        if not is_secure(url, elsewhere=allow_http):
            raise UsageError("ctx.elicit_url() takes an https address with a host, and without a name before it.")
        params = {"mode": "url", "message": message, "url": url}
        answer = await self._replay.ask(key, {"method": "elicitation/create", "params": params})
        return Accepted(None) if answer["action"] == "accept" else _refused(answer)

    async def sample(self, key: str, params: CreateMessageRequestParams | dict[str, Any]) -> CreateMessageResult:
        """Ask the client's model for a completion.

        Raises:
            UsageError: the key stands for another question, or params are not those of `sampling/createMessage`.
            ProtocolError: the client did not declare sampling (revision 2026-07-28).
        """
        try:
            checked = CreateMessageRequestParams.model_validate(params)
        except ValidationError as invalid:
            raise UsageError("The params of ctx.sample() are not those of sampling/createMessage.") from invalid
        wire = checked.model_dump(mode="json", by_alias=True, exclude_none=True)
        answer = await self._replay.ask(key, {"method": "sampling/createMessage", "params": wire})
        return CreateMessageResult.model_validate(answer)

    async def list_roots(self, key: str = "roots") -> list[Root]:
        """Ask the client for the folders that it lets servers work in.

        Raises:
            UsageError: the key stands for another question.
            ProtocolError: the client did not declare roots (revision 2026-07-28).
        """
        answer = await self._replay.ask(key, {"method": "roots/list", "params": {}})
        return ListRootsResult.model_validate(answer).roots

    async def status(self, text: str) -> None:
        """Tell clients how the task is getting on (statusMessage), until its state changes.

        Call it, and `progress`, as often as you like: of what comes faster than four times a second, only the newest
        is stored.

        Raises:
            UsageError: the text is empty, too long, or has characters that cannot be stored; or there is no task.
        """
        await self._replay.report(Report(checked_message(text)))

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell how much is done: as progress to clients that wait on their request, and as a status message to all.

        Args:
            done: in any unit, and more each time.
            total: how much there is to do, in the same unit; None where that is not known.
            message: what to tell people; by default "3 of 10", or "3" without a total.

        Raises:
            UsageError: a number is not finite, total is not positive, or the message cannot be one of `status`.
        """
        report = progress_report(done, total, message)
        if self._attempt is not None:
            await self._attempt.report(report)
        else:
            if self._report is not None:
                await self._report(done, total, message)
            await asyncio.sleep(0)

    async def detach(self) -> None:
        """Give a caller that waits on its request the handle of the task; from here on it survives a disconnect.

        For tools with `starts="request"`, once they have asked what they have to. Where the caller has the handle, this
        does nothing; where it cannot use one, neither, but for tools with `task="required"`.

        Raises:
            ProtocolError: the client does not know tasks, and the tool insists on one.
        """
        await self._replay.detach()


class SyncToolContext(ContextFacts):
    """The context of a `def` tool: the same methods, blocking the tool's thread.

    There is no `transaction`: its function would have to be asynchronous.
    """

    def __init__(
        self,
        tool: str,
        owner: str,
        capabilities: dict[str, Any],
        replay: Replay | None,
        report: ReportTo | None = None,
    ) -> None:
        super().__init__(tool, owner, capabilities, replay, report)
        self._async = ToolContext(tool, owner, capabilities, replay, report)
        self._loop = asyncio.get_running_loop()

    def step(self, name: str, fn: Callable[[], T], *, returns: type[T] | None = None) -> T:
        """As `ToolContext.step`; fn is a plain function and runs in this thread."""
        if (stored := self._wait(self._replay.recall(name))) is None:
            try:
                stored = self._wait(self._replay.record(name, memo(name, fn())))
            finally:
                self._loop.call_soon_threadsafe(self._replay.done)
        value: T = rebuild(stored, returns)
        return value

    @overload
    def elicit(self, key: str, message: str, schema: type[M]) -> Accepted[M] | Declined | Dismissed: ...
    @overload
    def elicit(
        self, key: str, message: str, schema: dict[str, Any]
    ) -> Accepted[dict[str, Any]] | Declined | Dismissed: ...
    def elicit(
        self, key: str, message: str, schema: type[BaseModel] | dict[str, Any]
    ) -> Accepted[Any] | Declined | Dismissed:
        """As `ToolContext.elicit`. Without an answer the thread is unwound by an exception: do not catch it."""
        return self._wait(self._async.elicit(key, message, schema))

    def elicit_url(
        self, key: str, message: str, url: str, *, allow_http: bool = False
    ) -> Accepted[None] | Declined | Dismissed:
        """As `ToolContext.elicit_url`."""
        return self._wait(self._async.elicit_url(key, message, url, allow_http=allow_http))

    def sample(self, key: str, params: CreateMessageRequestParams | dict[str, Any]) -> CreateMessageResult:
        """As `ToolContext.sample`."""
        return self._wait(self._async.sample(key, params))

    def list_roots(self, key: str = "roots") -> list[Root]:
        """As `ToolContext.list_roots`."""
        return self._wait(self._async.list_roots(key))

    def status(self, text: str) -> None:
        """As `ToolContext.status`."""
        self._wait(self._async.status(text))

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """As `ToolContext.progress`."""
        self._wait(self._async.progress(done, total, message))

    def detach(self) -> None:
        """As `ToolContext.detach`."""
        self._wait(self._async.detach())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._attempt is None:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        return self._attempt.call(self._loop, work)


def _refused(answer: dict[str, Any]) -> Declined | Dismissed:
    return Declined() if answer["action"] == "decline" else Dismissed()
