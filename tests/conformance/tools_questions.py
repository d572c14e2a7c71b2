"""What the suite's scenarios of questions on the request call: tools that ask, of clients that know no tasks."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

from app import Accepted, Declined, Dismissed, ToolContext, tool


class Name(BaseModel):
    """A form for a name."""

    name: str


class Agreement(BaseModel):
    """A form to agree with."""

    ok: bool


class Color(BaseModel):
    """A form for a color."""

    color: str


def prompt(text: str, tokens: int) -> dict[str, Any]:
    """Params of a completion that starts with this text of the user."""
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return {"messages": [message], "maxTokens": tokens}


def greeting(answer: Accepted[Name] | Declined | Dismissed) -> str:
    """Greet whoever has answered."""
    return f"Hello, {answer.content.name if isinstance(answer, Accepted) else 'whoever you are'}!"


@tool
async def test_input_required_result_elicitation(ctx: ToolContext) -> str:
    """Ask for a name."""
    return greeting(await ctx.elicit("user_name", "What is your name?", Name))


@tool
async def test_streaming_elicitation(ctx: ToolContext) -> str:
    """Ask for a name, which shows that a question is no request of its own on the stream of the reply."""
    return greeting(await ctx.elicit("user_name", "What is your name?", Name))


@tool
async def test_input_required_result_sampling(ctx: ToolContext) -> str:
    """Ask the client's model."""
    answer = await ctx.sample("capital_question", prompt("What is the capital of France?", 100))
    return f"The model says: {answer.content}"


@tool
async def test_input_required_result_list_roots(ctx: ToolContext) -> str:
    """Ask for the client's folders."""
    return ", ".join(str(root.uri) for root in await ctx.list_roots("client_roots"))


@tool
async def test_input_required_result_request_state(ctx: ToolContext) -> str:
    """Ask, and complete when the state comes back with the answer."""
    await ctx.elicit("confirm", "Please confirm", Agreement)
    return "state-ok"


@tool
async def test_input_required_result_tampered_state(ctx: ToolContext) -> str:
    """Ask, and complete only when the state comes back as it was."""
    await ctx.elicit("confirm", "Please confirm", Agreement)
    return "state-ok"


@tool
async def test_input_required_result_multiple_inputs(ctx: ToolContext) -> str:
    """Ask one question of each kind, all at once."""
    name, text, roots = await asyncio.gather(
        ctx.elicit("user_name", "What is your name?", Name),
        ctx.sample("greeting", prompt("Generate a greeting", 50)),
        ctx.list_roots("client_roots"),
    )
    return f"{greeting(name)} The model says: {text.content}. There are {len(roots)} folders."


@tool
async def test_input_required_result_multi_round(ctx: ToolContext) -> str:
    """Ask a second question when the first is answered."""
    name = await ctx.elicit("step1", "Step 1: What is your name?", Name)
    color = await ctx.elicit("step2", "Step 2: What is your favorite color?", Color)
    return f"{greeting(name)} You like {color.content.color if isinstance(color, Accepted) else 'no color'}."


@tool
async def test_input_required_result_capabilities(ctx: ToolContext) -> str:
    """Ask in the ways that the client has declared."""
    asked = []
    if "elicitation" in ctx.capabilities:
        asked.append(greeting(await ctx.elicit("user_name", "What is your name?", Name)))
    if "sampling" in ctx.capabilities:
        asked.append(f"The model says: {(await ctx.sample('greeting', prompt('Generate a greeting', 50))).content}")
    return " ".join(asked)


@tool
async def test_missing_capability(ctx: ToolContext) -> str:
    """Ask the client's model, which fails where the client has none."""
    return f"The model says: {(await ctx.sample('greeting', prompt('Generate a greeting', 50))).content}"
