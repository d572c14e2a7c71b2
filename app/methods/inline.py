"""Answering a call on its own request: the durable task runs unseen, and the reply waits for what becomes of it.

    created ── working ── completed            the tool's result
                 │    ╲── failed               its JSON-RPC error
                 │     ╲─ detached             the handle, if this request may have one; else it goes on waiting
                 ╰─────── input_required       InputRequiredResult; the retry with its requestState waits again

A client that closes the connection cancels its call, as long as no handle was given for it (core, "Cancellation").
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any
from uuid import UUID

from app.domain.fixed import fixed
from app.domain.task import Json, NewTask, Reply, Status, Task, TaskState
from app.errors import ErrorKind, ProtocolError, Refusal, StoreUnavailable
from app.methods.answers import outstanding_answers
from app.methods.call import Call, carry_through
from app.methods.progress import Progress
from app.methods.request_state import Origin, RequestStates, lapsed
from app.storage.store import Store
from app.storage.watches import Watches
from app.tools.catalogue import Entry
from app.tools.replay import CANNOT_BE_ASKED
from app.tools.results import error_result
from app.wire.envelope import dumps
from app.wire.input_requests import declares, input_required_result, needed_capability
from app.wire.revisions import missing_capability, missing_tasks_capability
from app.wire.server_info import signed
from app.wire.tasks import MAX_ANSWERS, create_result

WAIT_SECONDS = 15 * 60.0
"""How long a call is waited for whose tool has no timeout."""

QUEUE_SECONDS = 15.0
"""What is added to a tool's own timeout: that one counts from the start of an attempt, and ends the task itself."""

CANCELLED = signed(error_result("The task was cancelled."))
MUTE = signed(error_result(CANNOT_BE_ASKED))


@fixed
class Waiting:
    """A call that waits for its task."""

    call: Call
    entry: Entry
    arguments: dict[str, Any]
    text: Json
    """The arguments as JSON."""

    @property
    def origin(self) -> Origin:
        """What a requestState of it is bound to."""
        return Origin(self.call.owner, self.entry.name, self.arguments)

    @property
    def seconds(self) -> float:
        """How long it waits."""
        timeout = self.entry.options.timeout_ms
        return WAIT_SECONDS if timeout is None else timeout / 1000 + QUEUE_SECONDS


