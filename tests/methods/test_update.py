"""tasks/update (Tasks, "Task Update Requests")."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.rpc import Reply
from tests.support.service import Service

FORM: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Please enter your name.",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
}
PAGE: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Please sign in.", "url": "https://example.com/", "elicitationId": "e-1"},
}
SAMPLE: dict[str, Any] = {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "Capital?"}}], "maxTokens": 10},
}
ROOTS: dict[str, Any] = {"method": "roots/list", "params": {}}

PARIS = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"}
TOOL_USE = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {"at": "map"}}],
    "model": "m",
    "stopReason": "toolUse",
}

RIGHT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (FORM, {"action": "accept", "content": {"name": "Luca"}}),
    (FORM, {"action": "accept", "content": {"input": "Luca"}}),
    (FORM, {"action": "accept", "content": {"n": 2**70, "f": 0.5, "b": True, "l": ["x"], "": "\x00"}}),
    (FORM, {"action": "accept"}),
    (FORM, {"action": "decline"}),
    (FORM, {"action": "cancel", "more": {"of": "this"}}),
    (PAGE, {"action": "accept"}),
    (SAMPLE, PARIS),
    (SAMPLE, TOOL_USE),
    (ROOTS, {"roots": []}),
    (ROOTS, {"roots": [{"uri": "file:///home", "name": "home"}]}),
]
WRONG: list[tuple[dict[str, Any], Any]] = [
    (FORM, {}),
    (FORM, {"action": "agree"}),
    (FORM, {"action": "accept", "content": "Luca"}),
    (FORM, {"action": "accept", "content": {"name": {"first": "Luca"}}}),
    (FORM, PARIS),
    (FORM, "Luca"),
    (FORM, ["accept"]),
    (FORM, None),
    (SAMPLE, {"action": "accept"}),
    (SAMPLE, {"role": "assistant", "model": "m"}),
    (ROOTS, {"roots": {}}),
    (ROOTS, {"action": "decline"}),
]


async def _update(service: Service, task_id: str, **responses: Any) -> Reply:
    return await service.client.rpc("tasks/update", {"taskId": task_id, "inputResponses": responses})


@pytest.mark.requirement("R24", "R25", "R29")
@pytest.mark.parametrize(("request_", "response"), RIGHT)
async def test_a_response_of_the_right_shape_is_recorded_as_sent(
    service: Service, request_: dict[str, Any], response: dict[str, Any]
) -> None:
    task_id = await service.ask(key=request_)
    reply = await _update(service, task_id, key=response)
    assert set(reply.result) == {"resultType", "_meta"}
    stored = (await service.recorded(task_id))["key"]
    assert stored == json.dumps(response, separators=(",", ":"), ensure_ascii=False)
    task = await service.read(task_id)
    assert task["status"] == "working"
    assert "inputRequests" not in task
    claim = await service.claim()
    assert claim.answers == {"key": stored}


@pytest.mark.requirement("R42")
@pytest.mark.parametrize(("request_", "response"), WRONG)
async def test_a_response_of_the_wrong_shape_is_refused_by_its_key_and_nothing_is_recorded(
    service: Service, request_: dict[str, Any], response: Any
) -> None:
    task_id = await service.ask(odd=request_, other=FORM)
    reply = await _update(service, task_id, other={"action": "decline"}, odd=response)
    assert (reply.status, reply.error["code"]) == (400, -32602)
    assert "params.inputResponses.odd" in reply.error["message"]
    assert "Luca" not in reply.error["message"]
    assert await service.recorded(task_id) == {}
    assert list((await service.read(task_id))["inputRequests"]) == ["odd", "other"]


@pytest.mark.parametrize("bad", [None, [], "all of them", 7])
async def test_responses_that_are_no_object_are_refused(service: Service, bad: object) -> None:
    task_id = await service.ask(name=FORM)
    reply = await service.client.rpc("tasks/update", {"taskId": task_id, "inputResponses": bad})
    assert (reply.status, reply.error["code"]) == (400, -32602)
    assert "params.inputResponses" in reply.error["message"]
    assert (await service.client.rpc("tasks/update", {"taskId": task_id})).error["code"] == -32602


@pytest.mark.requirement("R28", "R53")
async def test_a_partial_update_leaves_the_other_questions(service: Service) -> None:
    task_id = await service.ask(first=FORM, second=ROOTS)
    await _update(service, task_id, second={"roots": []})
    task = await service.read(task_id)
    assert (task["status"], list(task["inputRequests"])) == ("input_required", ["first"])
    await _update(service, task_id, first={"action": "decline"})
    assert (await service.read(task_id))["status"] == "working"


@pytest.mark.requirement("R27")
async def test_the_first_answer_stands(service: Service) -> None:
    task_id = await service.ask(name=FORM, other=FORM)
    await _update(service, task_id, name={"action": "decline"})
    again = await _update(service, task_id, name={"action": "accept", "content": {"name": "Luca"}})
    assert again.status == 200
    assert await service.recorded(task_id) == {"name": '{"action":"decline"}'}


@pytest.mark.requirement("R25")
async def test_two_answers_at_the_same_moment_are_both_acknowledged_and_one_stands(service: Service) -> None:
    task_id = await service.ask(name=FORM)
    answers = [{"action": "accept", "content": {"name": str(n)}} for n in range(8)]
    replies = await asyncio.gather(*(_update(service, task_id, name=answer) for answer in answers))
    assert {reply.status for reply in replies} == {200}
    assert len(await service.recorded(task_id)) == 1
    assert (await service.read(task_id))["status"] == "working"


@pytest.mark.requirement("R27")
async def test_keys_that_are_not_outstanding_are_passed_over_whatever_they_hold(service: Service) -> None:
    task_id = await service.ask(name=FORM)
    before = await service.read(task_id)
    strange = {"never asked": {"any": "shape"}, "": {}, "\x00": {}, "\ud800": {}, "k" * 10_000: {}, "no object": 5}
    assert (await _update(service, task_id, **strange)).status == 200
    assert await service.recorded(task_id) == {}
    after = await service.read(task_id)
    assert after["lastUpdatedAt"] == before["lastUpdatedAt"]
    assert (await _update(service, task_id, name={"action": "decline"}, **strange)).status == 200
    assert set(await service.recorded(task_id)) == {"name"}


async def test_an_update_of_a_task_that_asks_nothing_is_acknowledged_and_changes_nothing(service: Service) -> None:
    task_id = await service.start_task()
    before = await service.read(task_id)
    assert (await _update(service, task_id, name={"action": "decline"})).status == 200
    assert (await _update(service, task_id)).status == 200
    assert (await service.read(task_id))["lastUpdatedAt"] == before["lastUpdatedAt"]


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_an_update_after_the_end_is_acknowledged_and_changes_nothing(service: Service, end: str) -> None:
    task_id = await service.end_task(end)
    before = await service.read(task_id)
    assert (await _update(service, task_id, name={"action": "decline"})).status == 200
    after = await service.read(task_id)
    assert (after["status"], after["lastUpdatedAt"]) == (end, before["lastUpdatedAt"])
    assert await service.recorded(task_id) == {}
