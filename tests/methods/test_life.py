"""A task over its whole life, as a client sees it (Tasks, "Tasks", "Polymorphic Results", "Task Polling")."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.principal import ANONYMOUS
from app.domain.task import Json, NewTask, Policy, new_task_id
from tests.methods.test_update import FORM
from tests.support.database import age_task
from tests.support.rpc import Client
from tests.support.service import DONE, Service, serving

STATES = ("working", "input_required", "completed", "failed", "cancelled")
TASK_METHODS = ("tasks/get", "tasks/update", "tasks/cancel")


async def _task_in(service: Service, state: str) -> str:
    """The id of a task in this state."""
    match state:
        case "working":
            return await service.start_task()
        case "input_required":
            return await service.ask(name=FORM)
    return await service.end_task(state)


async def _every_result(client: Client, task_id: str) -> dict[str, dict[str, Any]]:
    """What each method of the extension answers of a task, by the method's name."""
    params = {"taskId": task_id, "inputResponses": {}}
    return {method: (await client.rpc(method, params)).result for method in TASK_METHODS}


@pytest.mark.requirement("R06", "R19", "R24", "R29", "R31", "R34")
@pytest.mark.parametrize("state", STATES)
async def test_every_method_of_a_task_answers_completely_in_every_state(service: Service, state: str) -> None:
    task_id = await _task_in(service, state)
    results = await _every_result(service.client, task_id)
    assert {result["resultType"] for result in results.values()} == {"complete"}
    assert results["tasks/get"]["status"] == state
    for method in ("tasks/update", "tasks/cancel"):
        assert set(results[method]) - {"_meta"} == {"resultType"}


@pytest.mark.requirement("R06")
async def test_no_answer_but_a_handle_says_that_it_is_a_task(service: Service) -> None:
    client = service.client
    replies = [
        await client.rpc("server/discover"),
        await client.rpc("tools/list"),
        await client.call("greet", name="Ada"),
        await client.call("refuse"),
        await client.call("job", count="three"),
    ]
    assert {reply.result["resultType"] for reply in replies} == {"complete"}


@pytest.mark.requirement("R51")
@pytest.mark.parametrize("state", STATES)
async def test_times_are_iso_8601_and_lengths_are_integers_in_every_state(service: Service, state: str) -> None:
    now, handle = datetime.now(UTC), (await service.client.call("careful_job")).result
    for task in (handle, await service.read(handle["taskId"]), await service.read(await _task_in(service, state))):
        created, updated = (datetime.fromisoformat(task[name]) for name in ("createdAt", "lastUpdatedAt"))
        assert now - timedelta(minutes=1) < created <= updated < now + timedelta(minutes=1)
        assert "ttlMs" in task
        assert task["ttlMs"] is None or type(task["ttlMs"]) is int
        assert type(task["pollIntervalMs"]) is int
    assert handle["ttlMs"] == 3_600_000


@pytest.mark.requirement("R21")
async def test_a_task_without_a_limit_gets_one_when_it_ends(service: Service) -> None:
    task_id = await service.start_task()
    assert (await service.read(task_id))["ttlMs"] is None
    await service.store.finish(await service.claim(), DONE)
    assert (await service.read(task_id))["ttlMs"] >= 86_400_000


@pytest.mark.requirement("R20")
async def test_a_task_past_its_time_fails_with_a_reason_and_is_deleted_later(service: Service) -> None:
    task_id = await service.start_task("careful_job")
    await age_task(service.connection, task_id, 3599)
    assert await service.store.expire() == []
    await age_task(service.connection, task_id, 2)
    assert (await service.read(task_id))["status"] == "working"
    await service.store.expire()
    task = await service.read(task_id)
    assert (task["status"], task["error"]["message"]) == ("failed", "The task has expired")
    assert "time to live" in task["statusMessage"]
    await age_task(service.connection, task_id, 7200)
    await service.store.purge()
    assert (await service.client.rpc("tasks/get", {"taskId": task_id})).refusal == (
        400, -32602, "Failed to retrieve task: Task not found",
    )  # fmt: skip


@pytest.mark.requirement("R09")
async def test_what_one_replica_has_created_another_finds_at_once(service: Service, db_url: str) -> None:
    async with serving(db_url) as other:
        for _ in range(20):
            task_id = await service.start_task()
            assert (await other.read(task_id))["status"] == "working"


@pytest.mark.requirement("R12")
async def test_a_poll_is_served_however_soon_it_comes_after_the_last_one(service: Service) -> None:
    task_id = await service.start_task("careful_job")
    assert (await service.read(task_id))["pollIntervalMs"] == 5000
    replies = await asyncio.gather(*(service.client.rpc("tasks/get", {"taskId": task_id}) for _ in range(50)))
    assert {reply.status for reply in replies} == {200}


@pytest.mark.requirement("R04")
async def test_a_task_of_another_request_than_a_tool_call_lives_and_ends_like_any_other(service: Service) -> None:
    params = Json('{"name":"brief","arguments":{"topic":"paper"}}')
    new = NewTask(new_task_id(), ANONYMOUS.owner, "brief", params, Json("{}"), Policy(), method="prompts/get")
    task_id = str((await service.store.create(new)).task_id)
    assert (await service.read(task_id))["status"] == "working"
    claim = await service.claim("brief")
    assert claim.params == params
    assert (await service.client.rpc("tasks/update", {"taskId": task_id, "inputResponses": {}})).status == 200
    assert (await service.client.rpc("tasks/cancel", {"taskId": task_id})).status == 200
    await service.store.finish(claim, DONE)
    assert (await service.read(task_id))["status"] == "completed"
