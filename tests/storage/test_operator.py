"""What an operator sees and does: anybody's tasks, by filters, in pages and in batches, told to other processes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest

from app.domain.task import Claim, Idempotency, Json, Question, Status, Task, TaskState
from app.storage import operator as module
from app.storage.database import Database
from app.storage.inspection import Payload
from app.storage.listing import Activity, TaskFilter
from app.storage.notifier import CHANGED, READY, Notifier
from app.storage.operator import Operator, Retried
from app.storage.rows import CatalogueRow
from tests.storage.facts import look
from tests.storage.scene import OWNER, TOOL, Scene, new_task, question, response
from tests.storage.test_notifier import Heard, heard

__all__ = ["heard"]

T = TypeVar("T")
HOUR = timedelta(hours=1)
ACTIVITIES = {
    "queued": Activity.QUEUED,
    "running": Activity.RUNNING,
    "stopping": Activity.STOPPING,
    "parked": Activity.WAITING,
    "completed": Activity.ENDED,
    "failed": Activity.ENDED,
    "cancelled": Activity.ENDED,
}


@pytest.fixture
def operator(database: Database) -> Operator:
    """An operator who tells nobody."""
    return Operator(database)


def newest_first(*tasks: Task | Claim) -> list[UUID]:
    """Their ids, in the order of a list; within a millisecond it is any."""
    return sorted((task.task_id for task in tasks), reverse=True)


async def everything(batches: AsyncIterator[list[T]]) -> list[T]:
    """All that the batches hold."""
    return [item async for batch in batches for item in batch]


async def listed(operator: Operator, **which: Any) -> list[UUID]:
    """The ids of all tasks that a filter means, newest first; counting finds as many."""
    which_ = TaskFilter(**which)
    found = [row.task_id for row in await operator.tasks(which_, limit=100)]
    assert await operator.count(which_, 100) == len(found)
    return found


# -- lists ------------------------------------------------------------------------------------------------------------


async def test_each_state_and_activity_is_found_by_its_name_newest_first(scene: Scene, operator: Operator) -> None:
    made: dict[str, Task | Claim] = {state: await getattr(scene, state)() for state in ACTIVITIES}
    assert await listed(operator) == newest_first(*made.values())
    for row in await operator.tasks(TaskFilter(), limit=100):
        (state,) = (state for state, task in made.items() if task.task_id == row.task_id)
        assert row.activity is ACTIVITIES[state]
    for activity in Activity:
        wanted = [made[state] for state in ACTIVITIES if ACTIVITIES[state] is activity]
        assert await listed(operator, activity=(activity,)) == newest_first(*wanted)
    working = newest_first(made["stopping"], made["running"], made["queued"])
    assert await listed(operator, status=(Status.WORKING,)) == working
    both = newest_first(made["failed"], made["parked"])
    assert await listed(operator, status=(Status.FAILED, Status.INPUT_REQUIRED)) == both
    ended = await listed(operator, status=(Status.COMPLETED,), activity=(Activity.ENDED,))
    assert ended == [made["completed"].task_id]
    assert await listed(operator, status=(Status.COMPLETED,), activity=(Activity.QUEUED,)) == []
    assert await listed(operator, status=tuple(Status), activity=tuple(Activity)) == newest_first(*made.values())


async def test_pages_follow_each_other_without_gaps_while_tasks_are_added(scene: Scene, operator: Operator) -> None:
    made = newest_first(*[await scene.queued() for _ in range(5)])
    for which in (TaskFilter(), TaskFilter(activity=(Activity.QUEUED, Activity.ENDED))):
        seen = [row.task_id for row in await operator.tasks(which, limit=2)]
        while seen[-1] != made[-1]:
            await scene.queued()
            rows = await operator.tasks(which, limit=2, after=seen[-1])
            assert 0 < len(rows) <= 2
            seen += [row.task_id for row in rows]
        assert seen[-5:] == made
        assert await operator.count(which, 3) == 3


async def test_tools_owners_and_ids_narrow_a_list(scene: Scene, operator: Operator) -> None:
    mine, other = await scene.queued("a"), await scene.queued("b", owner="bob")
    third = await scene.queued("c", owner="bob")
    assert await listed(operator, tools=("a", "c")) == newest_first(mine, third)
    assert await listed(operator, owners=("bob",)) == newest_first(other, third)
    assert await listed(operator, owners=("bob",), tools=("b",), activity=(Activity.QUEUED,)) == [other.task_id]
    assert await listed(operator, ids=(mine.task_id, uuid4())) == [mine.task_id]
    assert await listed(operator, ids=(mine.task_id,), status=(Status.FAILED,)) == []


async def test_times_narrow_a_list(scene: Scene, operator: Operator) -> None:
    """A row here is older than its id says: an id's time is only trusted as far as clocks may be off."""
    claim = await scene.completed()
    await scene.age(claim, 60)
    live = await scene.queued()
    now = datetime.now(UTC)
    ago = now - timedelta(seconds=30)
    assert await listed(operator, created_since=ago) == [live.task_id]
    assert await listed(operator, created_before=ago) == [claim.task_id]
    between = await listed(operator, created_since=now - HOUR, created_before=now + HOUR)
    assert between == newest_first(claim, live)
    for status in ((), (Status.COMPLETED,), (Status.COMPLETED, Status.FAILED)):
        assert await listed(operator, status=status, finished_since=ago) == []
        assert await listed(operator, status=status, finished_since=now - HOUR) == [claim.task_id]
        assert await listed(operator, status=status, finished_before=ago) == [claim.task_id]
        assert await listed(operator, status=status, finished_before=now - HOUR) == []


