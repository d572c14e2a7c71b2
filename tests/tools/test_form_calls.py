"""Forms that cannot be shown are found when a tool is loaded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from app.errors import DeclarationError
from app.tools.context import ToolContext
from app.tools.form_calls import check_forms
from app.tools.registry import Registry, tool


class Name(BaseModel):
    name: str


class Nested(BaseModel):
    who: Name


class Empty(BaseModel):
    pass


empty_form: dict[str, Any] = {"type": "object", "properties": {}}
forms = SimpleNamespace(Nested=Nested)

Handler = Callable[..., Awaitable[Any]]


async def model(ctx: ToolContext) -> None:
    await ctx.elicit("who", "Who?", Nested)


async def by_keyword(ctx: ToolContext) -> None:
    await ctx.elicit("who", "Who?", schema=Nested)


async def of_a_module(ctx: ToolContext) -> None:
    await ctx.elicit("who", "Who?", forms.Nested)


async def second_question(ctx: ToolContext) -> None:
    await ctx.elicit("who", "Who?", Name)
    if ctx.attempt > 1:
        await ctx.elicit("why", "Why?", Nested)


def in_closure() -> Handler:
    class Inner(BaseModel):
        who: Name

    async def handler(ctx: ToolContext) -> None:
        await ctx.elicit("who", "Who?", Inner)

    return handler


@pytest.mark.parametrize("fn", [model, by_keyword, of_a_module, second_question, in_closure()])
def test_a_nested_form_is_found(fn: Handler) -> None:
    assert "'who' is nested" in str(check_forms(fn))


async def written_out(ctx: ToolContext) -> None:
    await ctx.elicit("who", "Who?", {"type": "object", "properties": {}})


async def named(ctx: ToolContext) -> None:
    await ctx.elicit("who", "Who?", empty_form)


async def empty_model(ctx: ToolContext) -> None:
    await ctx.elicit("who", "Who?", Empty)


@pytest.mark.parametrize("fn", [written_out, named, empty_model])
def test_an_empty_form_is_found(fn: Handler) -> None:
    assert "no properties" in str(check_forms(fn))


async def well(ctx: ToolContext) -> None:
    await ctx.elicit("who", "Who?", Name)
    await ctx.elicit("why", "Why?", {"type": "object", "properties": {"why": {"type": "string"}}})


async def made_when_asked(ctx: ToolContext, kind: str) -> None:
    await ctx.elicit("who", "Who?", {"type": "object", "properties": {"who": {"type": kind}}})


async def given_a_value_inside(ctx: ToolContext) -> None:
    empty_form: dict[str, Any] = {"type": "object", "properties": {"who": {"type": "string"}}}
    await ctx.elicit("who", "Who?", empty_form)


async def asks_nobody(ctx: ToolContext) -> None:
    asked: list[Any] = []
    SimpleNamespace(elicit=lambda *args: asked.append(args)).elicit("who", "Who?", Nested)


def without_source() -> Handler:
    found: dict[str, Handler] = {}
    exec("async def handler(ctx): await ctx.elicit('who', 'Who?', {})", found)  # noqa: S102
    return found["handler"]


@pytest.mark.parametrize("fn", [well, made_when_asked, given_a_value_inside, asks_nobody, without_source()])
def test_what_may_be_well_is_left_alone(fn: Handler) -> None:
    assert check_forms(fn) is None


def test_a_tool_with_such_a_form_does_not_load_and_the_error_names_it_and_its_file() -> None:
    declared = tool(name="who_is_it", description="Ask who it is.")(model)
    with pytest.raises(DeclarationError, match=r"'who_is_it' in .*test_form_calls\.py:\d+: .*'who' is nested"):
        Registry([declared])
