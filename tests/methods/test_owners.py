"""What is another owner's does not exist: for every method and every field that carries an id, to the byte.

Two owners with an API key each, two API processes on one database, and both started anew.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from app.http.auth.access import Access
from app.http.auth.api_keys import ApiKeys, line, new_key
from app.tools.context import ToolContext
from app.tools.registry import Registry, tool
from tests.methods.test_inline import text
from tests.support.fixture_tools import job, look_around
from tests.support.rpc import DRAFT, PUBLISHED, Client, Reply
from tests.support.service import Service, serving
from tests.support.subscriber import subscribed
from tests.support.worker import working

ADA, EVE = new_key(), new_key()
KEYS = f"{line('ada', ADA)}, {line('eve', EVE)}"
FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
QUESTION: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Who?", "requestedSchema": FORM},
}
ANSWER: dict[str, Any] = {"name": {"action": "accept", "content": {"name": "Eve"}}}
TABLES = ("tasks", "task_requests", "task_outcomes", "task_input_requests", "task_input_responses", "task_attempts")


@tool(starts="request")
async def ask_first(ctx: ToolContext, greeting: str = "Hello") -> str:
    """Ask on the request."""
    answer = await ctx.elicit("name", "Who?", FORM)
    return f"{greeting}, {getattr(answer, 'content', None)}, of {ctx.owner}"


@asynccontextmanager
async def replicas(db_url: str, **options: Any) -> AsyncIterator[list[Service]]:
    """Two API processes that ask for keys."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                serving(db_url, Registry([job, look_around, ask_first]), access=Access(ApiKeys(KEYS)), **options)
            )
            for _ in range(2)
        ]


def of(service: Service, key: str) -> Service:
    """The service as the owner of a key sees it."""
    return dataclasses.replace(service, client=service.client.with_(token=key))


async def tasks_in_every_state(service: Service) -> list[str]:
    """The ids of a task that works, one that asks, and three that have ended."""
    ended = [await service.end_task(end) for end in ("completed", "failed", "cancelled")]
    asking = await service.ask(name=QUESTION)
    return [await service.start_task(), asking, *ended]


def no_ids(own: str) -> list[str]:
    """Ids of no task, and what is no id at all."""
    return [str(uuid4()), own.upper(), own.replace("-", ""), f"{own} ", "", "no id", "\x00", "x" * 300]


async def rows(connection: asyncpg.Connection[Any], task_ids: Iterable[str]) -> list[str]:
    """All that is stored of these tasks."""
    found = []
    for table in TABLES:
        query = f"SELECT t::text AS row FROM perdure.{table} AS t WHERE task_id::text = ANY ($1) ORDER BY 1"
        found += [row["row"] for row in await connection.fetch(query, list(task_ids))]
    assert found
    return found


def same(replies: Iterable[Reply]) -> Reply:
    """The one answer that all of these are, to the byte."""
    replies = list(replies)
    assert len({(reply.status, reply.body) for reply in replies}) == 1, replies
    return replies[0]


@pytest.mark.requirement("R48", "R59")
@pytest.mark.parametrize("version", [None, DRAFT, PUBLISHED])
async def test_task_methods_answer_for_foreign_tasks_as_for_unknown_ones(db_url: str, version: str | None) -> None:
    foreign: list[str] = []
    for _start in range(2):
        async with replicas(db_url) as services:
            foreign = foreign or await tasks_in_every_state(of(services[0], ADA))
            before = await rows(services[0].connection, foreign)
            for service in services:
                eve = service.client.with_(token=EVE, version=version)
                ids = [*foreign, *no_ids(foreign[0])]
                for method, word in (("get", "retrieve"), ("update", "update"), ("cancel", "cancel")):
                    more = {"inputResponses": ANSWER} if method == "update" else {}
                    answers = [await eve.rpc(f"tasks/{method}", {"taskId": each} | more) for each in ids]
                    assert same(answers).refusal == (400, -32602, f"Failed to {word} task: Task not found")
                ada = service.client.with_(token=ADA, version=version)
                assert (await ada.rpc("tasks/get", {"taskId": foreign[0]})).result["status"] == "working"
            assert await rows(services[0].connection, foreign) == before


@pytest.mark.requirement("R48", "R59")
async def test_a_subscription_leaves_foreign_tasks_out_and_hears_nothing_of_them(db_url: str) -> None:
    foreign: list[str] = []
    for start in range(2):
        async with replicas(db_url) as services:
            foreign = foreign or await tasks_in_every_state(of(services[0], ADA))
            for number, service in enumerate(services):
                ada, eve = of(service, ADA), of(service, EVE)
                acknowledged = [await acknowledgement(eve.client, each) for each in [*foreign, *no_ids(foreign[0])]]
                assert len(set(acknowledged)) == 1
                own = await eve.start_task()
                async with subscribed(eve.client, *foreign, own) as subscriber:
                    assert subscriber.honoured == {"taskIds": [own]}
                    assert (await subscriber.next())["taskId"] == own
                    if (start, number) == (1, 1):
                        await ada.client.rpc("tasks/cancel", {"taskId": foreign[0]})
                        await ada.client.rpc("tasks/update", {"taskId": foreign[1], "inputResponses": ANSWER})
                    await eve.client.rpc("tasks/cancel", {"taskId": own})
                    assert (await subscriber.next())["taskId"] == own


