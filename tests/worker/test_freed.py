"""What an attempt was made of is gone with it, and not left to the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from app.domain.retry import Retry
from app.errors import ToolError
from app.tools.context import SyncToolContext, ToolContext
from app.tools.registry import Tool, tool
from app.worker.attempt import Attempt
from tests.support.waiting import eventually
from tests.support.worker import working

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


@tool
async def returns(ctx: ToolContext) -> str:
    """Use all of the context that leaves something behind."""

    async def step() -> str:
        return "done"

    await ctx.status("halfway")
    await ctx.status("and on")
    return await ctx.step("one", step)


@tool
def returns_from_a_thread(ctx: SyncToolContext) -> str:
    """The same in a thread."""
    ctx.status("halfway")
    return ctx.step("one", lambda: "done")


@tool(timeout="1h")
async def refuses() -> str:
    """Fail as tools do."""
    raise ToolError("No.")


@tool
async def breaks(ctx: ToolContext) -> str:
    """Fail as tools should not."""
    raise OSError("Broken.")


@tool(retries=Retry(times=1, delay="1h", max="1h"))
async def breaks_and_is_tried_again(ctx: ToolContext) -> str:
    """Fail with hope."""
    raise OSError("Broken.")


@tool
async def leaves() -> str:
    """Try to end the process."""
    raise SystemExit(1)


@tool
async def asks(ctx: ToolContext) -> str:
    """Ask."""
    await ctx.elicit("who", "Who?", FORM)
    return "never"


@tool(timeout="100ms")
async def takes_too_long() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


TOOLS = (returns, returns_from_a_thread, refuses, breaks, breaks_and_is_tried_again, leaves, asks, takes_too_long)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("subject", TOOLS, ids=lambda subject: subject.name)
async def test_an_attempt_that_has_ended_is_freed_without_the_garbage_collector(
    db_url: str, subject: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[object]] = []
    async with working(db_url, subject) as (tasks, _):
        begin = Attempt.begin

        def watched(attempt: Attempt, over: Callable[[], object]) -> None:
            made.extend((weakref.ref(attempt), weakref.ref(attempt._replay)))
            begin(attempt, over)

        monkeypatch.setattr(Attempt, "begin", watched)
        await tasks.start(subject)

        async def freed() -> bool:
            return len(made) == 2 and not any(it() for it in made)

        await eventually(freed)
