"""Tools that the tests of the API offer: some that run in its process, some that only a worker could run."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

from app.errors import ProtocolError, ToolError
from app.tools.context import SyncToolContext, ToolContext
from app.tools.registry import Registry, Tool, tool


@tool
async def job(count: int = 1, note: Any = None) -> str:
    """Do something that takes a while."""
    raise AssertionError("no worker runs in these tests")


@tool(task="required", priority=3, ttl="1h", retention="10m", poll_interval="5s")
async def careful_job() -> str:
    """Do something for callers that can wait."""
    raise AssertionError("no worker runs in these tests")


@tool(task="never")
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


class Surroundings(BaseModel):
    """What a function sees of where it runs."""

    owner: str
    capabilities: dict[str, Any]
    task_id: str | None
    main_thread: bool


@tool(task="never")
async def look_around(ctx: ToolContext) -> Surroundings:
    """Say where this runs, on the loop."""
    return _look(ctx)


@tool(task="never")
def look_around_in_thread(ctx: SyncToolContext) -> Surroundings:
    """Say where this runs, in a thread."""
    return _look(ctx)


def _look(ctx: ToolContext | SyncToolContext) -> Surroundings:
    return Surroundings(
        owner=ctx.owner,
        capabilities=ctx.capabilities,
        task_id=ctx.task_id,
        main_thread=threading.current_thread() is threading.main_thread(),
    )


@tool(task="never")
async def refuse() -> str:
    """Fail in a way that the caller should read."""
    raise ToolError("The warehouse is closed.")


@tool(task="never")
async def sign() -> CallToolResult:
    """Return a result with its own metadata."""
    return CallToolResult.model_validate({"content": [], "_meta": {"com.example/page": 2}})


@tool(task="never")
async def sign_inside() -> TextContent:
    """Return a text with its own metadata."""
    return TextContent.model_validate({"type": "text", "text": "signed", "_meta": {"com.example/page": 2}})


@tool(task="never")
async def protest() -> str:
    """End with an error of the protocol."""
    raise ProtocolError(4711, "Out of paper", {"tray": 2})


@tool(task="never")
async def mumble() -> str:
    """End with an error of the protocol that is not JSON."""
    raise ProtocolError(4712, "Out of paper", {"tray": object()})


@tool(task="never")
async def crash(ctx: ToolContext, how: str = "error") -> Any:
    """Break in one of many ways."""
    match how:
        case "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(_close())
        case "cancelled":
            raise asyncio.CancelledError
        case "step":
            return await ctx.step("a", _close)
        case "exit":
            raise SystemExit(3)
        case "unwritable":
            return object()
        case _:
            raise RuntimeError("secret-detail")


async def _close() -> None:
    raise ToolError("The warehouse is closed.")


@tool(task="never")
def crash_in_thread(how: str = "error") -> str:
    """Break in a thread."""
    match how:
        case "stop":
            raise StopIteration
        case "exit":
            raise SystemExit(3)
        case _:
            raise RuntimeError("secret-detail")


LOCAL: tuple[Tool, ...] = (
    greet,
    look_around,
    look_around_in_thread,
    refuse,
    sign,
    sign_inside,
    protest,
    mumble,
    crash,
    crash_in_thread,
)
SHARED: tuple[Tool, ...] = (job, careful_job)


def registry(*more: Tool) -> Registry:
    """All of them, and more."""
    return Registry([*LOCAL, *SHARED, *more])
