"""Perdure: long tool calls that survive, over the Model Context Protocol and PostgreSQL.

What a tool's author imports is here; a tool is a typed function:

    from app import ToolContext, tool

    @tool
    async def greet(ctx: ToolContext, name: str) -> str:
        \"\"\"Greet somebody.\"\"\"
        return f"Hello, {name}!"

Each is loaded when it is first asked for: a command that needs none of them starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_HOMES = {
    "Retry": "app.domain.retry",
    "ProtocolError": "app.errors",
    "ToolError": "app.errors",
    "tool": "app.tools.registry",
    "__version__": "app.version",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES.get(name, "app.tools.context")), name)
    globals()[name] = found
    return found
