"""A tool that takes its time, tells how it gets on, and can be cancelled.

It has no steps: if its worker dies, another one starts it from the beginning. `load_csv` shows a tool that goes on.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field

from app import ToolContext, tool

SLICE_SECONDS = 0.1


@tool
async def slow_compute(
    ctx: ToolContext,
    seconds: Annotated[float, Field(ge=0, le=86_400)],
    label: Annotated[str, Field(min_length=1, max_length=100)] = "Computing",
) -> str:
    """Compute for some time.

    Args:
        seconds: how long.
        label: what the work is called in the status and in the result.
    """
    now = asyncio.get_running_loop().time
    started = now()
    try:
        while (passed := now() - started) < seconds:
            await ctx.progress(round(passed, 1), seconds, f"{label}: {passed:.0f} of {seconds:g} seconds")
            await asyncio.sleep(min(SLICE_SECONDS, seconds - passed))
    except asyncio.CancelledError:
        # The place to tidy up. Return something instead of raising, and that is the task's result.
        ctx.log.info("stopped", why=ctx.stopping)
        raise
    return f"{label}: done after {seconds:g} seconds"