class Inline:
    """Waits for tasks on behalf of calls.

    Args:
        store: where the tasks are.
        watches: tells when one of them has changed.
        states: seals what clients carry to their retries.
        companions: whether there are tools that fetch the result of a call that was not waited for to its end.
        wait_seconds: in place of what the tool says; None for that.
    """

    def __init__(
        self,
        store: Store,
        watches: Watches,
        states: RequestStates,
        *,
        companions: bool = False,
        wait_seconds: float | None = None,
    ) -> None:
        self._store, self._watches, self._states = store, watches, states
        self._companions = companions
        self._wait_seconds = wait_seconds
        self._attached: Counter[UUID] = Counter()
        self._stopping = False

    async def create(self, waiting: Waiting, new: NewTask) -> Json:
        """Create a task and answer with what becomes of it.

        Responses that come with a first call are given to the questions that the task asks under their keys: the
        protocol lets a client answer what it has been asked before. A call with an idempotency key can be made again,
        and so it is not cancelled when its connection closes.

        Raises:
            Refusal: INVALID_PARAMS, for such a response that has not the shape of one, or a key of another request.
        """
        early = _responses(waiting.call.params)
        if new.idempotency is not None:
            task = await carry_through(self._store.create(new))
            return await self._reply(waiting, task.task_id, early)
        creating = asyncio.create_task(self._store.create(new))
        try:
            return await self._attach(waiting, new.task_id, creating, early)
        except Refusal:  # nobody has a state to go on with
            await self._cancel(new.owner, new.task_id)
            raise

    def stop(self) -> None:
        """From now on requests end because the process does, not because their clients have left."""
        self._stopping = True

    async def resume(self, waiting: Waiting) -> Json:
        """Hand a retry's answers to the task that its requestState stands for, and answer with what becomes of it.

        A state that was used before is as good as a new one: the answers that were recorded first stand.

        Raises:
            Refusal: INVALID_PARAMS, for a state or a response that cannot be taken.
        """
        task_id = self._states.open(waiting.call.params["requestState"], waiting.origin)
        responses = _responses(waiting.call.params)
        state = await self._store.get(waiting.call.owner, task_id)
        if state is None or state.task.expired:
            raise lapsed()
        answering = asyncio.create_task(self._hand_over(waiting.call, state, outstanding_answers(state, responses)))
        return await self._attach(waiting, task_id, answering, {})

    async def within_budget(self, task: Task, seconds: float) -> Json:
        """The result of a new task if it ends in this time, else its handle."""
        try:
            state = await self._settled(task, seconds)
        except StoreUnavailable:
            return create_result(task)  # it is committed, whatever happens to the database now
        return ended(state) if state.task.status.terminal else create_result(state.task)

    # -- within -----------------------------------------------------------------------------------------------------

    async def _attach(self, waiting: Waiting, task_id: UUID, writing: asyncio.Task[Any], early: dict[str, Any]) -> Json:
        """Wait for a task that `writing` creates or answers; the last one that leaves before the end cancels it.

        Where it is the process that leaves, a client that has a state can come back to its task.
        """
        self._attached[task_id] += 1
        try:
            await asyncio.shield(writing)
            return await self._reply(waiting, task_id, early)
        except asyncio.CancelledError:
            can_come_back = self._stopping and "requestState" in waiting.call.params
            if self._attached[task_id] == 1 and not can_come_back:
                await carry_through(self._abandon(waiting.call.owner, task_id, writing))
            raise
        finally:
            self._attached[task_id] -= 1
            if not self._attached[task_id]:
                del self._attached[task_id]

    async def _reply(self, waiting: Waiting, task_id: UUID, early: dict[str, Any]) -> Json:
        loop = asyncio.get_running_loop()
        end = loop.time() + (waiting.seconds if self._wait_seconds is None else self._wait_seconds)
        progress = Progress(waiting.call)
        with self._watches.on(task_id) as watch:
            while True:
                state = await self._store.get(waiting.call.owner, task_id)
                if state is None:
                    raise lapsed()
                await progress.tell_of(state.task)
                if answers := outstanding_answers(state, early):
                    await carry_through(self._hand_over(waiting.call, state, answers))
                    continue
                reply = self._reply_to(waiting, state)
                if reply is not None:
                    return reply
                if (left := end - loop.time()) <= 0:
                    return await self._out_of_time(waiting.call, state.task)
                await watch.wait(left)

    def _reply_to(self, waiting: Waiting, state: TaskState) -> Json | None:
        """What a task's state means for a call; None: nothing yet."""
        if state.task.status.terminal:
            return ended(state)
        if state.task.reply is Reply.TASK and waiting.call.context.declares_tasks:
            return create_result(state.task)
        if state.task.status is Status.INPUT_REQUIRED:
            return self._ask(waiting, state)
        return None

    def _ask(self, waiting: Waiting, state: TaskState) -> Json:
        context = waiting.call.context
        if context.legacy:
            return MUTE
        for question in state.questions:
            needed = needed_capability(json.loads(question.request))
            if not declares(context.capabilities, needed):
                raise missing_capability(needed)
        return input_required_result(state.questions, self._states.seal(state.task, waiting.origin))

    async def _hand_over(self, call: Call, state: TaskState, answers: dict[str, Json]) -> None:
        capabilities = dumps(call.context.capabilities)
        await self._store.answer(call.owner, state.task.task_id, answers, capabilities=capabilities)

    async def _out_of_time(self, call: Call, task: Task) -> Json:
        """The end of the wait: a handle for whoever can use one, or the way to the companion tools, or the end."""
        if call.context.declares_tasks:
            detached = await carry_through(self._store.detach_for(call.owner, task.task_id))
            return create_result(detached or task)
        if self._companions:
            await carry_through(self._store.detach_for(call.owner, task.task_id))
            return _goes_on(task)
        await self._cancel(call.owner, task.task_id)
        refusal = missing_tasks_capability()
        raise Refusal(refusal.kind, f"{refusal.message}, as the tool takes longer than a request may", refusal.data)

    async def _settled(self, task: Task, seconds: float) -> TaskState:
        """A task once it no longer works, or as it is when the time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        with self._watches.on(task.task_id) as watch:
            while True:
                state = await self._store.get(task.owner, task.task_id) or TaskState(task)
                if state.task.status is not Status.WORKING or (left := end - loop.time()) <= 0:
                    return state
                await watch.wait(left)

    async def _abandon(self, owner: str, task_id: UUID, writing: Awaitable[object]) -> None:
        """Nobody waits any more: cancel the task once what was being written is there, unless there is a handle."""
        with suppress(StoreUnavailable):
            await writing
            await self._cancel(owner, task_id)

    async def _cancel(self, owner: str, task_id: UUID) -> None:
        await carry_through(self._store.cancel(owner, task_id, reply=Reply.REQUEST))


def _responses(params: dict[str, Any]) -> dict[str, Any]:
    responses = params.get("inputResponses", {})
    if not isinstance(responses, dict):
        raise Refusal(ErrorKind.INVALID_PARAMS, "Invalid params: params.inputResponses must be an object")
    if len(responses) > MAX_ANSWERS:
        raise Refusal(ErrorKind.INVALID_PARAMS, f"Invalid params: params.inputResponses has more than {MAX_ANSWERS}")
    return responses


def ended(state: TaskState) -> Json:
    """The outcome of a task as the result of its call.

    Raises:
        ProtocolError: it failed.
    """
    if state.error is not None:
        error = json.loads(state.error)
        raise ProtocolError(error["code"], error["message"], error.get("data"))
    return CANCELLED if state.result is None else signed(state.result)


def _goes_on(task: Task) -> Json:
    """Not an error for the model, but none of the results that the tool's schema promises either."""
    text = (
        f"The work goes on, and this request has waited for it as long as it may. Its task is {task.task_id}: "
        "call task_result with that id for the result, task_answer if it asks something, task_cancel to stop it."
    )
    return signed(dumps({"content": [{"type": "text", "text": text}], "isError": False, "resultType": "complete"}))
