"""The tools that are measured: they do nothing."""

from __future__ import annotations

from app.tools.registry import tool


@tool
async def noop(label: str) -> str:
    """Do nothing, as a task."""
    return label


@tool(task="never")
async def greet() -> str:
    """Do nothing, at once."""
    return "Hello, World!"
