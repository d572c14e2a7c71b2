"""Waiting for what happens by itself, with an end to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(look: Callable[[], Awaitable[T | None]], *, seconds: float = 60.0) -> T:
    """Look again and again until there is something to see; fails when the time is over."""
    async with asyncio.timeout(seconds):
        while not (seen := await look()):
            await asyncio.sleep(0.01)
    return seen
