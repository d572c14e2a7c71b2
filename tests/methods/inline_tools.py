"""Tools whose calls are answered on the request in these tests, and the events through which a test steers them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from pydantic import BaseModel

from app.errors import ProtocolError, ToolError
from app.tools.context import Accepted, ToolContext
from app.tools.registry import Tool, tool

NAME: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Stage:
    """Where a tool waits for the test, and what it tells it. One a test."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.seen: Counter[str] = Counter()


class Sure(BaseModel):
    """A confirmation."""

    sure: bool


def make_tools(stage: Stage) -> list[Tool]:
    """The tools of one test."""

    @tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @tool
    async def wait_for_go(ctx: ToolContext, label: str = "") -> str:
        """Wait until the test says go."""
        stage.seen["started"] += 1
        try:
            await stage.go.wait()
        except asyncio.CancelledError:
            stage.seen[f"stopped: {ctx.stopping}"] += 1
            raise
        return f"gone {label}".strip()

    @tool
    async def report(ctx: ToolContext, text: bool = False) -> str:
        """Tell how it is getting on, step by step as the test says go."""
        for done in range(3):
            if text:
                await ctx.status(f"part {done}")
            else:
                await ctx.progress(done, 2, f"part {done}")
            stage.seen["told"] += 1
            await stage.go.wait()
            stage.go.clear()
        return "told"

    @tool
    async def fail(how: str) -> str:
        """Fail as it is told to."""
        match how:
            case "tool":
                raise ToolError("Out of paper.")
            case "protocol":
                raise ProtocolError(4711, "Out of paper", {"tray": 2})
            case "missing":
                raise ProtocolError(-32602, "No such tray")
            case _:
                raise RuntimeError("a secret of the inside")

    @tool
    async def greet_by_name(ctx: ToolContext, greeting: str = "Hello") -> str:
        """Ask for a name and greet."""
        match await ctx.elicit("name", "What is your name?", NAME):
            case Accepted(content):
                return f"{greeting}, {content['name']}!"
        return "Nobody to greet."

    @tool
    async def ask_twice(ctx: ToolContext) -> str:
        """Ask two things at once, and then a third."""
        one, two = await asyncio.gather(ctx.elicit("one", "The first?", NAME), ctx.elicit("two", "The second?", NAME))
        three = await ctx.elicit("three", "The third?", NAME)
        return " ".join(a.content["name"] if isinstance(a, Accepted) else "-" for a in (one, two, three))

    @tool(starts="request")
    async def confirm_first(ctx: ToolContext) -> str:
        """Ask before there is a task, and then work."""
        match await ctx.elicit("sure", "Are you sure?", Sure):
            case Accepted(Sure(sure=True)):
                await ctx.detach()
                await stage.go.wait()
                return "done as you wished"
        return "left alone"

    @tool(task="required", starts="request")
    async def confirm_then_task(ctx: ToolContext, work: bool = True) -> str:
        """Ask before there is a task, which it needs."""
        if work:
            await ctx.detach()
        return "done"

    @tool(task="required")
    async def only_as_task() -> str:
        """Work for those who can wait."""
        return "done"

    @tool(inline_budget="2s")
    async def maybe_quick(ctx: ToolContext, how: str = "quick") -> str:
        """Be quick, or not, or fail quickly, or ask."""
        match how:
            case "quick":
                return "quick"
            case "fail":
                raise ProtocolError(4711, "Quickly failed")
            case "ask":
                await ctx.elicit("name", "What is your name?", NAME)
                return "asked"
        await stage.go.wait()
        return "slow"

    found = [value for value in locals().values() if isinstance(value, Tool)]
    return sorted(found, key=lambda each: each.name)
