"""A tool that asks: the example of the Tasks extension ("Example Message Flow").

Nothing runs while the user thinks. The answer may come days later, to another process: the function then starts again
from the top, and this time `ctx.elicit` returns at once.
"""

from __future__ import annotations

from app import Accepted, Declined, ToolContext, tool

NAME_FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@tool(ttl="1h", retention="10m", poll_interval="5s")
async def hello_world(ctx: ToolContext) -> str:
    """Greet the user by name."""
    match await ctx.elicit("name", "Please enter your name.", NAME_FORM):
        case Accepted(content):
            # A JSON Schema is only shown to the client: what it sends is handed over as it came. The client of the
            # document's example sends the name in another field; a pydantic model would have it asked again.
            name = next((value for value in content.values() if isinstance(value, str)), "whoever you are")
            return f"Hello, {name}!"
        case Declined():
            return "Hello! You would rather not say your name, and that is fine."
        case _:
            return "Hello! You can tell me your name another time."
