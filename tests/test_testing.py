"""Tools tested as their authors would test them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import date
from typing import Any

import asyncpg
import pytest
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app import Accepted, Declined, Dismissed, SyncToolContext, ToolContext, ToolError, tool
from app.domain.task import Status
from app.errors import Refusal, UsageError
from app.storage.database import Database
from app.storage.store import Store
from app.testing import NoCrashError, UnansweredError, harness
from app.tools.registry import Registry
from tests.support.worker import Tasks


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


async def test_a_crash_leaves_runs_beside_it_alone(db_url: str) -> None:
    both_run, crashed = asyncio.Barrier(2), asyncio.Event()

    @tool
    async def count(ctx: ToolContext, who: str) -> str:
        """Take a step, beside another run."""

        async def step() -> str:
            await both_run.wait()
            return who

        if who == "dies" and ctx.attempt == 2:
            crashed.set()
        value = await ctx.step("step", step)
        if who == "lives":
            await crashed.wait()
        return value

    async with harness(db_url) as perdure:
        dies, lives = await asyncio.gather(
            perdure.run(count, crash_after=["step"], who="dies"), perdure.run(count, who="lives")
        )
    assert (dies.text, dies.attempts, dies.losses) == ("dies", 2, 1)
    assert (lives.text, lives.attempts, lives.losses) == ("lives", 1, 0)


async def test_calls_that_wait_for_other_workers_are_left_to_them(db_url: str) -> None:
    async with Database(db_url, connections=1) as database, harness(db_url) as perdure:
        tasks = Tasks(Store(database), Registry([order]))
        waiting = await tasks.start(order, item="pen")
        run = await perdure.run(order, answers={"sure": Declined()}, item="book")
        assert run.attempts == 2
        assert (await tasks.read(waiting)).task.epoch == 0


async def test_the_dead_write_nothing(db_url: str) -> None:
    @tool
    async def stubborn(ctx: ToolContext) -> str:
        """Go on beside a step, whatever comes."""
        started = asyncio.Event()

        async def one() -> int:
            await started.wait()
            return ctx.attempt

        async def beside() -> int:
            started.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait() if ctx.attempt == 1 else None
            return ctx.attempt

        return str(await asyncio.gather(ctx.step("one", one), ctx.step("beside", beside)))

    async with harness(db_url) as perdure:
        run = await perdure.run(stubborn, crash_after=["one"])
    assert (run.text, run.losses) == ("[1, 2]", 1)


async def test_more_deaths_than_the_tool_allows_fail_its_task(db_url: str) -> None:
    @tool(losses=1)
    async def fragile(ctx: ToolContext) -> int:
        """Take two steps."""

        async def number() -> int:
            return ctx.attempt

        return await ctx.step("one", number) + await ctx.step("two", number)

    async with harness(db_url) as perdure:
        run = await perdure.run(fragile, crash_after=["one", "two"])
    assert (run.status, run.steps, run.losses, run.result) == (Status.FAILED, ["one", "two"], 2, None)
    assert run.error is not None
    assert "too many workers" in run.error["message"]


async def test_a_crash_that_does_not_happen_is_an_error(db_url: str) -> None:
    async with harness(db_url) as perdure:
        with pytest.raises(NoCrashError, match=r"'chrage' was never recorded.*\['charge'\]"):
            await perdure.run(order, answers={"sure": {"yes": True}}, crash_after=["chrage"], item="book")


async def test_after_the_timeout_the_handler_is_stopped_and_no_task_is_left(db_url: str) -> None:
    ended: list[int] = []

    @tool
    async def endless(ctx: ToolContext) -> None:
        """Wait for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(ctx.attempt)

    async with harness(db_url) as perdure:
        with pytest.raises(TimeoutError):
            await perdure.run(endless, timeout_seconds=0.5)
        assert ended == [1]
    connection = await asyncpg.connect(db_url)
    assert await connection.fetchval("SELECT status FROM perdure.tasks") == "cancelled"
    assert await connection.fetchval("SELECT count(*) FROM perdure.workers") == 0
    await connection.close()


async def test_a_response_that_the_service_would_refuse_is_refused(db_url: str) -> None:
    @tool
    async def poem(ctx: ToolContext) -> str:
        """Ask for a poem, and where to put it."""
        sampled, roots = await ctx.sample("poem", {"messages": [], "maxTokens": 10}), await ctx.list_roots()
        return f"{getattr(sampled.content, 'text', '')} in {roots[0].uri}"

    roots = {"roots": [{"uri": "file:///poems"}]}
    completion = {"role": "assistant", "content": {"type": "text", "text": "Roses"}, "model": "m"}
    async with harness(db_url) as perdure:
        run = await perdure.run(poem, answers={"poem": completion, "roots": roots})
        assert run.text == "Roses in file:///poems"
        with pytest.raises(Refusal, match="poem"):
            await perdure.run(poem, answers={"poem": {"role": "assistant"}, "roots": roots})


async def test_arguments_may_have_any_name_and_type(db_url: str) -> None:
    @tool
    async def take_over(ctx: ToolContext, owner: str, day: date) -> str:
        """Take over from somebody."""
        return f"{ctx.owner} from {owner} on {day:%d %B}"

    async with harness(db_url) as perdure:
        run = await perdure.run(take_over, {"owner": "Ada"}, owner="Luca", day=date(2026, 2, 3))
    assert run.text == "Luca from Ada on 03 February"


async def test_a_tool_without_a_task_is_refused(db_url: str) -> None:
    @tool(task="never")
    async def at_once() -> str:
        """Answer on the request."""
        return "now"

    async with harness(db_url) as perdure:
        with pytest.raises(UsageError, match="call the function itself"):
            await perdure.run(at_once)


@tool(starts="request")
async def reserve(ctx: ToolContext) -> str:
    """Ask first, then become a task."""
    answer = await ctx.elicit("sure", "Reserve it?", Sure)
    if isinstance(answer, Accepted):
        await ctx.detach()
    await ctx.progress(1, 2)
    return "reserved" if isinstance(answer, Accepted) else "not reserved"


@pytest.mark.parametrize(
    ("answer", "capabilities", "said", "detached"),
    [
        (Sure(yes=True), None, "reserved", True),
        (Declined(), None, "not reserved", False),
        (Sure(yes=True), {"elicitation": {}}, "reserved", False),
    ],
)
async def test_a_tool_that_starts_on_the_request_detaches_where_its_client_can_use_a_task(
    db_url: str, answer: Any, capabilities: dict[str, Any] | None, said: str, detached: bool
) -> None:
    async with harness(db_url) as perdure:
        run = await perdure.run(reserve, answers={"sure": answer}, capabilities=capabilities)
    assert (run.text, run.questions, run.attempts, run.detached) == (said, ["sure"], 2, detached)


async def test_a_client_that_is_answered_on_its_request_is_asked_only_what_it_declared(db_url: str) -> None:
    async with harness(db_url) as perdure:
        run = await perdure.run(order, answers={"sure": {"yes": True}}, capabilities={"sampling": {}}, item="book")
        assert (run.status, run.questions) == (Status.FAILED, [])
        asked = await perdure.run(order, answers={"sure": {"yes": True}}, item="book")
    assert run.error is not None
    assert run.error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}
    assert (asked.questions, asked.detached) == (["sure"], True)
