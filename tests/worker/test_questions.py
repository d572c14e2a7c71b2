"""Asking: the handler pauses, holds no slot, and replays with the answers."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from app.domain.task import Reply, Status
from app.tools import context
from app.tools.context import Accepted, Declined, Dismissed, SyncToolContext, ToolContext
from app.tools.registry import tool
from app.wire.envelope import dumps
from app.wire.revisions import LEGACY
from tests.support.waiting import eventually
from tests.support.worker import OWNER, Tasks, working

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@tool
async def hello(ctx: ToolContext) -> str:
    """Greet the user by name."""
    answer = await ctx.elicit("name", "Who are you?", NAME)
    match answer:
        case Accepted(content):
            return f"Hello, {content['name']}!"
        case Declined():
            return "declined"
        case Dismissed():
            return "dismissed"


def text_of(result: str | None) -> str:
    assert result is not None
    text: str = json.loads(result)["content"][0]["text"]
    return text


async def test_an_answered_question_completes_the_task(db_url: str) -> None:
    async with working(db_url, hello) as (tasks, _):
        task_id = await tasks.start(hello)
        parked = await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        assert [q.key for q in parked.questions] == ["name"]
        assert json.loads(parked.questions[0].request) == {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": "Who are you?", "requestedSchema": NAME},
        }
        await tasks.answer(task_id, name={"name": "Luca"})
        done = await tasks.reaches(task_id, Status.COMPLETED)
        assert text_of(done.result) == "Hello, Luca!"
        assert done.task.epoch == 2


async def test_declining_and_dismissing_reach_the_handler(db_url: str) -> None:
    async with working(db_url, hello) as (tasks, _):
        for action, said in ({"action": "decline"}, "declined"), ({"action": "cancel"}, "dismissed"):
            task_id = await tasks.start(hello)
            await tasks.reaches(task_id, Status.INPUT_REQUIRED)
            await tasks.respond(task_id, {"name": dumps(action)})
            assert text_of((await tasks.reaches(task_id, Status.COMPLETED)).result) == said


@pytest.mark.requirement("R15")
async def test_questions_asked_side_by_side_are_outstanding_together(db_url: str) -> None:
    @tool
    async def both(ctx: ToolContext) -> str:
        """Ask two things at once."""
        async with asyncio.TaskGroup() as group:
            first = group.create_task(ctx.elicit("first", "First?", NAME))
            second = group.create_task(ctx.elicit("second", "Second?", NAME))
        answers = first.result(), second.result()
        assert all(isinstance(a, Accepted) for a in answers)
        return " ".join(a.content["name"] for a in answers if isinstance(a, Accepted))

    async with working(db_url, both) as (tasks, _):
        task_id = await tasks.start(both)
        parked = await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        assert [q.key for q in parked.questions] == ["first", "second"]
        await tasks.answer(task_id, second={"name": "b"})
        assert [q.key for q in (await tasks.read(task_id)).questions] == ["first"]
        await tasks.answer(task_id, first={"name": "a"})
        assert text_of((await tasks.reaches(task_id, Status.COMPLETED)).result) == "a b"


async def test_a_parked_task_holds_no_slot(db_url: str) -> None:
    async with working(db_url, hello, slots=1) as (tasks, _):
        first, second = await tasks.start(hello), await tasks.start(hello)
        await tasks.reaches(first, Status.INPUT_REQUIRED)
        await tasks.reaches(second, Status.INPUT_REQUIRED)


async def test_a_step_beside_a_question_runs_once(db_url: str) -> None:
    runs: list[int] = []

    @tool
    async def mixed(ctx: ToolContext) -> str:
        """Ask while a step runs."""

        async def slow() -> int:
            await asyncio.sleep(0.05)
            runs.append(ctx.attempt)
            return 7

        answer, seven = await asyncio.gather(ctx.elicit("name", "Name?", NAME), ctx.step("slow", slow))
        assert isinstance(answer, Accepted)
        return f"{answer.content['name']} {seven}"

    async with working(db_url, mixed) as (tasks, _):
        task_id = await tasks.start(mixed)
        await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        await tasks.answer(task_id, name={"name": "x"})
        assert text_of((await tasks.reaches(task_id, Status.COMPLETED)).result) == "x 7"
    assert runs == [1]


class Person(BaseModel):
    """Who somebody is."""

    name: str
    age: int = Field(ge=0)


@pytest.mark.requirement("R22", "R23")
async def test_an_answer_that_does_not_fit_the_model_is_asked_again_under_a_new_key(db_url: str) -> None:
    @tool
    async def person(ctx: ToolContext) -> dict[str, Any]:
        """Ask who somebody is."""
        answer = await ctx.elicit("who", "Who are you?", Person)
        assert isinstance(answer, Accepted)
        return answer.content.model_dump()

    async with working(db_url, person) as (tasks, _):
        task_id = await tasks.start(person)
        await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        await tasks.answer(task_id, who={"name": "Ada", "age": -1})
        asked = (await tasks.reaches(task_id, Status.INPUT_REQUIRED)).questions
        while asked[0].key == "who":
            asked = (await tasks.reaches(task_id, Status.INPUT_REQUIRED)).questions
        assert [q.key for q in asked] == ["who#2"]
        assert "age" in json.loads(asked[0].request)["params"]["message"]
        await tasks.answer(task_id, **{"who#2": {"name": "Ada", "age": 36}})
        done = await tasks.reaches(task_id, Status.COMPLETED)
        assert done.result is not None
        assert json.loads(done.result)["structuredContent"] == {"name": "Ada", "age": 36}


async def test_a_plain_function_asks_and_is_unwound(db_url: str) -> None:
    unwound: list[int] = []

    @tool
    def hello_sync(ctx: SyncToolContext, greeting: str) -> str:
        """Greet the user by name, from a thread."""
        try:
            answer = ctx.elicit("name", "Who are you?", NAME)
        finally:
            unwound.append(ctx.attempt)
        assert isinstance(answer, Accepted)
        length = ctx.step("length", lambda: len(answer.content["name"]))
        return f"{greeting}, {answer.content['name']} ({length})"

    async with working(db_url, hello_sync) as (tasks, _):
        task_id = await tasks.start(hello_sync, greeting="Hi")
        await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        await tasks.answer(task_id, name={"name": "Luca"})
        assert text_of((await tasks.reaches(task_id, Status.COMPLETED)).result) == "Hi, Luca (4)"
    assert unwound == [1, 2]


async def test_sampling_roots_and_urls_are_asked_and_answered(db_url: str) -> None:
    @tool
    async def everything(ctx: ToolContext) -> str:
        """Ask for all that is no form."""
        url, sample, roots = await asyncio.gather(
            ctx.elicit_url("pay", "Please pay.", "https://example.com/pay"),
            ctx.sample("poem", {"messages": [], "maxTokens": 10}),
            ctx.list_roots(),
        )
        assert url == Accepted(None)
        return f"{getattr(sample.content, 'text', '')} {roots[0].uri}"

    async with working(db_url, everything) as (tasks, _):
        task_id = await tasks.start(everything)
        parked = await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        assert {q.key: json.loads(q.request)["method"] for q in parked.questions} == {
            "pay": "elicitation/create",
            "poem": "sampling/createMessage",
            "roots": "roots/list",
        }
        completion = {"role": "assistant", "content": {"type": "text", "text": "Roses"}, "model": "m"}
        answers = {"pay": {"action": "accept"}, "poem": completion, "roots": {"roots": [{"uri": "file:///home"}]}}
        await tasks.respond(task_id, {key: dumps(value) for key, value in answers.items()})
        assert text_of((await tasks.reaches(task_id, Status.COMPLETED)).result) == "Roses file:///home"


async def test_a_question_that_a_2026_client_did_not_declare_fails_the_task(db_url: str) -> None:
    async with working(db_url, hello) as (tasks, _):
        task_id = await tasks.start(hello, revision="2026-07-28", capabilities={"sampling": {}})
        failed = await tasks.reaches(task_id, Status.FAILED)
        assert failed.error is not None
        assert json.loads(failed.error) == {
            "code": -32021,
            "message": "Missing required client capability: elicitation form",
            "data": {"requiredCapabilities": {"elicitation": {"form": {}}}},
        }
        declared = await tasks.start(hello, revision="2026-07-28", capabilities={"elicitation": {}})
        await tasks.reaches(declared, Status.INPUT_REQUIRED)


@tool
async def ask_one_thing(ctx: ToolContext, what: str) -> str:
    """Ask for a form, a page, a completion or folders."""
    match what:
        case "form":
            await ctx.elicit("form", "Name?", NAME)
        case "url":
            await ctx.elicit_url("url", "Pay.", "https://example.com/pay")
        case "sampling":
            await ctx.sample("sampling", {"messages": [], "maxTokens": 1})
        case _:
            await ctx.list_roots()
    return "never"


LACKING = [
    ("form", {}, {"elicitation": {"form": {}}}),
    ("form", {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
    ("url", {"elicitation": {}}, {"elicitation": {"url": {}}}),
    ("url", {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}),
    ("sampling", {"elicitation": {}, "roots": {}}, {"sampling": {}}),
    ("roots", {"sampling": {}}, {"roots": {}}),
]


@pytest.mark.parametrize(("what", "capabilities", "missing"), LACKING)
async def test_on_a_request_nothing_is_asked_that_the_client_did_not_declare(
    db_url: str, what: str, capabilities: dict[str, Any], missing: dict[str, Any]
) -> None:
    async with working(db_url, ask_one_thing) as (tasks, _):
        for revision, number in (None, -32003), ("DRAFT-2026-v1", -32003), ("2026-07-28", -32021):
            kind: dict[str, Any] = {"capabilities": capabilities, "revision": revision, "reply": Reply.REQUEST}
            failed = await tasks.reaches(await tasks.start(ask_one_thing, **kind, what=what), Status.FAILED)
            assert failed.error is not None
            error = json.loads(failed.error)
            assert (error["code"], error["data"]) == (number, {"requiredCapabilities": missing})


@pytest.mark.parametrize(
    ("what", "capabilities"),
    [
        ("form", {"elicitation": {}}),
        ("form", {"elicitation": {"form": {}, "url": {}}}),
        ("url", {"elicitation": {"url": {}}}),
        ("sampling", {"sampling": {}}),
        ("roots", {"roots": {"listChanged": True}}),
    ],
)
async def test_on_a_request_all_is_asked_that_the_client_declared(
    db_url: str, what: str, capabilities: dict[str, Any]
) -> None:
    async with working(db_url, ask_one_thing) as (tasks, _):
        for revision in (None, "2026-07-28"):
            kind: dict[str, Any] = {"capabilities": capabilities, "revision": revision, "reply": Reply.REQUEST}
            asked = await tasks.reaches(await tasks.start(ask_one_thing, **kind, what=what), Status.INPUT_REQUIRED)
            assert [question.key for question in asked.questions] == [what]


@pytest.mark.parametrize("revision", LEGACY)
@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}])
async def test_an_older_client_that_cannot_be_asked_is_told_so_in_a_result(
    db_url: str, revision: str, capabilities: dict[str, Any]
) -> None:
    async with working(db_url, hello) as (tasks, _):
        task_id = await tasks.start(hello, revision=revision, capabilities=capabilities, reply=Reply.REQUEST)
        done = await tasks.reaches(task_id, Status.COMPLETED)
    assert done.result is not None
    assert json.loads(done.result)["isError"] is True
    assert "cannot be asked" in text_of(done.result)


@pytest.mark.parametrize("revision", [None, "DRAFT-2026-v1", LEGACY[0]])
async def test_a_task_that_the_caller_has_the_handle_of_asks_whatever_was_declared(
    db_url: str, revision: str | None
) -> None:
    async with working(db_url, hello) as (tasks, _):
        await tasks.reaches(await tasks.start(hello, revision=revision), Status.INPUT_REQUIRED)


async def test_a_task_whose_caller_was_told_meanwhile_how_to_come_back_asks_whatever_was_declared(db_url: str) -> None:
    started, told = asyncio.Event(), asyncio.Event()

    @tool
    async def slow(ctx: ToolContext) -> str:
        """Take long before it asks, two things at once."""
        started.set()
        await told.wait()
        await asyncio.gather(ctx.elicit("a", "A?", NAME), ctx.elicit("b", "B?", NAME))
        return "never"

    async with working(db_url, slow) as (tasks, _):
        task_id = await tasks.start(slow, reply=Reply.REQUEST)
        await started.wait()
        assert await tasks.store.detach_for(OWNER, task_id) is not None
        told.set()
        asked = await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        assert {question.key for question in asked.questions} == {"a", "b"}


async def test_an_answer_that_is_there_counts_though_the_retry_no_longer_declares_it(db_url: str) -> None:
    async with working(db_url, hello) as (tasks, _):
        task_id = await tasks.start(hello, capabilities={"elicitation": {}}, reply=Reply.REQUEST)
        await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        accepted = dumps({"action": "accept", "content": {"name": "Luca"}})
        await tasks.store.answer(OWNER, task_id, {"name": accepted}, capabilities=dumps({}))
        assert text_of((await tasks.reaches(task_id, Status.COMPLETED)).result) == "Hello, Luca!"


@pytest.mark.requirement("R23")
async def test_a_key_that_stands_for_another_question_is_the_tools_error(db_url: str) -> None:
    other = {"type": "object", "properties": {"age": {"type": "integer"}}}

    @tool
    async def fickle(ctx: ToolContext) -> str:
        """Ask something else the second time."""
        await ctx.elicit("key", "Anything?", NAME if ctx.attempt == 1 else other)
        return "never"

    async with working(db_url, fickle) as (tasks, _):
        task_id = await tasks.start(fickle)
        await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        await tasks.answer(task_id, key={"name": "x"})
        failed = await tasks.reaches(task_id, Status.FAILED)
        assert failed.error is not None
        assert json.loads(failed.error)["code"] == -32603


async def test_a_form_is_asked_for_only_so_often(db_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "ROUNDS", 2)

    class Person(BaseModel):
        age: int = Field(ge=0)

    @tool
    async def insist(ctx: ToolContext) -> str:
        """Ask until it fits."""
        await ctx.elicit("who", "How old?", Person)
        return "known"

    async with working(db_url, insist) as (tasks, _):
        task_id = await tasks.start(insist)
        for key in ("who", "who#2"):
            parked = await tasks.reaches(task_id, Status.INPUT_REQUIRED)
            assert [question.key for question in parked.questions] == [key]
            await tasks.answer(task_id, **{key: {"age": -1}})
            await eventually(partial(_moved_on, tasks, task_id, parked.task.version))
        done = await tasks.reaches(task_id, Status.COMPLETED)
        assert text_of(done.result) == "No answer fitted the form, though it was asked for 2 times."
        assert json.loads(done.result or "")["isError"] is True


async def test_a_question_that_is_very_large_is_the_tools_mistake(db_url: str) -> None:
    @tool
    async def verbose(ctx: ToolContext) -> str:
        """Ask at length."""
        await ctx.elicit("name", "x" * 300_000, NAME)
        return "read"

    async with working(db_url, verbose) as (tasks, _):
        failed = await tasks.reaches(await tasks.start(verbose), Status.FAILED)
        assert json.loads(failed.error or "")["code"] == -32603


async def _moved_on(tasks: Tasks, task_id: UUID, version: int) -> bool:
    """The task has left the state that it was in."""
    state = await tasks.read(task_id)
    return state.task.version > version + 1 or state.task.status is Status.COMPLETED


async def test_a_user_is_only_sent_where_nobody_on_the_way_can_read_along(db_url: str) -> None:
    @tool
    async def pay(ctx: ToolContext, url: str, allow_http: bool = False) -> str:
        """Ask for a payment."""
        return type(await ctx.elicit_url("pay", "Please pay.", url, allow_http=allow_http)).__name__

    async with working(db_url, pay) as (tasks, _):
        for url in ("http://bank.example/pay", "javascript:alert(1)", "https://bank.example@evil.example/", "", "x"):
            failed = await tasks.reaches(await tasks.start(pay, url=url), Status.FAILED)
            assert "evil" not in str(failed.error)
        for url, allow_http in (
            ("https://bank.example/pay?id=1", False),
            ("http://localhost:3000/pay", False),
            ("http://bank.example/pay", True),
        ):
            asked = await tasks.reaches(await tasks.start(pay, url=url, allow_http=allow_http), Status.INPUT_REQUIRED)
            assert json.loads(asked.questions[0].request)["params"]["url"] == url
