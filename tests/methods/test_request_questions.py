"""Questions on the request: InputRequiredResult, requestState, the retry (core, "Multi Round-Trip Requests")."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.tools.registry import Registry
from tests.methods.inline_tools import Stage, make_tools
from tests.methods.test_inline import text
from tests.support.database import age_task
from tests.support.rpc import DRAFT, PUBLISHED, TASKS, Client, Reply
from tests.support.service import Service, serving, serving_with_worker
from tests.support.waiting import eventually

FORMS: dict[str, Any] = {"elicitation": {}}


@pytest.fixture
async def service(db_url: str, stage: Stage) -> AsyncIterator[Service]:
    """The API with a worker."""
    async with serving_with_worker(db_url, *make_tools(stage)) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Client:
    """A client that can show forms, and knows nothing of tasks."""
    return service.client.with_(capabilities=FORMS)


def named(name: str) -> dict[str, Any]:
    """An answer to a question for a name."""
    return {"action": "accept", "content": {"name": name}}


async def retry(client: Client, tool: str, state: Any, responses: Any = None, /, **arguments: Any) -> Reply:
    """Call the tool again with what it has asked for."""
    params = {"name": tool, "arguments": arguments, "requestState": state}
    return await client.rpc("tools/call", params | ({} if responses is None else {"inputResponses": responses}))


@pytest.mark.parametrize("version", [None, DRAFT, PUBLISHED])
async def test_a_question_comes_back_on_the_request_and_the_retry_answers_it(
    client: Client, version: str | None
) -> None:
    client = client.with_(version=version)
    asked = (await client.call("greet_by_name", greeting="Ciao")).result
    assert (asked["resultType"], set(asked["inputRequests"])) == ("input_required", {"name"})
    assert "taskId" not in asked
    reply = await retry(client, "greet_by_name", asked["requestState"], {"name": named("Luca")}, greeting="Ciao")
    assert text(reply.result) == "Ciao, Luca!"


async def test_a_declined_question_reaches_the_tool(client: Client) -> None:
    state = (await client.call("greet_by_name")).result["requestState"]
    reply = await retry(client, "greet_by_name", state, {"name": {"action": "decline"}})
    assert text(reply.result) == "Nobody to greet."


@pytest.mark.parametrize(("version", "number"), [(None, -32003), (DRAFT, -32003), (PUBLISHED, -32021)])
@pytest.mark.parametrize("capabilities", [{}, {"sampling": {}}, {"elicitation": {"url": {}}}])
async def test_a_client_that_cannot_be_asked_is_told_which_capability_is_missing(
    client: Client, capabilities: dict[str, Any], version: str | None, number: int
) -> None:
    params = {"name": "greet_by_name", "arguments": {}, "_meta": {"progressToken": "p"}}
    reply = await client.with_(version=version, capabilities=capabilities).rpc("tools/call", params)
    assert (reply.status, reply.error["code"]) == (400, number)
    assert reply.error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}


async def test_missing_answers_are_asked_for_again_and_others_ignored(client: Client, service: Service) -> None:
    asked = (await client.call("ask_twice")).result
    assert list(asked["inputRequests"]) == ["one", "two"]
    again = (await retry(client, "ask_twice", asked["requestState"])).result
    assert list(again["inputRequests"]) == ["one", "two"]
    partly = (await retry(client, "ask_twice", again["requestState"], {"one": named("A"), "nine": named("X")})).result
    assert list(partly["inputRequests"]) == ["two"]
    later = {"one": named("not any more"), "two": named("B")}
    third = (await retry(client, "ask_twice", partly["requestState"], later)).result
    assert list(third["inputRequests"]) == ["three"]
    assert third["requestState"] != asked["requestState"]
    done = await retry(client, "ask_twice", third["requestState"], {"three": named("C")})
    assert text(done.result) == "A B C"
    assert await service.count_tasks() == 1


@pytest.mark.parametrize("flawed", ["yes", {"action": "maybe"}, {"action": "accept", "content": 7}, [], None])
async def test_what_is_no_response_is_refused_and_nothing_is_recorded(
    client: Client, service: Service, flawed: Any
) -> None:
    state = (await client.call("ask_twice")).result["requestState"]
    reply = await retry(client, "ask_twice", state, {"one": named("A"), "two": flawed})
    assert reply.refusal[:2] == (400, -32602)
    assert "inputResponses.two" in reply.error["message"]
    assert await service.connection.fetchval("SELECT count(*) FROM perdure.task_input_responses") == 0


@pytest.mark.parametrize("responses", ["text", 7, [], None])
async def test_responses_that_are_no_object_are_refused(client: Client, responses: Any) -> None:
    state = (await client.call("greet_by_name")).result["requestState"]
    params = {"name": "greet_by_name", "arguments": {}, "requestState": state, "inputResponses": responses}
    assert (await client.rpc("tools/call", params)).refusal[:2] == (400, -32602)


async def test_responses_of_a_first_call_answer_what_the_tool_asks(client: Client, service: Service) -> None:
    params = {"name": "ask_twice", "arguments": {}, "inputResponses": {"one": named("A"), "three": named("C"), "x": 1}}
    asked = (await client.rpc("tools/call", params)).result
    assert list(asked["inputRequests"]) == ["two"]
    params = {"name": "greet_by_name", "arguments": {}, "inputResponses": {"name": named("Ada")}}
    assert text((await client.rpc("tools/call", params)).result) == "Hello, Ada!"


async def test_a_response_of_a_first_call_that_is_none_ends_the_task(client: Client, service: Service) -> None:
    params = {"name": "greet_by_name", "arguments": {}, "inputResponses": {"name": 12345}}
    assert (await client.rpc("tools/call", params)).refusal[:2] == (400, -32602)
    assert await service.connection.fetchval("SELECT status FROM perdure.tasks") == "cancelled"


async def test_a_state_serves_only_the_request_that_it_was_given_for(client: Client, service: Service) -> None:
    state = (await client.call("greet_by_name", greeting="Hi")).result["requestState"]
    answer = {"name": named("Eve")}
    forged = state[:-4] + ("AAAA" if state[-4:] != "AAAA" else "BBBB")
    for tool, given, arguments in (
        ("greet_by_name", forged, {"greeting": "Hi"}),
        ("greet_by_name", state + "A", {"greeting": "Hi"}),
        ("greet_by_name", "", {"greeting": "Hi"}),
        ("greet_by_name", "\ud800", {"greeting": "Hi"}),
        ("greet_by_name", state, {"greeting": "Ho"}),
        ("greet_by_name", state, {}),
        ("ask_twice", state, {}),
    ):
        reply = await retry(client, tool, given, answer, **arguments)
        assert reply.refusal == (
            400,
            -32602,
            "Invalid params: params.requestState is none that was given for this request",
        )
    for given in (7, None, {}, [state]):
        reply = await retry(client, "greet_by_name", given, answer, greeting="Hi")
        assert reply.refusal == (400, -32602, "Invalid params: params.requestState must be a string")
    assert await service.connection.fetchval("SELECT count(*) FROM perdure.task_input_responses") == 0
    assert text((await retry(client, "greet_by_name", state, answer, greeting="Hi")).result) == "Hi, Eve!"


async def test_a_state_that_is_used_again_gets_the_same_result(client: Client, service: Service) -> None:
    state = (await client.call("greet_by_name")).result["requestState"]
    first = await retry(client, "greet_by_name", state, {"name": named("Ada")})
    again = await retry(client, "greet_by_name", state, {"name": named("Bob")})
    assert text(first.result) == text(again.result) == "Hello, Ada!"
    assert await service.count_tasks() == 1


async def test_a_state_of_an_earlier_round_gets_the_current_question(client: Client) -> None:
    state = (await client.call("ask_twice")).result["requestState"]
    both = {"one": named("A"), "two": named("B")}
    third = (await retry(client, "ask_twice", state, both)).result
    assert (await retry(client, "ask_twice", state, both)).result["inputRequests"] == third["inputRequests"]


async def test_a_retry_that_a_deploy_cuts_off_is_sent_again_to_another_process(
    service: Service, client: Client, db_url: str, stage: Stage
) -> None:
    yes = {"sure": {"action": "accept", "content": {"sure": True}}}
    async with serving(db_url, Registry(make_tools(stage)), grace_seconds=0.0) as old:
        here = client.with_(session=old.client.session, url=old.client.url)
        state = (await here.call("confirm_first")).result["requestState"]
        cut_off = asyncio.create_task(retry(here, "confirm_first", state, yes))
        await eventually(lambda: _working(service))
        await old.server.stop()
        reply = await cut_off
    assert reply.refusal == (503, -32603, "The server is stopping. Send the request again.")
    stage.go.set()
    assert text((await retry(client, "confirm_first", state, yes)).result) == "done as you wished"


async def test_two_retries_at_the_same_moment_end_with_one_answer(client: Client, service: Service) -> None:
    state = (await client.call("greet_by_name")).result["requestState"]
    replies = await asyncio.gather(
        *(retry(client, "greet_by_name", state, {"name": named(name)}) for name in ("Ada", "Bob"))
    )
    told = {text(reply.result) for reply in replies}
    assert told in ({"Hello, Ada!"}, {"Hello, Bob!"})


async def test_one_of_two_waiting_requests_may_leave(client: Client, service: Service, stage: Stage) -> None:
    client = client.with_(capabilities=FORMS | TASKS)
    state = (await client.call("confirm_first")).result["requestState"]
    yes = {"sure": {"action": "accept", "content": {"sure": True}}}
    hung_up = asyncio.create_task(retry(client.with_(capabilities=FORMS), "confirm_first", state, yes))
    stays = asyncio.create_task(retry(client.with_(capabilities=FORMS), "confirm_first", state, yes))
    await eventually(lambda: _working(service))
    hung_up.cancel()
    stage.go.set()
    assert text((await stays).result) == "done as you wished"


async def test_a_question_that_is_never_retried_is_withdrawn(client: Client, service: Service) -> None:
    state = (await client.call("greet_by_name")).result["requestState"]
    task_id = await service.connection.fetchval("SELECT task_id FROM perdure.tasks")
    await age_task(service.connection, task_id, 3601)
    await service.store.expire()
    assert await service.connection.fetchval("SELECT status FROM perdure.tasks") == "cancelled"
    late = (await retry(client, "greet_by_name", state, {"name": named("Ada")})).result
    assert (late["isError"], text(late)) == (True, "The task was cancelled.")


async def test_what_the_retry_declares_counts(client: Client) -> None:
    state = (await client.call("ask_twice")).result["requestState"]
    reply = await retry(client.with_(capabilities={}), "ask_twice", state, {"one": named("A")})
    assert (reply.status, reply.error["code"]) == (400, -32003)
    answers = {"two": named("B")}
    cannot = await retry(client.with_(capabilities={}), "ask_twice", state, answers)
    assert (cannot.status, cannot.error["data"]) == (400, {"requiredCapabilities": {"elicitation": {"form": {}}}})


@pytest.mark.requirement("R10")
async def test_a_question_can_come_before_the_task(client: Client, service: Service, stage: Stage) -> None:
    client = client.with_(capabilities=FORMS | TASKS, version=PUBLISHED)
    asked = (await client.call("confirm_first")).result
    assert asked["resultType"] == "input_required"
    yes = {"sure": {"action": "accept", "content": {"sure": True}}}
    task = (await retry(client, "confirm_first", asked["requestState"], yes)).result
    assert (task["resultType"], task["status"]) == ("task", "working")
    again = (await retry(client, "confirm_first", asked["requestState"], yes)).result
    assert again["taskId"] == task["taskId"]
    stage.go.set()
    ended = await eventually(lambda: _ended(service, task["taskId"]))
    assert text(ended["result"]) == "done as you wished"


async def test_a_refused_question_needs_no_task(client: Client) -> None:
    client = client.with_(capabilities=FORMS | TASKS)
    asked = (await client.call("confirm_first")).result
    no = {"sure": {"action": "decline"}}
    assert text((await retry(client, "confirm_first", asked["requestState"], no)).result) == "left alone"


async def test_without_tasks_detaching_changes_nothing(client: Client, stage: Stage) -> None:
    asked = (await client.call("confirm_first")).result
    stage.go.set()
    yes = {"sure": {"action": "accept", "content": {"sure": True}}}
    assert text((await retry(client, "confirm_first", asked["requestState"], yes)).result) == "done as you wished"


async def _working(service: Service) -> bool:
    return bool(await service.connection.fetchval("SELECT count(*) FROM perdure.tasks WHERE worker_id IS NOT NULL"))


async def _ended(service: Service, task_id: str) -> dict[str, Any] | None:
    state = await service.read(task_id)
    return state if state["status"] == "completed" else None
