"""Tools through which clients that know nothing of tasks reach a task all the same.

They are offered where the setting says so: a call that its request cannot wait for then ends with the id of its task,
and any host can fetch the result later. Each acts for the principal that calls, as `tasks/*` does.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal

from mcp_types import CallToolResult
from pydantic import Field

from app.domain.task import Status, TaskState
from app.errors import Refusal, ToolError
from app.methods.answers import check_answer
from app.methods.call import carry_through
from app.storage.store import Store
from app.storage.watches import Watches
from app.tools.context import ToolContext
from app.tools.registry import Tool, tool
from app.wire.envelope import dumps
from app.wire.tasks import read_task_id

TaskId = Annotated[str, Field(description="The task's id, as the tool's own result gave it.")]


def companion_tools(store: Store, watches: Watches) -> list[Tool]:
    """The tools `task_result`, `task_answer` and `task_cancel`."""

    @tool(task="never")
    async def task_result(
        ctx: ToolContext,
        task_id: TaskId,
        wait_seconds: Annotated[int, Field(ge=0, le=50, description="How long to wait for the end.")] = 20,
    ) -> CallToolResult:
        """Get the result of a task that a tool started, or what the task asks, or how it is getting on."""
        return _told(await _settled(store, watches, ctx.owner, task_id, wait_seconds))

    @tool(task="never")
    async def task_answer(
        ctx: ToolContext,
        task_id: TaskId,
        key: Annotated[str, Field(description="The question's key, as task_result gave it.")],
        action: Annotated[
            Literal["accept", "decline", "cancel"], Field(description="What the user chose to do with the question.")
        ],
        content: Annotated[
            dict[str, Any] | None, Field(description="The form as the user filled it in, with accept.")
        ] = None,
    ) -> str:
        """Answer a question of a task with what the user said. Never make an answer up: ask the user."""
        state = await _state(store, ctx.owner, task_id)
        question = next((question for question in state.questions if question.key == key), None)
        if question is None:
            raise ToolError("The task does not ask that, or not any more. task_result tells what it asks.")
        response: dict[str, Any] = {"action": action}
        if content is not None:
            response["content"] = content
        try:
            check_answer(question, response)
        except Refusal as refused:
            raise ToolError(refused.message) from None
        await carry_through(store.answer(ctx.owner, state.task.task_id, {key: dumps(response)}))
        return "The answer was handed over. Call task_result for what comes of it."

    @tool(task="never")
    async def task_cancel(ctx: ToolContext, task_id: TaskId) -> str:
        """Stop a task that a tool started."""
        state = await _state(store, ctx.owner, task_id)
        await carry_through(store.cancel(ctx.owner, state.task.task_id))
        return "The task is being stopped."

    return [task_result, task_answer, task_cancel]


async def _settled(store: Store, watches: Watches, owner: str, text: str, seconds: float) -> TaskState:
    """The task once it has ended or asks something, or as it is when the time is over."""
    state = await _state(store, owner, text)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    with watches.on(state.task.task_id) as watch:
        while state.task.status is Status.WORKING and (left := end - loop.time()) > 0:
            await watch.wait(left)
            state = await _state(store, owner, text)
    return state


async def _state(store: Store, owner: str, text: str) -> TaskState:
    task_id = read_task_id(text)
    state = None if task_id is None else await store.get(owner, task_id)
    if state is None:
        raise ToolError("Task not found.")
    if state.task.expired:
        raise ToolError("The task has expired: its result is no longer kept.")
    return state


def _told(state: TaskState) -> CallToolResult:
    match state.task.status:
        case Status.COMPLETED if state.result is not None:
            return CallToolResult.model_validate_json(state.result)
        case Status.FAILED if state.error is not None:
            raise ToolError(f"The task failed: {json.loads(state.error)['message']}")
        case Status.CANCELLED:
            raise ToolError("The task was cancelled.")
        case Status.INPUT_REQUIRED:
            return _text("The task asks the user something. Give each answer with task_answer.", *_questions(state))
        case _:
            says = state.task.status_message
            return _text("The task is still working.", *([f"It says: {says}"] if says else []), "Ask again later.")


def _questions(state: TaskState) -> list[str]:
    return [f"key {dumps(question.key)}: {question.request}" for question in state.questions]


def _text(*lines: str) -> CallToolResult:
    return CallToolResult.model_validate({"content": [{"type": "text", "text": "\n".join(lines)}]})
