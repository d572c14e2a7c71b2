"""What one principal may have at the same time."""

from __future__ import annotations

import asyncio

import pytest

from app.domain.principal import ANONYMOUS
from app.errors import Refusal
from app.methods import limits as limits_module
from app.methods.limits import Limits
from tests.methods.inline_tools import Stage, make_tools
from tests.support.service import serving, serving_with_worker
from tests.support.waiting import eventually


async def test_too_many_live_tasks_are_refused_until_some_have_ended(db_url: str) -> None:
    async with serving(db_url, limits={"live_tasks": 3}) as service:
        made = [await service.start_task() for _ in range(3)]
        reply = await service.client.call("job")
        assert reply.refusal == (429, -32603, "Too many tasks: 3 have not ended; let some of them end")
        assert int(reply.headers["Retry-After"]) >= 1
        assert await service.count_tasks() == 3
        assert (await service.client.call("greet", name="Ada")).status == 200
        for task_id in made:
            assert (await service.client.rpc("tasks/get", {"taskId": task_id})).status == 200
        await service.client.rpc("tasks/cancel", {"taskId": made[0]})
        assert (await service.client.call("job")).result["resultType"] == "task"


@pytest.mark.parametrize(("factor", "counted_again"), [(1e9, False), (0, True)])
async def test_a_count_that_takes_long_is_good_for_longer(
    db_url: str, monkeypatch: pytest.MonkeyPatch, factor: float, counted_again: bool
) -> None:
    monkeypatch.setattr(limits_module, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(limits_module, "rest", lambda least, took: least + factor * took)
    async with serving(db_url) as service:
        limits = Limits(service.store, live_tasks=2)
        await limits.task(ANONYMOUS.owner)
        for _ in range(2):
            await service.start_task()  # by another process, as it were
        came = await asyncio.gather(limits.task(ANONYMOUS.owner), return_exceptions=True)
    assert [isinstance(it, Refusal) for it in came] == [counted_again]


async def test_too_many_calls_that_wait_are_refused_until_one_has_its_answer(db_url: str) -> None:
    stage = Stage()
    async with serving_with_worker(db_url, *make_tools(stage), limits={"inline_calls": 1}) as service:
        undeclared = service.client.with_(capabilities=None)
        waits = asyncio.create_task(undeclared.call("wait_for_go"))

        async def started() -> bool:
            return stage.seen["started"] > 0

        await eventually(started)
        reply = await undeclared.call("wait_for_go")
        assert reply.refusal == (429, -32603, "Too many calls at once: 1 wait for their answers")
        assert (await service.client.call("add", a=1, b=2)).result["resultType"] == "task"
        stage.go.set()
        await waits
        assert (await undeclared.call("add", a=1, b=2)).status == 200
