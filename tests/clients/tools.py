"""What the tests of clients call beside the examples."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from app import Accepted, Declined, ProtocolError, ToolContext, ToolError, tool

_running = 0


class Order(BaseModel):
    """What is asked."""

    copies: int


class Printed(BaseModel):
    """What comes of it."""

    copies: int


@tool(poll_interval="100ms")
async def print_copies(ctx: ToolContext) -> Printed:
    """Ask for a number of copies."""
    match await ctx.elicit("order", "How many?", Order):
        case Accepted(content):
            return Printed(copies=content.copies)
        case Declined():
            return Printed(copies=0)
    raise ToolError("Nobody said how many.")


@tool(poll_interval="100ms", starts="request")
async def confirm_first(ctx: ToolContext) -> str:
    """Ask before there is a task, and then again in it."""
    first = await ctx.elicit("first", "Now?", Order)
    await ctx.detach()
    second = await ctx.elicit("second", "And then?", Order)
    return f"{_copies(first)} and {_copies(second)}"


def _copies(answer: object) -> int:
    return answer.content.copies if isinstance(answer, Accepted) else 0


@tool(poll_interval="100ms")
async def hang(ctx: ToolContext) -> str:
    """Work until it is cancelled."""
    global _running
    _running += 1
    try:
        await ctx.status("Hanging")
        await asyncio.sleep(600)
    finally:
        _running -= 1
    return "never"


@tool(task="never")
async def hanging() -> int:
    """How many tasks hang, in this process."""
    return _running


@tool(poll_interval="100ms")
async def out_of_paper(how: str) -> str:
    """Fail in one of the two ways."""
    if how == "tool":
        raise ToolError("Out of paper.")
    raise ProtocolError(4711, "No printer", {"tray": 2})


@tool(poll_interval="1s")
async def count(ctx: ToolContext, seconds: int) -> str:
    """Count, slowly."""
    for second in range(seconds):
        await ctx.progress(second, seconds, f"second {second}")
        await asyncio.sleep(1)
    return f"counted to {seconds}"