async def test_words_of_an_error_find_the_tasks_that_it_was_told_of(scene: Scene, operator: Operator) -> None:
    claim = await scene.running()
    await scene.store.fail(claim, Json('{"code":7,"message":"No Paper"}'), "It failed", internal="KeyError: 'tray'")
    await scene.failed()
    for words in ("no paper", "IT FAILED", "keyerror"):
        assert await listed(operator, error=words) == [claim.task_id]
        assert await listed(operator, error=words, status=(Status.FAILED,)) == [claim.task_id]
    assert await listed(operator, error="ink") == []


# -- one task ---------------------------------------------------------------------------------------------------------


async def test_everything_about_a_task_is_shown(scene: Scene, operator: Operator) -> None:
    task = await scene.store.create(
        replace(new_task(timeout_ms=5000, ttl_ms=60_000), idempotency=Idempotency(b"k", b"f"), revision="2026-07-28")
    )
    await scene.enlist(scene.worker_id)
    claim = await scene.claim(task)
    await scene.store.step(claim, "charge", Json('{"paid":true}'))
    await scene.store.retry(claim, 0, "Again", "ValueError: no")
    claim = await scene.claim(task)
    await scene.store.ask(claim, [question("colour"), question("size")])
    await scene.store.answer(OWNER, task.task_id, {"colour": response("red")})
    shown = await operator.show(task.task_id)
    assert shown is not None
    assert (shown.row.activity, shown.row.attempts, shown.row.failures) == (Activity.WAITING, 2, 1)
    assert (shown.request.params.text, shown.request.timeout_ms) == ('{"name": "weigh", "arguments": {}}', 5000)
    assert (shown.request.ttl_ms, shown.request.revision, shown.key_hash) == (60_000, "2026-07-28", b"k")
    assert [(step.name, step.value.text, step.attempt) for step in shown.steps] == [("charge", '{"paid":true}', 1)]
    assert [(a.attempt, a.ended, a.error) for a in shown.attempts] == [(1, "retried", "ValueError: no")]
    assert [(a.key, a.response and a.response.text) for a in shown.questions] == [
        ("colour", response("red")),
        ("size", None),
    ]
    assert shown.outcome is None
    await scene.store.answer(OWNER, task.task_id, {"size": response("m")})
    claim = await scene.claim(task)
    await scene.store.cancel(OWNER, task.task_id)
    await scene.store.finish(claim, Json('{"content":[]}'))
    shown = await operator.show(task.task_id)
    assert shown is not None
    assert shown.outcome is not None
    assert (shown.outcome.kind, shown.outcome.value.text, shown.outcome.attempt) == ("result", '{"content":[]}', 3)
    assert [event.what for event in shown.timeline] == [
        "created",
        "attempt 1 started",
        "step charge ran",
        "attempt 1 ended: retried",
        "colour was asked",
        "size was asked",
        "colour was answered",
        "size was answered",
        "attempt 3 started",
        "a cancel was asked for",
        "completed",
    ]


async def test_a_payload_is_cut_and_says_how_long_it_is(scene: Scene, operator: Operator) -> None:
    claim = await scene.running()
    await scene.store.finish(claim, Json('{"content":"' + "é" * 100 + '"}'))
    shown = await operator.show(claim.task_id, characters=20)
    assert shown is not None
    assert shown.outcome is not None
    assert shown.outcome.value == Payload('{"content":"éééééééé', 114)
    assert not shown.outcome.value.whole
    assert shown.request.capabilities.whole


