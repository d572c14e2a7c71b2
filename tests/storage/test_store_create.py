"""create and get: what is stored comes back as it was sent, once, and to its owner only."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.domain.task import Json, NewTask, Reply, Status, TaskState, new_task_id
from app.storage.store import Store
from tests.storage.scene import OWNER, Scene, attempt_of, new_task, question, response

# JSON texts that a parser, jsonb or a careless copy would change.
TEXTS = {
    "odd whitespace": ' {\t"a" :\r\n [ 1 ,2 ]\n} ',
    "duplicate keys": '{"a":1,"a":2,"":3,"":4}',
    "order of keys": '{"b":1,"a":2,"aa":3}',
    "NUL as an escape": r'{"a":"\u0000"}',
    "half a surrogate pair": r'{"a":"\ud800","b":"\udc00\ud800"}',
    "a number beyond every float": '{"a":1e400,"b":-1E+400}',
    "integers beyond 64 bits": '{"a":9223372036854775808,"b":18446744073709551616,"c":' + "7" * 400 + "}",
    "numbers as they are written": '{"a":1.0,"b":1.10,"c":-0,"d":0.1e1,"e":1E5}',
    "escapes as they are written": r'{"a":"\/\u0041\n","b":"A"}',
    "beyond the basic plane": '{"a":"🦔","b":"\u202eright to left","🦔":1}',
    "control characters as escapes": r'{"a":"\u0001\u001f\u007f"}',
    "64 levels": "[" * 64 + "]" * 64,
    "a megabyte": '{"a":"' + "x" * 1_000_000 + '"}',
    "only a string": '"a"',
    "only null": "null",
}


@pytest.fixture(params=TEXTS)
def text(request: pytest.FixtureRequest) -> Json:
    """JSON that must come back byte for byte."""
    return Json(TEXTS[request.param])


async def test_a_new_task_works_and_waits_for_a_worker(scene: Scene) -> None:
    new = new_task(priority=2, poll_interval_ms=700)
    task = await scene.store.create(new)
    assert (task.task_id, task.owner, task.tool) == (new.task_id, OWNER, new.tool)
    assert (task.status, task.status_message, task.reply) == (Status.WORKING, None, Reply.TASK)
    assert (task.epoch, task.version, task.ttl_ms, task.poll_interval_ms) == (0, 1, None, 700)
    assert task.created_at == task.updated_at
    assert not task.cancel_requested
    assert not task.expired
    row = await scene.row(task)
    assert (row["priority"], row["ready_at"], row["deadline_at"]) == (2, task.created_at, None)


async def test_the_clock_of_a_new_task_is_the_databases(scene: Scene, connection: asyncpg.Connection[Any]) -> None:
    before = await connection.fetchval("SELECT clock_timestamp()")
    task = await scene.queued()
    assert before <= task.created_at <= await connection.fetchval("SELECT clock_timestamp()")


async def test_a_tasks_request_and_policy_are_kept_with_it(scene: Scene) -> None:
    new = new_task(retention_ms=1, answer_within_ms=2, losses=3, timeout_ms=4, ttl_ms=5)
    await scene.store.create(replace(new, revision="2026-07-28", trace_context=Json('{"traceparent":"00-1"}')))
    (request,) = await scene.children(await scene.store.create(new), "task_requests")
    assert request == {
        "task_id": new.task_id,
        "method": "tools/call",
        "params": new.params,
        "capabilities": "{}",
        "revision": "2026-07-28",
        "trace_context": '{"traceparent":"00-1"}',
        "retention_ms": 1,
        "answer_within_ms": 2,
        "loss_limit": 3,
        "timeout_ms": 4,
        "ttl_ms": 5,
    }


async def test_a_ttl_is_told_and_is_the_deadline_from_the_start(scene: Scene) -> None:
    task = await scene.queued(ttl_ms=3_600_000)
    assert task.ttl_ms == 3_600_000
    assert (await scene.row(task))["deadline_at"] == task.created_at + timedelta(hours=1)


async def test_created_twice_is_created_once(scene: Scene) -> None:
    new = new_task()
    first = await scene.store.create(new)
    assert await scene.store.create(new) == first
    assert await scene.connection.fetchval("SELECT count(*) FROM perdure.tasks") == 1


async def test_created_twice_at_the_same_moment_is_created_once(scene: Scene) -> None:
    new = new_task()
    made = await asyncio.gather(*(scene.store.create(new) for _ in range(5)))
    assert [task == made[0] for task in made] == [True] * 5
    assert await scene.connection.fetchval("SELECT count(*) FROM perdure.task_requests") == 1


async def test_a_create_that_comes_late_changes_nothing_of_a_task_that_has_moved_on(scene: Scene) -> None:
    new = new_task()
    task = await scene.store.create(new)
    await scene.claim(task)
    before = await scene.everything(task)
    assert (await scene.store.create(new)).epoch == 1
    assert await scene.everything(task) == before


async def test_the_owner_reads_a_task_as_it_was_created(scene: Scene) -> None:
    task = await scene.queued()
    assert await scene.store.get(OWNER, task.task_id) == TaskState(task)


@pytest.mark.requirement("R48", "R59")
@pytest.mark.parametrize("owner", ["bob", "Alice", "alice ", "", "%"])
async def test_nobody_else_can_see_a_task_or_answer_or_cancel_it(scene: Scene, owner: str) -> None:
    claim = await scene.parked("colour")
    before = await scene.everything(claim)
    assert await scene.store.get(owner, claim.task_id) is None
    assert await scene.store.answer(owner, claim.task_id, {"colour": response()}) is None
    assert await scene.store.cancel(owner, claim.task_id) is None
    assert await scene.everything(claim) == before


async def test_an_id_that_no_task_has_gives_nothing(store: Store) -> None:
    for task_id in (new_task_id(), UUID(int=0)):
        assert await store.get(OWNER, task_id) is None
        assert await store.answer(OWNER, task_id, {"colour": response()}) is None
        assert await store.cancel(OWNER, task_id) is None


@pytest.mark.parametrize(
    ("age", "interval"), [(0, 1000), (19, 1000), (40, 2000), (90, 4500), (100, 5000), (86_400_000, 5000)]
)
async def test_the_poll_interval_is_a_twentieth_of_the_age_within_bounds(
    scene: Scene, age: float, interval: int
) -> None:
    task = await scene.queued()
    await scene.age(task, age)
    told = (await scene.state(task)).task.poll_interval_ms
    assert interval <= told <= min(5000, interval + 500)


async def test_a_poll_interval_that_the_tool_fixes_stays(scene: Scene) -> None:
    task = await scene.queued(poll_interval_ms=250)
    await scene.age(task, 3600)
    assert (await scene.state(task)).task.poll_interval_ms == 250


async def test_params_and_capabilities_come_back_byte_for_byte(scene: Scene, text: Json) -> None:
    new: NewTask = replace(new_task(), params=text, capabilities=text, trace_context=text)
    claim = await scene.claim(await scene.store.create(new))
    assert (claim.params, claim.capabilities, claim.trace_context) == (text, text, text)


async def test_a_result_comes_back_byte_for_byte(scene: Scene, text: Json) -> None:
    claim = await scene.running()
    await scene.store.finish(claim, text)
    assert (await scene.state(claim)).result == text


async def test_an_error_comes_back_byte_for_byte(scene: Scene, text: Json) -> None:
    claim = await scene.running()
    await scene.store.fail(claim, text, "It broke")
    assert (await scene.state(claim)).error == text


async def test_steps_questions_and_answers_come_back_byte_for_byte(scene: Scene, text: Json) -> None:
    claim = await scene.running()
    assert await scene.store.step(claim, "first", text) == text
    await scene.store.ask(claim, [replace(question("colour"), request=text)])
    (asked,) = (await scene.state(claim)).questions
    assert asked.request == text
    task = await scene.store.answer(OWNER, claim.task_id, {"colour": text})
    assert task is not None
    again = await scene.claim(task)
    assert (again.steps, again.questions, again.answers) == ({"first": text}, {"colour": text}, {"colour": text})


async def test_names_of_any_alphabet_are_kept(scene: Scene) -> None:
    words = ("🦔", "\u202eabc", "a'b\"c\\d", "$1; --", "\x7f", " ", "x" * 1000)
    claim = await scene.running(owner="🦔'")
    for word in words:
        await scene.store.step(claim, word, Json("1"))
        assert (await scene.store.status(claim, word)).status_message == word
    await scene.store.release(claim.worker_id, attempt_of(claim))
    assert set((await scene.claim(claim.task)).steps) == set(words)
