"""What the suite's tasks-* scenarios call: tools that work, fail, and ask while they are tasks."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import BaseModel, Field

from app import Accepted, ProtocolError, ToolContext, ToolError, tool


class Name(BaseModel):
    """A form for a name."""

    name: str


class Confirmation(BaseModel):
    """A form to agree with."""

    confirm: bool


@tool(task="never")
def a_plain_tool() -> str:
    """Be the first in the list of tools, and take nothing: the suite calls whatever comes first, without arguments."""
    return "plain"


@tool(task="never")
def greet(name: str) -> str:
    """Greet somebody at once."""
    return f"Hello, {name}!"


@tool
async def slow_compute(seconds: Annotated[float, Field(ge=0, le=3600)], label: str = "computing") -> str:
    """Compute for some seconds."""
    await asyncio.sleep(seconds)
    return f"{label}: done after {seconds:g} seconds"


@tool(task="required")
async def failing_job() -> str:
    """Fail after a second, in a way that the caller should read."""
    await asyncio.sleep(1)
    raise ToolError("The job failed.")


@tool
async def protocol_error_job() -> str:
    """Fail with an error of the protocol."""
    raise ProtocolError(-32603, "The job broke down")


@tool
async def confirm_delete(ctx: ToolContext, filename: str) -> str:
    """Delete a file, after asking."""
    answer = await ctx.elicit("confirm", f"Delete {filename}?", Confirmation)
    agreed = isinstance(answer, Accepted) and answer.content.confirm
    return f"Deleted {filename}" if agreed else f"Kept {filename}"


@tool
async def multi_input(ctx: ToolContext) -> str:
    """Ask two questions at once."""
    name, confirmation = await asyncio.gather(
        ctx.elicit("name", "What is your name?", Name), ctx.elicit("confirm", "Are you sure?", Confirmation)
    )
    return f"{type(name).__name__} and {type(confirmation).__name__}"


@tool(task="required", starts="request")
async def test_tool_with_task(ctx: ToolContext) -> str:
    """Ask for a name on the request, and go on as a task."""
    answer = await ctx.elicit("name", "What is your name?", Name)
    await ctx.detach()
    await asyncio.sleep(0.2)
    return f"Hello, {answer.content.name if isinstance(answer, Accepted) else 'whoever you are'}!"