async def test_an_unknown_task_has_nothing_to_show(operator: Operator) -> None:
    assert await operator.show(uuid4()) is None
    assert await operator.state(uuid4()) is None
    assert await operator.answer(uuid4(), {"colour": response()}) is None


# -- questions --------------------------------------------------------------------------------------------------------


async def test_the_inbox_holds_what_is_open_whoever_asks_and_an_answer_moves_its_task(
    scene: Scene, operator: Operator
) -> None:
    first = await scene.parked("colour", "size")
    other = await scene.parked("name", owner="bob")
    await scene.store.answer(OWNER, first.task_id, {"colour": response()})
    await scene.queued()
    found = await operator.questions(limit=10)
    assert [(q.task_id, q.owner, q.key) for q in found] == [
        (first.task_id, OWNER, "size"),
        (other.task_id, "bob", "name"),
    ]
    assert found[0].request.text == question("size").request
    assert found[0].deadline_at is not None
    assert [q.key for q in await operator.questions(limit=1)] == ["size"]
    assert [q.key for q in await operator.questions(limit=1, after=first.task_id)] == ["name"]
    state = await operator.state(other.task_id)
    assert isinstance(state, TaskState)
    assert state.questions == (Question("name", question("name").request),)
    task = await operator.answer(other.task_id, {"name": response("Luca")})
    assert task is not None
    assert task.status is Status.WORKING
    assert [q.key for q in await operator.questions(limit=10)] == ["size"]


# -- cancel -----------------------------------------------------------------------------------------------------------


async def test_a_cancel_does_to_each_task_what_its_owners_cancel_would(scene: Scene, operator: Operator) -> None:
    ways: list[list[Any]] = [[], []]
    for way in ways:
        for state in ("queued", "running", "parked", "completed"):
            way.append(await getattr(scene, state)(owner="bob"))
    mine, theirs = ways
    cancelled = await everything(operator.cancel([task.task_id for task in mine] + [uuid4()]))
    assert {task.task_id for task in cancelled} == {task.task_id for task in mine[:3]}
    for task in theirs:
        await scene.store.cancel("bob", task.task_id)
    _, broken = await look(scene.connection)
    assert broken == set()
    for one, other in zip(mine, theirs, strict=True):
        rows = [await scene.row(task) for task in (one, other)]
        same = ("status", "status_message", "worker_id", "epoch", "version", "questions_open", "reply", "ready_at")
        assert {name: rows[0][name] for name in same} == {name: rows[1][name] for name in same}
        assert [row["cancel_requested_at"] is None for row in rows] == [one is mine[3]] * 2


async def test_a_thousand_are_cancelled_by_what_is_true_of_them_and_no_others(
    scene: Scene, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 3)
    monkeypatch.setattr(module, "PAGE", 5)
    wanted = newest_first(*[await scene.queued("a") for _ in range(11)])
    others: list[Task | Claim] = [await scene.queued("b"), await scene.completed()]
    before = [await scene.everything(task) for task in others]
    batches = [batch async for batch in operator.cancel(TaskFilter(tools=("a",)))]
    assert [len(batch) for batch in batches] == [3, 2, 3, 2, 1]
    assert newest_first(*(task for batch in batches for task in batch)) == wanted
    assert [await scene.everything(task) for task in others] == before
    assert await everything(operator.cancel(TaskFilter(tools=("a",)))) == []
    assert await everything(operator.cancel(TaskFilter(status=(Status.COMPLETED,)))) == []


# -- retry ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
async def test_a_retry_is_a_new_task_like_the_old_one_was_when_it_was_created(
    state: str, scene: Scene, operator: Operator
) -> None:
    old = await getattr(scene, state)(
        owner="bob", priority=2, retention_ms=7, answer_within_ms=8, losses=9, timeout_ms=10_000, poll_interval_ms=1500
    )
    before = await scene.everything(old)
    (retried,) = await everything(operator.retry([old.task_id]))
    assert await scene.everything(old) == before
    assert retried.old == old.task_id
    assert (retried.new.status, retried.new.reply, retried.new.owner) == (Status.WORKING, "task", "bob")
    first, again = await scene.row(old), await scene.row(retried.new)
    same = ("owner", "tool", "priority", "poll_interval_ms")
    assert {name: again[name] for name in same} == {name: first[name] for name in same}
    assert (again["epoch"], again["ttl_ms"], again["ready_at"] is None) == (0, None, False)
    requests = [(await scene.children(task, "task_requests"))[0] for task in (old, retried.new)]
    assert requests[1] | {"task_id": old.task_id} == requests[0]
    assert (await scene.claim(retried.new)).params == json.dumps({"name": old.task.tool, "arguments": {}})