async def acknowledgement(client: Client, task_id: str) -> bytes:
    """The bytes with which a subscription to this task begins."""
    body, headers = client.request("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
    async with client.sending(body, headers) as response:
        assert response.status == 200
        block = await asyncio.wait_for(response.content.readuntil(b"\n\n"), 20)
        response.close()
        return block


@pytest.mark.requirement("R59")
async def test_a_request_state_of_somebody_else_is_as_good_as_a_made_up_one(db_url: str) -> None:
    state = ""
    for _start in range(2):
        async with replicas(db_url) as services, working(db_url, ask_first):
            clients = [service.client.with_(token=EVE, capabilities={"elicitation": {}}) for service in services]
            ada = services[0].client.with_(token=ADA, capabilities={"elicitation": {}})
            state = state or (await ada.call("ask_first")).result["requestState"]
            [foreign] = await services[0].connection.fetch(
                "SELECT task_id::text FROM perdure.tasks WHERE owner = 'ada'"
            )
            before = await rows(services[0].connection, foreign)
            made_up = f"{'A' * (len(state) - 4)}{state[-4:]}"
            for eve in clients:
                refused = same([await retry(eve, each) for each in (state, made_up, "", "x" * 1000)])
                says = "Invalid params: params.requestState is none that was given for this request"
                assert refused.refusal == (400, -32602, says)
            assert await services[0].count_tasks() == 1
            assert await rows(services[0].connection, foreign) == before
    async with replicas(db_url) as services, working(db_url, ask_first):
        ada = services[1].client.with_(token=ADA, capabilities={"elicitation": {}})
        assert text((await retry(ada, state)).result) == "Hello, {'name': 'Eve'}, of ada"


async def retry(client: Client, state: str) -> Reply:
    """Call the tool again with a requestState."""
    return await client.rpc(
        "tools/call", {"name": "ask_first", "arguments": {}, "requestState": state, "inputResponses": ANSWER}
    )


@pytest.mark.requirement("R59")
async def test_the_same_idempotency_key_of_two_owners_makes_two_tasks(db_url: str) -> None:
    seen: dict[str, str] = {}
    for _start in range(2):
        async with replicas(db_url) as services:
            for service in services:
                for key, count in ((ADA, 1), (EVE, 2)):  # of one owner, the other count would be a conflict
                    params = {
                        "name": "job",
                        "arguments": {"count": count},
                        "_meta": {"dev.perdure/idempotencyKey": "k"},
                    }
                    made = (await service.client.with_(token=key).rpc("tools/call", params)).result["taskId"]
                    assert seen.setdefault(key, made) == made
            assert await services[0].count_tasks() == 2
    assert len(set(seen.values())) == 2


@pytest.mark.requirement("R59")
async def test_companion_tools_answer_for_foreign_tasks_as_for_unknown_ones(db_url: str) -> None:
    foreign: list[str] = []
    for _start in range(2):
        async with replicas(db_url, companions=True) as services:
            foreign = foreign or await tasks_in_every_state(of(services[0], ADA))
            before = await rows(services[0].connection, foreign)
            for service in services:
                eve = service.client.with_(token=EVE)
                for name, more in (
                    ("task_result", {"wait_seconds": 0}),
                    ("task_answer", {"key": "name", "action": "accept", "content": {"name": "Eve"}}),
                    ("task_cancel", {}),
                ):
                    ids = [*foreign, *no_ids(foreign[0])]
                    refused = same([await eve.call(name, task_id=each, **more) for each in ids])
                    assert (refused.result["isError"], text(refused.result)) == (True, "Task not found.")
            assert await rows(services[0].connection, foreign) == before


async def test_a_tool_sees_whose_call_it_is_and_nothing_in_the_request_changes_that(db_url: str) -> None:
    async with replicas(db_url) as services:
        meta = {
            "owner": "ada",
            "dev.perdure/owner": "ada",
            "io.modelcontextprotocol/clientInfo": {"name": "ada", "version": "1"},
        }
        params = {"name": "look_around", "arguments": {}, "_meta": meta}
        for service in services:
            body, headers = service.client.with_(token=EVE).request("tools/call", params)
            reply = await service.client.post(body, headers | {"X-Forwarded-User": "ada", "X-Owner": "ada"})
            assert reply.result["structuredContent"]["owner"] == "eve"
            task = await of(service, EVE).start_task()
            owner = "SELECT owner FROM perdure.tasks WHERE task_id::text = $1"
            assert await service.connection.fetchval(owner, task) == "eve"


async def test_what_one_owner_has_does_not_count_for_another(db_url: str) -> None:
    async with replicas(db_url, limits={"live_tasks": 1, "calls_per_minute": 3}) as services:
        ada, eve = (of(services[0], key) for key in (ADA, EVE))
        await ada.start_task()
        assert [(await ada.client.call("job")).status for _ in range(3)] == [429] * 3
        await eve.start_task()
