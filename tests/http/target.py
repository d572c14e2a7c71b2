"""What attacks are thrown at: a service with a worker, the tasks that they name, and what every answer must be."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any
from uuid import uuid4

from pydantic import Field

from app.domain.principal import ANONYMOUS
from app.domain.task import Json, NewTask, Policy, Question, new_task_id
from app.tools.context import ToolContext
from app.tools.registry import Registry, tool
from tests.http.attacks import ASK_FIRST, NAMES, Attack
from tests.support.json_text import read_ids
from tests.support.oracle import check_reply, check_stream
from tests.support.raw_http import Answer, Head, post
from tests.support.service import DONE, Service, serving
from tests.support.worker import working

SOON_SECONDS = 20.0
UNREAD = {403, 406, 408, 413, 415, 417}
"""Statuses of requests that are turned away before their body is read."""

FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
QUESTION = Json(
    '{"method":"elicitation/create","params":{"mode":"form","message":"Who?","requestedSchema":'
    '{"type":"object","properties":{"name":{"type":"string"}}}}}'
)
HALF_MADE = """
SELECT count(*)
FROM perdure.tasks AS t
FULL JOIN perdure.task_requests AS r ON r.task_id = t.task_id
WHERE t.task_id IS NULL OR r.task_id IS NULL"""
NEWEST = "SELECT task_id::text, status FROM perdure.tasks ORDER BY created_at DESC, task_id DESC LIMIT 1"

_BROKEN_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_LONGEST_FIELD = 8_000


@tool
async def job(
    count: int = 1,
    note: Any = None,
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "north",
) -> str:
    """Do something durable."""
    return f"{region} {count}"


@tool(task="required")
async def careful_job() -> str:
    """Do something for callers that can wait."""
    return "done"


@tool(task="never")
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@tool(starts="request")
async def ask_first(ctx: ToolContext) -> str:
    """Ask on the request."""
    return str(await ctx.elicit("name", "Who?", FORM))


TOOLS = (ask_first, careful_job, greet, job)


@dataclass
class Target:
    """A running service with a worker, in a loop that runs while it is attacked."""

    runner: asyncio.Runner
    service: Service
    named: dict[bytes, bytes] = field(default_factory=dict)
    state_of: str = ""

    def attack(self, attack: Attack) -> dict[str, Any]:
        """Send an attack, check all that must hold whatever it is, and return the response, `{}` for none."""
        return self.runner.run(self._attack(attack))

    async def _attack(self, attack: Attack) -> dict[str, Any]:
        sent = await self._filled(attack)
        before = await self.service.count_tasks()
        answer = await asyncio.wait_for(post(self.service.client.url, sent.head, sent.body), SOON_SECONDS)
        message = check_answer(sent, answer)
        await self._check_tasks(await self.service.count_tasks() - before, message, keyed=sent.keyed)
        return message

    async def _check_tasks(self, made: int, message: dict[str, Any], *, keyed: bool) -> None:
        """A task was made where, and only where, the answer is its handle or its outcome."""
        assert await self.service.connection.fetchval(HALF_MADE) == 0
        handle = message.get("result", {}).get("taskId") if is_handle(message) else None
        assert handle is None or await self.service.read(handle)
        if made:
            task_id, status = await self.service.connection.fetchrow(NEWEST) or ("", "")
            assert made == 1
            assert handle in (None, task_id)
            assert "result" in message or status in ("cancelled", "failed"), "a call was refused, and its task goes on"
        else:
            assert handle is None or keyed, "a handle without a task"

    # -- what attacks name ----------------------------------------------------------------------------------------

    async def _filled(self, attack: Attack) -> Attack:
        """The attack with tasks in the place of names, in the states that the names stand for."""
        text = attack.body + b"".join(value for _, value in attack.head)
        values = {name: await self._value(name) for name in NAMES if name in text}
        head = [(name, _replaced(value, values)) for name, value in attack.head]
        return Attack(head, _replaced(attack.body, values))

    async def _value(self, name: bytes) -> bytes:
        wanted = NAMES[name]
        known = self.state_of if name == b"@state" else self.named.get(name, b"").decode()
        if not known or (await self.service.read(known))["status"] != wanted:
            self.named[name] = await (self._make_state() if name == b"@state" else self._make_task(wanted))
        return self.named[name]

    async def _make_task(self, status: str) -> bytes:
        store, task_id, params = self.service.store, new_task_id(), Json('{"name":"job","arguments":{}}')
        new = NewTask(task_id, ANONYMOUS.owner, f"tool of {task_id}", params, Json("{}"), Policy())
        await store.create(new)
        [claim] = await store.claim(uuid4(), [new.tool], 1)
        if status == "input_required":
            await store.ask(claim, [Question("name", QUESTION)])
        elif status == "completed":
            await store.finish(claim, DONE)
        return str(task_id).encode()

    async def _make_state(self) -> bytes:
        client = self.service.client.with_(capabilities={"elicitation": {}})
        asked = (await client.rpc("tools/call", ASK_FIRST)).result
        self.state_of, _ = await self.service.connection.fetchrow(NEWEST) or ("", "")
        return bytes(asked["requestState"].encode())


@contextmanager
def targeted(db_url: str) -> Iterator[Target]:
    """A service that outlives the examples of a test."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        service = runner.run(stack.enter_async_context(serving(db_url, Registry(TOOLS), stream_seconds=0.05)))
        durable = [each for each in TOOLS if each is not greet]
        try:
            runner.run(stack.enter_async_context(working(db_url, *durable, poll_seconds=0.02)))
            yield Target(runner, service)
        finally:
            runner.run(stack.aclose())


