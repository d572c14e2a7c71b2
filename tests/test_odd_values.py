"""Values that databases, protocols and languages are known to lose: kept exactly, or refused in words that say where.

Over HTTP, with a worker, in every place that a value can come to: from a client, or from a tool.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.errors import ProtocolError, ToolError, UsageError
from app.tools.context import Accepted, ToolContext
from app.tools.registry import tool
from tests.support.rpc import TASKS, Reply
from tests.support.service import Service, serving_with_worker
from tests.support.waiting import eventually

KEPT = "kept"
SIZE = 10 * 1024 * 1024
WRITTEN = {
    "NUL": r'"a\u0000b"',
    "half a pair": r'"\ud800"',
    "NaN": "NaN",
    "Infinity": "-Infinity",
    "1e400": "1e400",
    "2^63": str(2**63),
    "2^64": str(2**64),
    "10 MB": '"' + "x" * SIZE + '"',
    "20,000 levels": "[" * 20_000 + "]" * 20_000,
    "a key twice": '{"a":1,"a":2}',
    "an emoji": '"\U0001f680"',
    "right to left": '"a\u200f\u202eb"',
    "an empty key": '{"":{"":1}}',
}
"""What a client sends, by name."""


def _nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


VALUES: dict[str, Any] = {
    "NUL": "a\0b",
    "half a pair": "\ud800",
    "NaN": float("nan"),
    "Infinity": float("-inf"),
    "1e400": 1e400,
    "2^63": 2**63,
    "2^64": 2**64,
    "10 MB": "x" * SIZE,
    "20,000 levels": _nested(20_000),
    "an emoji": "\U0001f680",
    "right to left": "a\u200f\u202eb",
    "an empty key": {"": {"": 1}},
    "nothing": "",
}
"""What a tool has, by name. A key cannot be there twice."""

NAME: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}


@tool
async def echo(note: Any) -> str:
    """Tell in ASCII what came."""
    return json.dumps(note)


@tool
async def ask(ctx: ToolContext) -> str:
    """Tell in ASCII what was answered."""
    answer = await ctx.elicit("name", "Who?", NAME)
    return json.dumps(answer.content["name"] if isinstance(answer, Accepted) else None)


@tool
async def give(what: str) -> Any:
    """Return a value."""
    return VALUES[what]


@tool
async def fail(what: str, how: str) -> str:
    """Fail with a value."""
    match how:
        case "text":
            raise ToolError(VALUES[what])
        case "message":
            raise ProtocolError(4711, VALUES[what])
        case _:
            raise ProtocolError(4711, "Out of paper", VALUES[what])


@tool
async def tell(ctx: ToolContext, what: str) -> str:
    """Tell a value as status until the task is cancelled, or return what is wrong with it."""
    try:
        await ctx.status(VALUES[what])
    except UsageError as error:
        return str(error)
    await asyncio.Event().wait()
    return "never"


# -- the places -------------------------------------------------------------------------------------------------------


async def _argument(service: Service, name: str) -> str:
    reply = await _send(service, "tools/call", f'"name":"echo","arguments":{{"note":{WRITTEN[name]}}}')
    return _refusal(reply) or await _came_through(service, reply.result["taskId"], name)


async def _answer(service: Service, name: str) -> str:
    task_id = await service.start_task("ask")
    await _reaches(service, task_id, "input_required")
    response = f'{{"action":"accept","content":{{"name":{WRITTEN[name]}}}}}'
    reply = await _send(service, "tasks/update", f'"taskId":"{task_id}","inputResponses":{{"name":{response}}}')
    return _refusal(reply) or await _came_through(service, task_id, name)


async def _task_id(service: Service, name: str) -> str:
    return _refusal(await _send(service, "tasks/get", f'"taskId":{WRITTEN[name]}'))


async def _tool_name(service: Service, name: str) -> str:
    return _refusal(await _send(service, "tools/call", f'"name":{WRITTEN[name]}'))


async def _result(service: Service, name: str) -> str:
    task = await _ended(service, await service.start_task("give", what=name))
    if task["status"] == "failed":
        assert task["error"]["message"] == task["statusMessage"]
        return str(task["statusMessage"])
    result = task["result"]
    assert result.get("structuredContent", result["content"][0]["text"]) == VALUES[name]
    return KEPT


async def _error_text(service: Service, name: str) -> str:
    task = await _ended(service, await service.start_task("fail", what=name, how="text"))
    if task["status"] == "failed":
        return str(task["statusMessage"])
    assert task["result"]["isError"] is True
    text: str = task["result"]["content"][0]["text"]
    return KEPT if text == VALUES[name] else text


async def _error_message(service: Service, name: str) -> str:
    task = await _ended(service, await service.start_task("fail", what=name, how="message"))
    return KEPT if task["error"] == {"code": 4711, "message": VALUES[name]} else str(task["error"])


async def _error_data(service: Service, name: str) -> str:
    task = await _ended(service, await service.start_task("fail", what=name, how="data"))
    kept = task["error"] == {"code": 4711, "message": "Out of paper", "data": VALUES[name]}
    return KEPT if kept else str(task["error"])


async def _status(service: Service, name: str) -> str:
    task_id = await service.start_task("tell", what=name)

    async def look() -> str | None:
        task = await service.read(task_id)
        if task["status"] == "working" and "statusMessage" in task:
            assert task["statusMessage"] == VALUES[name]
            return KEPT
        return str(task["result"]["content"][0]["text"]) if task["status"] == "completed" else None

    said = await eventually(look)
    await service.client.rpc("tasks/cancel", {"taskId": task_id})
    return said


# -- what becomes of the values ---------------------------------------------------------------------------------------

TOO_LARGE, TOO_DEEP = "a message may have 4194304 bytes", "nested more than 64 levels deep"
NOT_FINITE, PAIR = "a number that is not finite", "text with a lone surrogate"
STATUS = "A status message"
LARGE, INTERNAL = "larger than 10485760 bytes", "The tool failed with an internal error"


def _sent(where: str) -> dict[str, str]:
    """What is said of values that a client sends: of those that no message can hold it is the same everywhere."""
    return {
        "NaN": f"{where} is NaN",
        "Infinity": f"{where} is -Infinity",
        "1e400": f"{where} is a number too large",
        "10 MB": TOO_LARGE,
        "20,000 levels": TOO_DEEP,
        "a key twice": f"{where}.a appears twice",
    }


TEXTS = ("NUL", "half a pair", "an emoji", "right to left")
NUMBERS = ("2^63", "2^64")
Place = Callable[[Service, str], Awaitable[str]]
TABLE: list[tuple[Place, dict[str, str]]] = [
    (
        _argument,
        _sent("params.arguments.note")
        | dict.fromkeys((*TEXTS, *NUMBERS, "an empty key"), KEPT)
        | {"half a pair": f"note: {PAIR}"},
    ),
    (
        _answer,
        _sent("params.inputResponses.name.content.name")
        | dict.fromkeys((*TEXTS, *NUMBERS), KEPT)
        | {"an empty key": "params.inputResponses.name is no response to elicitation/create: content.name"},
    ),
    (
        _task_id,
        _sent("params.taskId")
        | dict.fromkeys(TEXTS, "Failed to retrieve task: Task not found")
        | dict.fromkeys((*NUMBERS, "an empty key"), "params.taskId: Input should be a valid string"),
    ),
    (
        _tool_name,
        _sent("params.name")
        | dict.fromkeys(TEXTS, "Unknown tool: ")
        | dict.fromkeys((*NUMBERS, "an empty key"), "params.name must be a string"),
    ),
    (
        _result,
        dict.fromkeys(VALUES, KEPT)
        | dict.fromkeys(("NaN", "Infinity", "1e400"), NOT_FINITE)
        | {"half a pair": f"content[0].text: {PAIR}", "10 MB": LARGE}
        | {"20,000 levels": "cannot be written as JSON"},
    ),
    (
        _error_text,
        dict.fromkeys((*TEXTS, "nothing"), KEPT)
        | {"half a pair": r"\ud800", "10 MB": LARGE, "20,000 levels": INTERNAL},
    ),
    (
        _error_message,
        dict.fromkeys(TEXTS, KEPT) | {"10 MB": LARGE} | dict.fromkeys((*NUMBERS, "NaN", "an empty key"), INTERNAL),
    ),
    (
        _error_data,
        dict.fromkeys((*TEXTS, *NUMBERS, "an empty key", "nothing"), KEPT)
        | dict.fromkeys(("NaN", "Infinity", "1e400", "20,000 levels"), INTERNAL)
        | {"10 MB": LARGE},
    ),
    (
        _status,
        dict.fromkeys(("an emoji", "right to left"), KEPT)
        | dict.fromkeys(("NUL", "half a pair", "10 MB", "nothing"), STATUS),
    ),
]


@pytest.mark.parametrize(("place", "expected"), TABLE, ids=[place.__name__.strip("_") for place, _ in TABLE])
async def test_an_odd_value_is_kept_exactly_or_refused_in_words_that_say_where(
    db_url: str, place: Place, expected: dict[str, str]
) -> None:
    async with serving_with_worker(db_url, ask, echo, fail, give, tell) as service:
        # To render the traceback of a recursion without end for a terminal takes minutes.
        with capture_logs():
            said = {name: await place(service, name) for name in expected}
        assert {name: text for name, text in said.items() if expected[name] not in text} == {}
        assert await service.connection.fetchval("SELECT max(epoch) FROM perdure.tasks") in (None, 1, 2)


async def _send(service: Service, method: str, params: str) -> Reply:
    meta = json.dumps({"io.modelcontextprotocol/clientCapabilities": TASKS})
    body = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params},"_meta":{meta}}}}}'.encode()
    return await service.client.post(body, unread=len(body) > SIZE)


def _refusal(reply: Reply) -> str:
    """What a reply says is wrong, in an error or in a result; empty where nothing is."""
    if "error" in reply.message:
        assert 400 <= reply.status < 500
        return str(reply.error["message"])
    return str(reply.result["content"][0]["text"]) if reply.result.get("isError") else ""


async def _came_through(service: Service, task_id: str, name: str) -> str:
    """Whether what the tool got is what was sent."""
    task = await _ended(service, task_id)
    return KEPT if json.loads(task["result"]["content"][0]["text"]) == json.loads(WRITTEN[name]) else str(task)


async def _reaches(service: Service, task_id: str, *states: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        task = await service.read(task_id)
        return task if task["status"] in states else None

    return await eventually(look)


async def _ended(service: Service, task_id: str) -> dict[str, Any]:
    return await _reaches(service, task_id, "completed", "failed")
