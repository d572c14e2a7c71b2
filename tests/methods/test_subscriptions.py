"""subscriptions/listen (core, "Subscriptions"; Tasks, "Task Status Notifications")."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from app.domain.task import Json, new_task_id
from tests.methods.inline_tools import Stage, make_tools
from tests.storage.scene import new_task
from tests.support.database import age_task
from tests.support.fixture_tools import registry
from tests.support.rpc import DRAFT, PUBLISHED, TASKS
from tests.support.service import DONE, Service, serving
from tests.support.subscriber import subscribed
from tests.support.waiting import eventually

LISTEN = "subscriptions/listen"
FORM = {
    "method": "elicitation/create",
    "params": {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}},
}
ACCEPT = {"action": "accept", "content": {}}


# -- what is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R35", "R55")
@pytest.mark.parametrize("request_id", ["a subscription", "7", 7, 0])
@pytest.mark.parametrize("version", [None, DRAFT, PUBLISHED])
async def test_each_change_is_sent_as_tasks_get_shows_it(
    service: Service, version: str | None, request_id: str | int
) -> None:
    client = service.client.with_(version=version)
    task_id = await service.start_task()
    async with subscribed(client, task_id, request_id=request_id) as subscriber:
        assert subscriber.honoured == {"taskIds": [task_id]}
        assert (await subscriber.next(task=await service.read(task_id)))["status"] == "working"
        claim = await service.claim()
        await service.store.status(claim, "Halfway")
        assert (await subscriber.next(task=await service.read(task_id)))["statusMessage"] == "Halfway"
        await service.store.finish(claim, DONE)
        assert (await subscriber.next(task=await service.read(task_id)))["status"] == "completed"


@pytest.mark.requirement("R55")
async def test_the_bytes_of_a_task_are_those_of_tasks_get(service: Service) -> None:
    odd = Json(
        '{"content":[],"structuredContent":{"b":1.50,"a":[1e2,"\\u00e9\\u0000"]},"isError":false,"resultType":"complete"}'
    )
    task_id = await service.start_task()
    await service.store.finish(await service.claim(), odd)
    got = (await service.client.rpc("tasks/get", {"taskId": task_id})).body
    async with subscribed(service.client, task_id) as subscriber:
        pushed = await subscriber.data()
    view = got[got.index(b'"taskId"') : got.index(b',"_meta"')]
    assert odd.encode() in view
    assert pushed[pushed.index(b'"taskId"') : pushed.index(b',"_meta"')] == view


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_every_end_is_sent_also_when_it_came_before(service: Service, end: str) -> None:
    task_id = await service.end_task(end)
    async with subscribed(service.client, task_id) as subscriber:
        assert (await subscriber.next(task=await service.read(task_id)))["status"] == end


async def test_a_question_and_its_answer_are_changes(service: Service) -> None:
    task_id = await service.ask(one=FORM, two=FORM)
    async with subscribed(service.client, task_id) as subscriber:
        assert list((await subscriber.next(task=await service.read(task_id)))["inputRequests"]) == ["one", "two"]
        for key, left in (("one", ["two"]), ("two", None)):
            await service.client.rpc("tasks/update", {"taskId": task_id, "inputResponses": {key: ACCEPT}})
            task = await subscriber.next(task=await service.read(task_id))
            assert task.get("inputRequests") is None if left is None else list(task["inputRequests"]) == left
        assert task["status"] == "working"


async def test_all_tasks_of_a_subscription_are_told_of_however_many(service: Service) -> None:
    tasks = {await service.start_task() for _ in range(130)}
    async with subscribed(service.client, *tasks, *tasks) as subscriber:
        assert len(subscriber.honoured["taskIds"]) == len(tasks)
        assert {(await subscriber.next())["taskId"] for _ in tasks} == tasks
        for claim in await service.store.claim(new_task_id(), ["job"], len(tasks)):
            await service.store.finish(claim, DONE)
        assert {(await subscriber.next())["taskId"] for _ in tasks} == tasks


@pytest.mark.requirement("R37")
async def test_progress_is_never_sent(service: Service) -> None:
    marker, task_id = await service.start_task("careful_job"), await service.start_task()
    claim, marking = await service.claim(), await service.claim("careful_job")
    await service.store.status(claim, "Printing", 1, 3)
    async with subscribed(service.client, task_id, marker, meta={"progressToken": "p"}) as subscriber:
        await subscriber.until(statusMessage="Printing")
        for done in (2, 3):
            await service.store.status(claim, "Printing", done, 3)  # what tasks/get shows stays the same
            await service.store.status(marking, str(done))
            while (task := await subscriber.next())["taskId"] == marker:
                if task.get("statusMessage") == str(done):
                    break
            else:
                pytest.fail(f"nothing has changed: {task}")


async def test_a_state_is_not_sent_again_though_it_is_read_again(service: Service) -> None:
    tasks = [await service.start_task() for _ in range(2)]
    async with subscribed(service.client, *tasks) as subscriber:
        for _ in tasks:
            await subscriber.next()
        with pytest.raises(TimeoutError):
            await subscriber.next(seconds=0.5)  # ten polls


@pytest.mark.parametrize("size", [60_000, 200_000, 3_000_000])
async def test_a_result_of_any_size_is_sent_whole(service: Service, size: int) -> None:
    task_id, other = await service.start_task(), await service.start_task("careful_job")
    async with subscribed(service.client, task_id, other) as subscriber:
        await subscriber.next()
        await subscriber.next()
        large = DONE.replace("done", "x" * size)
        await service.store.finish(await service.claim(), Json(large))
        await service.store.finish(await service.claim("careful_job"), DONE)
        ended = {task["taskId"]: task for task in [await subscriber.next(), await subscriber.next()]}
        assert ended.keys() == {task_id, other}
        assert len(ended[task_id]["result"]["content"][0]["text"]) == size


async def test_a_task_that_cannot_be_shown_keeps_back_no_other(service: Service) -> None:
    broken, task_id = await service.end_task("completed"), await service.start_task()
    await service.connection.execute("DELETE FROM perdure.task_outcomes WHERE task_id = $1", UUID(broken))
    async with subscribed(service.client, broken, task_id) as subscriber:
        assert (await subscriber.next())["taskId"] == task_id
        await service.client.rpc("tasks/cancel", {"taskId": task_id})
        assert (await subscriber.next())["status"] == "cancelled"


# -- what is asked for ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R36", "R40")
@pytest.mark.parametrize(("version", "code"), [(None, -32003), (DRAFT, -32003), (PUBLISHED, -32021)])
@pytest.mark.parametrize("asked", [["x"], [], None, 7, "own"])
async def test_without_the_extension_tasks_cannot_be_subscribed_to(
    service: Service, version: str | None, code: int, asked: Any
) -> None:
    task_ids = [await service.start_task()] if asked == "own" else asked
    client = service.client.with_(version=version, capabilities={})
    for accept in ("application/json", "text/event-stream"):
        body, headers = client.request(LISTEN, {"notifications": {"taskIds": task_ids, "toolsListChanged": 7}})
        reply = await client.post(body, headers | {"Accept": accept})
        assert reply.refusal[:2] == (400, code)
        assert reply.error["data"] == {"requiredCapabilities": TASKS}
    async with subscribed(client, toolsListChanged=True) as subscriber:
        assert subscriber.honoured == {"toolsListChanged": True}


@pytest.mark.requirement("R55")
async def test_what_is_not_the_caller_s_is_left_out_whatever_it_is(service: Service) -> None:
    expired, own = await service.end_task("completed"), await service.start_task()
    foreign = await service.store.create(new_task("job", owner="somebody else"))
    await age_task(service.connection, expired, 48 * 3600)
    left_out = [
        str(foreign.task_id),
        str(new_task_id()),
        expired,
        own.upper(),
        "",
        "no id",
        "\x00",
        "\ud800",
        "x" * 9999,
    ]
    async with subscribed(service.client, *left_out, own) as subscriber:
        assert subscriber.honoured == {"taskIds": [own]}
        await subscriber.next()
        await service.store.cancel("somebody else", foreign.task_id)
        await service.client.rpc("tasks/cancel", {"taskId": own})
        assert (await subscriber.next())["taskId"] == own
        assert service.watches._waiting == {}
    async with subscribed(service.client, *left_out) as subscriber:
        assert subscriber.honoured == {"taskIds": []}


async def test_a_task_that_expires_meanwhile_is_no_longer_shown(service: Service) -> None:
    task_id, other = await service.start_task(), await service.start_task("careful_job")
    async with subscribed(service.client, task_id, other) as subscriber:
        await subscriber.next()
        await subscriber.next()
        ended = "status = 'cancelled', ready_at = NULL, finished_at = now(), expires_at = now(), version = version + 1"
        await service.connection.execute(f"UPDATE perdure.tasks SET {ended} WHERE task_id = $1", UUID(task_id))
        await service.client.rpc("tasks/cancel", {"taskId": other})
        assert (await subscriber.next())["taskId"] == other


async def test_filters_that_are_not_served_are_not_acknowledged(service: Service) -> None:
    more: dict[str, Any] = {
        "promptsListChanged": True,
        "resourceSubscriptions": ["file:///a"],
        "com.example/x": 1,
        "toolsListChanged": False,
    }
    async with subscribed(service.client, **more) as subscriber:
        assert subscriber.honoured == {}
    async with subscribed(service.client, resourcesListChanged=True, toolsListChanged=True) as subscriber:
        assert subscriber.honoured == {"toolsListChanged": True}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"notifications": None},
        {"notifications": []},
        {"notifications": "taskIds"},
        {"notifications": {"taskIds": None}},
        {"notifications": {"taskIds": "x"}},
        {"notifications": {"taskIds": {"x": 1}}},
        {"notifications": {"taskIds": ["x", 7]}},
        {"notifications": {"taskIds": [["x"]]}},
        {"notifications": {"toolsListChanged": 1}},
        {"notifications": {"toolsListChanged": None}},
    ],
)
async def test_params_of_another_shape_are_refused_by_name(service: Service, params: dict[str, Any]) -> None:
    status, code, message = (await service.client.rpc(LISTEN, params)).refusal
    assert (status, code) == (400, -32602)
    assert message.startswith("Invalid params: params.notifications")


async def test_a_client_that_takes_no_stream_is_told_so(service: Service) -> None:
    body, headers = service.client.request(LISTEN, {"notifications": {"taskIds": []}})
    reply = await service.client.post(body, headers | {"Accept": "application/json"})
    assert reply.refusal[:2] == (406, -32600)
    assert reply.message["id"] == 1


async def test_older_clients_have_no_subscriptions(service: Service) -> None:
    older = {"MCP-Protocol-Version": "2025-11-25"}
    body, _ = service.client.with_(capabilities=None).request(LISTEN, {"notifications": {"toolsListChanged": True}})
    assert (await service.client.post(body, older)).error["code"] == -32601


async def test_too_many_tasks_or_streams_are_refused_until_some_have_ended(db_url: str) -> None:
    async with serving(db_url, limits={"streams": 2, "stream_tasks": 3}) as service:
        many = await service.client.rpc(LISTEN, {"notifications": {"taskIds": ["a", "b", "c", "d"]}})
        says = "Invalid params: params.notifications.taskIds names more than 3 tasks; open several subscriptions"
        assert many.refusal == (400, -32602, says)
        async with subscribed(service.client, "a", "b", "c"):
            async with subscribed(service.client):
                reply = await service.client.rpc(LISTEN, {"notifications": {}})
                assert reply.refusal == (429, -32603, "Too many subscriptions: 2 are open; let some of them end")
                assert int(reply.headers["Retry-After"]) >= 1

            async def there_is_room() -> bool:
                return (await _opened(service, {})) == 200

            assert await eventually(there_is_room)


# -- the tools --------------------------------------------------------------------------------------------------------


async def test_a_tool_that_comes_or_changes_is_told_of(db_url: str) -> None:
    async with serving(db_url, fresh_seconds=0.05) as service:
        add = next(tool for tool in make_tools(Stage()) if tool.name == "add")
        async with (
            subscribed(service.client, toolsListChanged=True) as subscriber,
            subscribed(service.client, await service.start_task()) as other,
        ):
            await other.next()
            await service.store.publish_tools(registry().catalogue())  # as they were
            with pytest.raises(TimeoutError):
                await subscriber.next(seconds=0.3)
            await service.store.publish_tools(registry(add).catalogue())
            assert (await subscriber.message())["method"] == "notifications/tools/list_changed"
            assert "add" in [tool["name"] for tool in (await service.client.rpc("tools/list")).result["tools"]]
            await service.connection.execute("DELETE FROM perdure.tools WHERE name = 'add'")
            assert (await subscriber.message())["method"] == "notifications/tools/list_changed"
            with pytest.raises(TimeoutError):
                await other.next(seconds=0.1)


# -- the life of a stream ---------------------------------------------------------------------------------------------


async def test_a_silent_stream_says_that_it_lives(db_url: str) -> None:
    async with serving(db_url, keepalive_seconds=0.02) as service:
        task_id = await service.start_task()
        async with subscribed(service.client, task_id) as subscriber:
            await subscriber.next()
            with pytest.raises(TimeoutError):
                await subscriber.next(seconds=0.5)
            assert subscriber.keepalives >= 3


async def test_a_stream_that_is_old_enough_ends_gracefully(db_url: str) -> None:
    async with serving(db_url, stream_seconds=0.3) as service:
        task_id = await service.start_task()
        for request_id in ("old", 1):
            async with subscribed(service.client, task_id, request_id=request_id) as subscriber:
                await subscriber.next()
                reply = await subscriber.rest()
                assert reply.result["_meta"]["io.modelcontextprotocol/subscriptionId"] == request_id
        assert service.watches._waiting == {}


async def test_a_stream_goes_on_when_all_its_tasks_have_ended(service: Service) -> None:
    task_id = await service.end_task("completed")
    async with subscribed(service.client, task_id) as subscriber:
        await subscriber.next()
        with pytest.raises(TimeoutError):
            await subscriber.next(seconds=0.2)


async def test_a_server_that_stops_ends_all_streams_gracefully_and_at_once(service: Service) -> None:
    task_id = await service.start_task()
    async with subscribed(service.client, task_id) as one, subscribed(service.client, toolsListChanged=True) as other:
        await one.next()
        async with asyncio.timeout(5):  # much less than the grace
            await service.server.stop()
        for subscriber in (one, other):
            assert (await subscriber.rest()).result["resultType"] == "complete"


async def test_nothing_is_left_of_a_client_that_has_left(service: Service) -> None:
    task_id = await service.start_task()
    before = asyncio.all_tasks()
    async with subscribed(service.client, task_id) as subscriber:
        await subscriber.next()
        assert UUID(task_id) in service.watches._waiting

    async def nothing_is_left() -> bool:
        return service.watches._waiting == {} and asyncio.all_tasks() <= before

    assert await eventually(nothing_is_left)


async def _opened(service: Service, wanted: dict[str, Any]) -> int:
    """The status that a subscription is answered with; it is left at once."""
    async with service.client.sending(*service.client.request(LISTEN, {"notifications": wanted})) as response:
        response.close()
        return response.status