async def test_a_retry_gets_the_ttl_that_the_first_was_given(scene: Scene, operator: Operator) -> None:
    old = await scene.completed(ttl_ms=60_000)
    assert (await scene.row(old))["ttl_ms"] > 60_000
    (retried,) = await everything(operator.retry([old.task_id]))
    assert retried.new.ttl_ms == 60_000


async def test_what_has_not_ended_is_not_retried(scene: Scene, operator: Operator) -> None:
    live: list[Task | Claim] = [
        await scene.queued(),
        await scene.running(),
        await scene.stopping(),
        await scene.parked(),
    ]
    assert await everything(operator.retry([task.task_id for task in live] + [uuid4()])) == []
    assert await everything(operator.retry(TaskFilter(status=(Status.WORKING,)))) == []
    assert len(await operator.tasks(TaskFilter(), limit=100)) == 4


async def test_a_retry_of_many_ends_though_its_tasks_fail_again_meanwhile(
    scene: Scene, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    monkeypatch.setattr(module, "PAGE", 2)
    old = newest_first(*[await scene.failed() for _ in range(5)])
    again: list[Retried] = []
    async for batch in operator.retry(TaskFilter(status=(Status.FAILED,))):
        again += batch
        for retried in batch:
            await scene.store.fail(await scene.claim(retried.new), Json("{}"), "It broke again")
    assert sorted((retried.old for retried in again), reverse=True) == old
    assert len(await listed(operator, status=(Status.FAILED,))) == 10


# -- purge ------------------------------------------------------------------------------------------------------------


async def test_a_purge_deletes_what_has_ended_with_all_that_belongs_to_it(scene: Scene, operator: Operator) -> None:
    ended = [await scene.completed(), await scene.failed(), await scene.cancelled()]
    live: list[Task | Claim] = [await scene.queued(), await scene.running(), await scene.parked()]
    before = [await scene.everything(task) for task in live]
    gone = await everything(operator.purge([task.task_id for task in (*ended, *live)]))
    assert sorted(gone, reverse=True) == newest_first(*ended)
    assert await listed(operator) == newest_first(*live)
    for task in ended:
        assert await scene.children(task, "task_requests") == await scene.children(task, "task_outcomes") == []
    assert [await scene.everything(task) for task in live] == before
    later = await scene.failed()
    assert await everything(operator.purge(TaskFilter(status=(Status.FAILED,)))) == [later.task_id]


# -- the fleet --------------------------------------------------------------------------------------------------------


async def test_workers_are_shown_with_what_they_hold_and_whether_they_live(scene: Scene, operator: Operator) -> None:
    await scene.running()
    await scene.running()
    lost, leaving = uuid4(), uuid4()
    await scene.silence(lost)
    await scene.enlist(leaving)
    await scene.connection.execute("UPDATE perdure.workers SET draining = true WHERE worker_id = $1", leaving)
    seen = {worker.worker_id: (worker.state, worker.running, worker.tools) for worker in await operator.workers()}
    assert seen == {
        scene.worker_id: ("alive", 2, (TOOL,)),
        lost: ("lost", 0, (TOOL,)),
        leaving: ("draining", 0, (TOOL,)),
    }


async def test_tools_are_shown_with_what_waits_for_them(scene: Scene, operator: Operator) -> None:
    await scene.queued("orphan")
    await scene.store.publish_tools([CatalogueRow("idle", Json("{}"), Json("{}"), "1")])
    idle, orphan = await operator.tools()
    assert (idle.tool, idle.queued, idle.oldest_wait, idle.seen_at is None) == ("idle", 0, None, False)
    assert (orphan.tool, orphan.queued, orphan.workers, orphan.seen_at) == ("orphan", 1, 0, None)
    assert orphan.oldest_wait is not None


# -- others hear of it ------------------------------------------------------------------------------------------------


async def test_what_an_operator_does_is_told_to_other_processes(scene: Scene, database: Database, heard: Heard) -> None:
    operator = Operator(database, Notifier(database))
    queued, parked, failed = await scene.queued(), await scene.parked(), await scene.failed()
    await everything(operator.cancel([queued.task_id]))
    await operator.answer(parked.task_id, {"colour": response()})
    await everything(operator.retry([failed.task_id]))
    await everything(operator.purge([failed.task_id]))
    told: list[Task | Claim] = [queued, parked, failed]  # nobody can know the retry's new task yet
    await heard.eventually(CHANGED, *(str(task.task_id) for task in told))
    await heard.eventually(READY, parked.task.tool, failed.task.tool)
