"""ctx.detach: a call that is answered on its request becomes a task, if its client can use one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from app.domain.task import Reply, Status
from app.tools.context import SyncToolContext, ToolContext
from app.tools.registry import tool
from tests.support.rpc import TASKS
from tests.support.waiting import eventually
from tests.support.worker import OWNER, working

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
EVERYTHING = {**TASKS, "elicitation": {}}


async def test_a_client_that_knows_tasks_is_given_one_while_the_handler_goes_on(db_url: str) -> None:
    go_on = asyncio.Event()

    @tool(starts="request")
    async def begin(ctx: ToolContext) -> str:
        """Detach, and go on."""
        await ctx.detach()
        await go_on.wait()
        await ctx.detach()
        return "done"

    async with working(db_url, begin) as (tasks, _):
        task_id = await tasks.start(begin, capabilities=TASKS, reply=Reply.REQUEST)

        async def detached() -> bool:
            return (await tasks.read(task_id)).task.reply is Reply.TASK

        await eventually(detached)
        assert (await tasks.read(task_id)).task.version == 1
        go_on.set()
        assert (await tasks.reaches(task_id, Status.COMPLETED)).task.epoch == 1


async def test_a_question_can_come_before_the_task_and_another_after_it(db_url: str) -> None:
    @tool(starts="request")
    def begin(ctx: SyncToolContext) -> str:
        """Ask, detach, and ask for more."""
        ctx.elicit("first", "First?", FORM)
        ctx.detach()
        ctx.list_roots()
        return "done"

    async with working(db_url, begin) as (tasks, _):
        task_id = await tasks.start(begin, capabilities=EVERYTHING, reply=Reply.REQUEST)
        assert (await tasks.reaches(task_id, Status.INPUT_REQUIRED)).task.reply is Reply.REQUEST
        await tasks.answer(task_id, first={"name": "Ada"})

        async def asked_more() -> bool:
            return [q.key for q in (await tasks.read(task_id)).questions] == ["roots"]

        await eventually(asked_more)  # which the client did not declare: on its request it would not be asked
        assert (await tasks.read(task_id)).task.reply is Reply.TASK
        await tasks.store.answer(OWNER, task_id, {"roots": '{"roots":[]}'})  # type: ignore[dict-item]  # it is JSON text
        assert (await tasks.reaches(task_id, Status.COMPLETED)).task.epoch == 3


@pytest.mark.parametrize("capabilities", [{}, {"extensions": {}}, {"elicitation": {}}])
async def test_a_client_that_does_not_know_tasks_goes_on_waiting(db_url: str, capabilities: dict[str, Any]) -> None:
    @tool(starts="request")
    async def begin(ctx: ToolContext) -> str:
        """Detach."""
        await ctx.detach()
        return "done"

    async with working(db_url, begin) as (tasks, _):
        task_id = await tasks.start(begin, capabilities=capabilities, reply=Reply.REQUEST)
        assert (await tasks.reaches(task_id, Status.COMPLETED)).task.reply is Reply.REQUEST


@tool(starts="request", task="required")
async def insist(ctx: ToolContext) -> str:
    """Go on for nobody who cannot use a task."""
    await ctx.detach()
    return "done"


@pytest.mark.parametrize(
    ("revision", "number"), [(None, -32003), ("DRAFT-2026-v1", -32003), ("2026-07-28", -32021), ("2025-06-18", -32021)]
)
async def test_a_tool_that_insists_on_a_task_refuses_a_client_that_cannot_use_one(
    db_url: str, revision: str | None, number: int
) -> None:
    async with working(db_url, insist) as (tasks, _):
        task_id = await tasks.start(insist, revision=revision, reply=Reply.REQUEST)
        failed = await tasks.reaches(task_id, Status.FAILED)
    assert failed.error is not None
    error = json.loads(failed.error)
    assert error["code"] == number
    assert error["data"] == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


async def test_where_the_caller_has_the_handle_it_does_nothing_whatever_the_client_knows(db_url: str) -> None:
    async with working(db_url, insist) as (tasks, _):
        await tasks.reaches(await tasks.start(insist), Status.COMPLETED)


async def test_a_caller_that_was_told_meanwhile_how_to_come_back_is_not_refused(db_url: str) -> None:
    started, told = asyncio.Event(), asyncio.Event()

    @tool(starts="request", task="required")
    async def slow(ctx: ToolContext) -> str:
        """Take long before it insists on a task."""
        started.set()
        await told.wait()
        await ctx.detach()
        return "done"

    async with working(db_url, slow) as (tasks, _):
        task_id = await tasks.start(slow, reply=Reply.REQUEST)
        await started.wait()
        assert await tasks.store.detach_for(OWNER, task_id) is not None
        told.set()
        await tasks.reaches(task_id, Status.COMPLETED)
