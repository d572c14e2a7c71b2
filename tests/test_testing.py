"""Tools tested as their authors would test them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app import Accepted, Declined, Dismissed, SyncToolContext, ToolContext, ToolError, tool
from app.domain.task import Status
from app.testing import UnansweredError, harness


class Sure(BaseModel):
    """Whether to go on."""

    yes: bool


charged: list[int] = []


@tool
async def order(ctx: ToolContext, item: str) -> str:
    """Order something, after asking."""

    async def charge() -> int:
        charged.append(ctx.attempt)
        return 5

    answer = await ctx.elicit("sure", f"Order {item}?", Sure)
    match answer:
        case Accepted(content) if content.yes:
            price = await ctx.step("charge", charge)
            return f"ordered {item} for {price}"
        case Accepted() | Declined():
            raise ToolError("nothing was ordered")
        case Dismissed():
            return "later"


async def test_a_crash_after_a_step_does_not_run_it_again(db_url: str) -> None:
    charged.clear()
    async with harness(db_url) as perdure:
        run = await perdure.run(order, answers={"sure": Sure(yes=True)}, crash_after=["charge"], item="book")
    assert (run.status, run.text) == (Status.COMPLETED, "ordered book for 5")
    assert (run.questions, run.steps, run.attempts, run.losses) == (["sure"], ["charge"], 3, 1)
    assert charged == [2]


@pytest.mark.parametrize(
    ("answer", "said", "is_error"),
    [
        ({"yes": True}, "ordered book for 5", False),
        (Accepted({"yes": False}), "nothing was ordered", True),
        (Declined(), "nothing was ordered", True),
        (Dismissed(), "later", False),
        (lambda request: {"yes": "book" in request["params"]["message"]}, "ordered book for 5", False),
    ],
)
async def test_answers_are_given_as_scripted(db_url: str, answer: Any, said: str, is_error: bool) -> None:
    async with harness(db_url) as perdure:
        run = await perdure.run(order, answers={"sure": answer}, item="book")
    assert run.text == said
    assert run.result is not None
    assert run.result["isError"] is is_error


async def test_a_question_without_an_answer_names_the_key(db_url: str) -> None:
    async with harness(db_url) as perdure:
        with pytest.raises(UnansweredError, match="'sure'"):
            await perdure.run(order, item="book")


async def test_a_crash_after_a_transaction_keeps_its_writes_once(db_url: str) -> None:
    @tool
    async def book(ctx: ToolContext) -> int:
        """Write into the same database."""

        async def write(db: AsyncConnection) -> int:
            await db.execute(text("CREATE TABLE IF NOT EXISTS entries (n integer)"))
            await db.execute(text("INSERT INTO entries VALUES (1)"))
            count = (await db.execute(text("SELECT count(*) FROM entries"))).scalar_one()
            assert isinstance(count, int)
            return count

        return await ctx.transaction("write", write)

    async with harness(db_url) as perdure:
        run = await perdure.run(book, crash_after=["write"])
    assert (run.structured, run.losses) == (1, 1)


async def test_a_plain_function_crashes_and_replays_too(db_url: str) -> None:
    @tool
    def count(ctx: SyncToolContext) -> str:
        """Take two steps."""
        first = ctx.step("first", lambda: ctx.attempt)
        second = ctx.step("second", lambda: ctx.attempt)
        return f"{first} {second}"

    async with harness(db_url) as perdure:
        run = await perdure.run(count, crash_after=["first"])
    assert (run.text, run.attempts) == ("1 2", 2)


async def test_it_brings_its_own_postgres_by_default() -> None:
    async with harness() as perdure:
        run = await perdure.run(order, answers={"sure": Declined()}, item="book")
    assert run.status is Status.COMPLETED
