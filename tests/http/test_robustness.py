"""Whatever is thrown at the endpoint is answered, soon and rightly, and leaves no half-made task behind."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.task import Claim, Json, NewTask, Policy, Question, new_task_id
from app.http.auth import ANONYMOUS
from tests.http.attacks import REQUESTS, TASK_NAMES, VERSIONS, Attack, bodies, heads, messages, rightly
from tests.support.json_text import read_ids, tree, write
from tests.support.oracle import check_reply
from tests.support.raw_http import Answer, Head, post
from tests.support.rpc import TASKS
from tests.support.service import DONE, Service, serving

SOON_SECONDS = 10.0
UNREAD = {403, 408, 413, 415}
"""Statuses of requests that are turned away before their body is read."""
FORM = Json(
    '{"method":"elicitation/create","params":{"mode":"form","message":"Who?","requestedSchema":'
    '{"type":"object","properties":{"name":{"type":"string"}}}}}'
)
HALF_MADE = """
SELECT count(*)
FROM perdure.tasks AS t
FULL JOIN perdure.task_requests AS r ON r.task_id = t.task_id
WHERE t.task_id IS NULL OR r.task_id IS NULL"""

KNOWN = [
    '{"jsonrpc":DEEP,"id":1,"method":"server/discover","params":{}}',
    '{"jsonrpc":"2.0","id":1,"method":"server/discover","params":DEEP,"id":["x"]}',
]
"""Bodies whose id is not found, or found though it is there twice."""

_BROKEN_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_LONGEST_FIELD = 8_000


@dataclass
class Target:
    """A running service, and the tasks that attacks are about."""

    runner: asyncio.Runner
    service: Service
    ids: dict[bytes, bytes] = field(default_factory=dict)

    def attack(self, attack: Attack) -> Answer:
        """Send an attack and check all that must hold whatever it is."""
        return self.runner.run(self._attack(attack))

    async def _attack(self, attack: Attack) -> Answer:
        text = attack.body + b"".join(value for _, value in attack.head)
        named = {name: await self._task(name) for name in TASK_NAMES if name in text}
        sent = Attack([(name, _filled(value, named)) for name, value in attack.head], _filled(attack.body, named))
        before = await self.service.count_tasks()
        answer = await asyncio.wait_for(post(self.service.client.url, sent.head, sent.body), SOON_SECONDS)
        check_answer(sent, answer)
        handle = _handle(answer)
        assert await self.service.count_tasks() == before + len(handle), "a task without a handle, or the reverse"
        assert await self.service.connection.fetchval(HALF_MADE) == 0
        assert all([await self.service.read(task_id) for task_id in handle])
        return answer

    async def _task(self, name: bytes) -> bytes:
        """The id of a task in the state that this name stands for; a new one where an attack has ended the old one."""
        wanted = {b"@working": "working", b"@asking": "input_required", b"@ended": "completed"}[name]
        known = self.ids.get(name)
        if known is None or (await self.service.read(known.decode()))["status"] != wanted:
            self.ids[name] = str((await self._make(wanted)).task_id).encode()
        return self.ids[name]

    async def _make(self, status: str) -> Claim:
        store = self.service.store
        task_id, params = new_task_id(), Json('{"name":"job","arguments":{}}')
        new = NewTask(task_id, ANONYMOUS, f"tool of {task_id}", params, Json("{}"), Policy())
        await store.create(new)
        [claim] = await store.claim(uuid4(), [new.tool], 1)
        if status == "input_required":
            await store.ask(claim, [Question("name", FORM)])
        elif status == "completed":
            await store.finish(claim, DONE)
        return claim


def check_answer(sent: Attack, answer: Answer) -> None:
    """An answer of the protocol, with the id of the request where that could be read."""
    assert answer.status < 500, answer
    if answer.status in (400, 417) and breaks_http(sent.head) and answer.headers.get_content_type() == "text/plain":
        return
    headers = {name.decode("latin-1"): ", ".join(values) for name, values in _joined(sent.head).items()}
    unread = answer.status in UNREAD
    deep = b"levels deep" in answer.body
    message = check_reply(b"" if unread or deep else sent.body, answer.status, answer.body, headers)
    ids, whole = read_ids(sent.body)
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
    assert not message or answer.headers.get_content_type() == "application/json"


def breaks_http(head: Head) -> bool:
    """True where HTTP itself does not allow the headers, or they are too long to be read: the library then answers."""
    times = Counter(name.lower() for name, _ in head)
    return (
        times[b"host"] != 1
        or any(times[name] > 1 and not name.startswith(b"mcp-") for name in times)
        or any(name.lower() == b"expect" and value.lower() != b"100-continue" for name, value in head)
        or any(_BROKEN_VALUE.search(value) or len(name + value) > _LONGEST_FIELD for name, value in head)
    )


def _filled(text: bytes, named: dict[bytes, bytes]) -> bytes:
    for name, task_id in named.items():
        text = text.replace(name, task_id)
    return text


def _joined(head: Head) -> dict[bytes, list[str]]:
    joined: dict[bytes, list[str]] = {}
    for name, value in head:
        joined.setdefault(name.lower(), []).append(value.strip(b" \t").decode("utf-8", "surrogateescape"))
    return joined


def _handle(answer: Answer) -> list[str]:
    """The id of the task that an answer is the handle of, if it is one."""
    result = json.loads(answer.body).get("result", {}) if answer.body.startswith(b"{") else {}
    return [result["taskId"]] if result.get("resultType") == "task" else []


@contextmanager
def targeted(db_url: str) -> Iterator[Target]:
    """A service that outlives the examples of a test."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        service = runner.run(stack.enter_async_context(serving(db_url)))
        try:
            yield Target(runner, service)
        finally:
            runner.run(stack.aclose())


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_attacks_are_made_of_is_served_while_it_is_undamaged(db_url: str, version: str | None) -> None:
    with targeted(db_url) as target:
        for request in REQUESTS:
            head, message = rightly(request, version, TASKS)
            assert b'"result":' in target.attack(Attack(head, write(tree(message)))).body, request


def test_a_client_that_offers_another_protocol_is_answered_in_this_one(db_url: str) -> None:
    with targeted(db_url) as target:
        for protocol in (b"h2c", b"websocket"):
            head, message = rightly(REQUESTS[0], None, None)
            offer = [(b"Connection", b"Upgrade, HTTP2-Settings, close"), (b"Upgrade", protocol)]
            assert target.attack(Attack([*head, *offer], write(tree(message)))).status == 200


def test_a_damaged_message_is_answered_and_leaves_nothing_half_made(db_url: str) -> None:
    _throw(db_url, messages(), 400, *map(_known, KNOWN))


def test_a_damaged_body_is_answered_and_leaves_nothing_half_made(db_url: str) -> None:
    _throw(db_url, bodies(), 200)


def test_a_damaged_head_is_answered_and_leaves_nothing_half_made(db_url: str) -> None:
    _throw(db_url, heads(), 250)


def _throw(db_url: str, attacks: st.SearchStrategy[Attack], count: int, *known: Attack) -> None:
    """Throw so many attacks, the same ones each time, and those that once found something."""
    with targeted(db_url) as target:

        @settings(max_examples=count, deadline=None, derandomize=True, database=None)
        @given(attacks)
        def throw(attack: Attack) -> None:
            target.attack(attack)

        for attack in known:
            target.attack(attack)
        throw()


def _known(body: str) -> Attack:
    head, _ = rightly(REQUESTS[0], None, None)
    return Attack(head, body.replace("DEEP", "[" * 100 + "]" * 100).encode())
