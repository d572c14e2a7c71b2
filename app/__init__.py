"""Perdure: long tool calls that survive, over the Model Context Protocol and PostgreSQL.

What a tool's author imports is here; a tool is a typed function:

    from app import ToolContext, tool

    @tool
    async def greet(ctx: ToolContext, name: str) -> str:
        \"\"\"Greet somebody.\"\"\"
        return f"Hello, {name}!"
"""

from app.domain.retry import Retry
from app.errors import ProtocolError, ToolError
from app.tools.context import Accepted, Declined, Dismissed, SyncToolContext, ToolContext
from app.tools.registry import tool
from app.version import __version__

__all__ = [
    "Accepted",
    "Declined",
    "Dismissed",
    "ProtocolError",
    "Retry",
    "SyncToolContext",
    "ToolContext",
    "ToolError",
    "__version__",
    "tool",
]
