"""The example of the Tasks extension's "Example Message Flow"."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.domain.task import Status
from app.examples import hello_world
from app.wire.envelope import dumps
from tests.support.worker import working


async def answered(db_url: str, response: dict[str, Any]) -> str:
    """What the tool says after this response to its question."""
    async with working(db_url, hello_world) as (tasks, _):
        task_id = await tasks.start(hello_world)
        await tasks.reaches(task_id, Status.INPUT_REQUIRED)
        await tasks.respond(task_id, {"name": dumps(response)})
        done = await tasks.reaches(task_id, Status.COMPLETED)
    assert done.result is not None
    [block] = json.loads(done.result)["content"]
    text: str = block["text"]
    return text


async def test_the_question_is_the_one_of_the_document(db_url: str) -> None:
    async with working(db_url, hello_world) as (tasks, _):
        task_id = await tasks.start(hello_world)
        [question] = (await tasks.reaches(task_id, Status.INPUT_REQUIRED)).questions
    assert question.key == "name"
    assert json.loads(question.request) == {
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": "Please enter your name.",
            "requestedSchema": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
            },
        },
    }


@pytest.mark.parametrize("content", [{"name": "Luca"}, {"input": "Luca"}, {"age": 7, "input": "Luca"}])
async def test_the_first_text_of_the_answer_is_greeted_whatever_it_is_called(db_url: str, content: Any) -> None:
    assert await answered(db_url, {"action": "accept", "content": content}) == "Hello, Luca!"


@pytest.mark.parametrize(
    "response", [{"action": "decline"}, {"action": "cancel"}, {"action": "accept"}, {"action": "accept", "content": {}}]
)
async def test_without_a_name_it_stays_polite(db_url: str, response: dict[str, Any]) -> None:
    assert (await answered(db_url, response)).startswith("Hello")
