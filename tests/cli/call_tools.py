"""Tools that `perdure call` is tested with; they are polled ten times a second."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from app import Accepted, Declined, ProtocolError, ToolContext, ToolError, tool


class Profile(BaseModel):
    """A field of every kind."""

    name: str = Field(title="Your name", min_length=2)
    age: int = Field(ge=0, le=150)
    height: float
    colour: Literal["red", "green"]
    sizes: list[Literal["s", "m", "l"]] = ["m"]
    sure: bool = True
    mail: str | None = Field(default=None, json_schema_extra={"format": "email"})
    born: str | None = Field(default=None, json_schema_extra={"format": "date"})


@tool(poll_interval="100ms")
async def profile(ctx: ToolContext) -> dict[str, Any]:
    """Ask for a profile."""
    match await ctx.elicit("profile", "Who are you?", Profile):
        case Accepted(content):
            return content.model_dump()
        case Declined():
            return {"said": "no"}
    return {"said": "nothing"}


@tool(poll_interval="100ms")
async def visit(ctx: ToolContext) -> str:
    """Have a page opened."""
    return type(await ctx.elicit_url("page", "Sign in, please.", "https://accounts.example.com/in?id=1")).__name__


@tool(poll_interval="100ms")
async def echo(
    text: str,
    count: int = 0,
    ratio: float = 0,
    on: bool = False,
    tags: list[str] = [],  # noqa: B006
    more: dict[str, Any] = {},  # noqa: B006
    maybe: int | None = None,
) -> dict[str, Any]:
    """Return what it was called with."""
    return {"text": text, "count": count, "ratio": ratio, "on": on, "tags": tags, "more": more, "maybe": maybe}


@tool(poll_interval="100ms")
async def fail(how: str) -> str:
    """Fail as it is told to."""
    if how == "tool":
        raise ToolError("Out of \x1b[31mpaper.")
    raise ProtocolError(4711, "No printer")


@tool(poll_interval="100ms")
async def work(ctx: ToolContext, seconds: float = 600) -> str:
    """Work for some time, and say so."""
    await ctx.status("Working hard")
    await asyncio.sleep(seconds)
    return "done"


SURE = {"type": "object", "properties": {"sure": {"type": "boolean"}}}


@tool(poll_interval="100ms", starts="request")
async def confirm_first(ctx: ToolContext) -> str:
    """Ask before there is a task, and in it."""
    before = await ctx.elicit("before", "Are you sure?", SURE)
    await ctx.detach()
    within = await ctx.elicit("within", "Still?", SURE)
    return f"{isinstance(before, Accepted)}, {isinstance(within, Accepted)}"


@tool(task="never")
async def region(place: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Say where, which a header repeats."""
    return f"in {place}"
