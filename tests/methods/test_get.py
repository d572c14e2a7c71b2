"""tasks/get (Tasks, "Task Polling", "Error Handling")."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from app.domain.task import Json, NewTask, Policy, Question, new_task_id
from tests.support.database import age_task
from tests.support.service import DONE, OUT_OF_PAPER, Service

FORM = Json(
    '{"method":"elicitation/create","params":{"mode":"form","message":"Who?","requestedSchema":'
    '{"type":"object","properties":{"name":{"type":"string"}}}}}'
)
PAYLOADS = {"inputRequests", "result", "error"}


@pytest.mark.requirement("R13")
async def test_a_new_task_is_working(service: Service) -> None:
    created = (await service.client.call("job")).result
    task = await service.read(created["taskId"])
    assert task["status"] == "working"
    assert not PAYLOADS & set(task)
    assert {k: task[k] for k in ("createdAt", "lastUpdatedAt", "ttlMs")} == {
        k: created[k] for k in ("createdAt", "lastUpdatedAt", "ttlMs")
    }


async def test_a_working_task_says_how_it_is_getting_on(service: Service) -> None:
    task_id = await service.start_task()
    claim = await service.claim()
    assert "statusMessage" not in await service.read(task_id)
    await service.store.status(claim, "Half-way: 50 % \U0001f680")
    assert (await service.read(task_id))["statusMessage"] == "Half-way: 50 % \U0001f680"


@pytest.mark.requirement("R14", "R15")
async def test_a_task_that_asks_shows_all_that_is_outstanding_in_the_order_of_asking(service: Service) -> None:
    task_id = await service.start_task()
    claim = await service.claim()
    await service.store.status(claim, "about to ask")
    await service.store.ask(claim, [Question("zeta", FORM), Question("alpha", FORM)])
    task = await service.read(task_id)
    assert task["status"] == "input_required"
    assert list(task["inputRequests"]) == ["zeta", "alpha"]
    assert task["inputRequests"]["zeta"] == json.loads(FORM)
    assert "statusMessage" not in task
    assert task == await service.read(task_id) | {"pollIntervalMs": task["pollIntervalMs"]}


@pytest.mark.requirement("R16", "R47")
async def test_a_completed_task_has_its_result_byte_for_byte(service: Service) -> None:
    task_id = await service.start_task()
    await service.store.finish(await service.claim(), DONE)
    reply = await service.client.rpc("tasks/get", {"taskId": task_id})
    assert reply.result["status"] == "completed"
    assert f'"result":{DONE}'.encode() in reply.body
    assert reply.result["ttlMs"] >= 86_400_000


@pytest.mark.requirement("R18", "R43", "R46")
async def test_a_failed_task_has_its_error_byte_for_byte_and_says_why(service: Service) -> None:
    task_id = await service.start_task()
    await service.store.fail(await service.claim(), OUT_OF_PAPER, "It was out of paper")
    reply = await service.client.rpc("tasks/get", {"taskId": task_id})
    assert reply.result["status"] == "failed"
    assert reply.result["statusMessage"] == "It was out of paper"
    assert f'"error":{OUT_OF_PAPER}'.encode() in reply.body


@pytest.mark.requirement("R17")
async def test_a_cancelled_task_is_just_cancelled(service: Service) -> None:
    task_id = await service.start_task()
    assert (await service.client.rpc("tasks/cancel", {"taskId": task_id})).status == 200
    task = await service.read(task_id)
    assert task["status"] == "cancelled"
    assert not PAYLOADS & set(task)


@pytest.mark.requirement("R11")
async def test_the_poll_interval_grows_with_the_age_of_the_task(service: Service) -> None:
    task_id = await service.start_task()
    assert (await service.read(task_id))["pollIntervalMs"] == 1000
    await age_task(service.connection, task_id, 60)
    assert (await service.read(task_id))["pollIntervalMs"] in range(3000, 3100)
    await age_task(service.connection, task_id, 3600)
    assert (await service.read(task_id))["pollIntervalMs"] == 5000


async def test_the_policy_of_the_tool_is_the_policy_of_the_task(service: Service) -> None:
    task = await service.read(await service.start_task("careful_job"))
    assert (task["ttlMs"], task["pollIntervalMs"]) == (3_600_000, 5000)


@pytest.mark.requirement("R26", "R32", "R38", "R39", "R48", "R59")
async def test_unknown_foreign_and_malformed_ids_are_answered_with_the_same_bytes(service: Service) -> None:
    new = NewTask(new_task_id(), "somebody else", "job", Json("{}"), Json("{}"), Policy())
    foreign = str((await service.store.create(new)).task_id)
    mine = await service.start_task()
    ids = [
        foreign,
        str(uuid4()),
        mine.upper(),
        mine.replace("-", ""),
        f"urn:uuid:{mine}",
        f"{{{mine}}}",
        f" {mine}",
        f"{mine}\n",
        mine.translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")),
        "",
        "\x00",
        "\ud800",
        "x" * 100_000,
        "../../etc/passwd",
        "'; DROP TABLE tasks; --",
    ]
    for method in ("get", "update", "cancel"):
        params = {"inputResponses": {"name": {"action": "decline"}}}
        replies = [await service.client.rpc(f"tasks/{method}", params | {"taskId": task_id}) for task_id in ids]
        assert len({(reply.status, reply.body) for reply in replies}) == 1
        assert replies[0].status == 400
        assert replies[0].error["code"] == -32602
        assert replies[0].error["message"].endswith(" task: Task not found")
    assert (await service.client.rpc("tasks/get", {"taskId": foreign})).error["message"] == (
        "Failed to retrieve task: Task not found"
    )
    assert (await service.read(mine))["status"] == "working"
    state = await service.store.get("somebody else", new.task_id)
    assert state is not None
    assert state.task.status == "working"


@pytest.mark.requirement("R38", "R39", "R42")
@pytest.mark.parametrize("bad", [None, 7, 1.5, True, [], {}, ["a"]])
async def test_an_id_that_is_no_string_is_refused_by_the_name_of_its_field(service: Service, bad: object) -> None:
    for method in ("get", "update", "cancel"):
        reply = await service.client.rpc(f"tasks/{method}", {"taskId": bad, "inputResponses": {}})
        assert (reply.status, reply.error["code"]) == (400, -32602)
        assert "params.taskId" in reply.error["message"]


@pytest.mark.requirement("R42", "R57")
async def test_an_expired_task_is_told_apart_from_one_that_never_was(service: Service) -> None:
    task_id = await service.start_task("careful_job")
    await service.store.finish(await service.claim("careful_job"), DONE)
    params = {"taskId": task_id, "inputResponses": {"name": {"action": "decline"}}}
    await age_task(service.connection, task_id, 3595)
    assert (await service.client.rpc("tasks/get", params)).status == 200
    await age_task(service.connection, task_id, 10)
    refusals = [(await service.client.rpc(f"tasks/{m}", params)).refusal for m in ("get", "update", "cancel")]
    assert refusals == [
        (400, -32602, "Failed to retrieve task: Task has expired"),
        (400, -32602, "Failed to update task: Task has expired"),
        (400, -32602, "Failed to cancel task: Task has expired"),
    ]


@pytest.mark.requirement("R57")
async def test_a_purged_task_is_one_that_never_was(service: Service) -> None:
    task_id = await service.start_task()
    await service.store.finish(await service.claim(), DONE)
    await age_task(service.connection, task_id, 48 * 3600)
    assert await service.store.purge() == 1
    refusal = (await service.client.rpc("tasks/get", {"taskId": task_id})).refusal
    assert refusal == (400, -32602, "Failed to retrieve task: Task not found")
