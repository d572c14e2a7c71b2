"""tasks/get, tasks/update and tasks/cancel (Tasks, "Task Polling", "Task Update Requests", "Task Cancellation").

A client that does not declare the extension learns nothing here: the gate comes before parameters and lookup. An id
that is malformed, unknown or another owner's is answered with the same words, so that none of them can be told apart.
"""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from app.domain.task import Json, TaskState
from app.errors import ErrorKind, Refusal
from app.methods.answers import outstanding_answers
from app.methods.call import Call, carry_through
from app.storage.store import Store
from app.wire.revisions import missing_tasks_capability
from app.wire.tasks import (
    EMPTY,
    CancelTaskParams,
    GetTaskParams,
    UpdateTaskParams,
    get_result,
    read_params,
    read_task_id,
)

P = TypeVar("P", GetTaskParams, UpdateTaskParams, CancelTaskParams)


class Tasks:
    """The methods of the Tasks extension.

    Args:
        store: where the tasks are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, call: Call) -> Json:
        """The state of a task, with what it asks and how it ended."""
        params = _params(call, GetTaskParams)
        return get_result(await self._state(call, params.task_id, "retrieve"))

    async def update(self, call: Call) -> Json:
        """Record responses to outstanding questions; those to any other key are passed over.

        Either all of them have the shape of a response, or nothing is recorded.
        """
        params = _params(call, UpdateTaskParams)
        state = await self._state(call, params.task_id, "update")
        responses = outstanding_answers(state, params.input_responses)
        if responses:
            await carry_through(self._store.answer(call.owner, state.task.task_id, responses))
        return EMPTY

    async def cancel(self, call: Call) -> Json:
        """Ask for a task to be cancelled; one that has ended already is left as it is."""
        params = _params(call, CancelTaskParams)
        task_id = _task_id(params.task_id, "cancel")
        if await carry_through(self._store.cancel(call.owner, task_id)) is None:
            await self._state(call, params.task_id, "cancel")
        return EMPTY

    async def _state(self, call: Call, text: str, doing: str) -> TaskState:
        state = await self._store.get(call.owner, _task_id(text, doing))
        if state is None:
            raise _failed(doing, "Task not found")
        if state.task.expired:
            raise _failed(doing, "Task has expired")
        return state


def _params(call: Call, model: type[P]) -> P:
    if not call.context.declares_tasks:
        raise missing_tasks_capability()
    return read_params(model, call.params)


def _task_id(text: str, doing: str) -> UUID:
    task_id = read_task_id(text)
    if task_id is None:
        raise _failed(doing, "Task not found")
    return task_id


def _failed(doing: str, why: str) -> Refusal:
    """The document's own words (Tasks, "Protocol Errors")."""
    return Refusal(ErrorKind.INVALID_PARAMS, f"Failed to {doing} task: {why}")