# -- answers ----------------------------------------------------------------------------------------------------------


def check_answer(sent: Attack, answer: Answer) -> dict[str, Any]:
    """An answer of the protocol, with the id of the request where that could be read. Returns the response."""
    assert answer.status < 500, answer
    kind = answer.headers.get_content_type()
    if answer.status == 400 and breaks_http(sent.head) and kind == "text/plain":
        return {}
    headers, deep = _joined(sent.head), b"levels deep" in answer.body
    if kind == "text/event-stream":
        message = check_stream(sent.body, answer.body, headers).message
    else:
        unjudged = answer.status in UNREAD or deep
        message = check_reply(b"" if unjudged else sent.body, answer.status, answer.body, headers)
        assert not message or kind == "application/json"
    assert message.get("error", {}).get("code") != -32603, answer
    _check_id(sent.body, message, unread=answer.status in UNREAD, deep=deep)
    return message


def _check_id(body: bytes, message: dict[str, Any], *, unread: bool, deep: bool) -> None:
    ids, whole = read_ids(body)
    only = ids[0] if len(ids) == 1 else None
    if unread:
        assert "id" not in message
    elif deep:  # the id is looked for before and after what is nested, and not between
        assert message.get("id") in (None, *ids)
    elif not message:
        assert whole
        assert not ids
    elif whole or "id" in message:
        assert (type(message.get("id")), message.get("id")) == (type(only), only)


def is_handle(message: dict[str, Any]) -> bool:
    """Whether a response is a CreateTaskResult."""
    return bool(message.get("result", {}).get("resultType") == "task")


def breaks_http(head: Head) -> bool:
    """True where HTTP itself does not allow the headers, or they are too long to be read: the library then answers."""
    times = Counter(name.lower() for name, _ in head)
    return (
        times[b"host"] != 1
        or any(times[name] > 1 and not name.startswith(b"mcp-") for name in times)
        or any(_BROKEN_VALUE.search(value) or len(name + value) > _LONGEST_FIELD for name, value in head)
    )


def _joined(head: Head) -> dict[str, str]:
    joined: dict[str, list[str]] = {}
    for name, value in head:
        text = value.strip(b" \t").decode("utf-8", "surrogateescape")
        joined.setdefault(name.lower().decode("latin-1"), []).append(text)
    return {name: ", ".join(values) for name, values in joined.items()}


def _replaced(text: bytes, values: dict[bytes, bytes]) -> bytes:
    for name, value in values.items():
        text = text.replace(name, value)
    return text
