"""A slot is a handler's: it is free when that has ended, and then the worker looks for the next task in time."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from app.domain.task import EVER, Claims, Json, NewTask, Policy, Status, new_task_id
from app.errors import StoreUnavailable
from app.storage.database import Database
from app.storage.listener import Listener
from app.storage.notifier import READY
from app.storage.store import Store
from app.tools.context import ToolContext
from app.tools.registry import Registry, Tool, tool
from app.worker import runner as worker
from app.worker.lookback import AGAIN_SECONDS, REACHES
from app.worker.runner import Runner
from tests.storage.racing import WAITING, seen
from tests.support.waiting import eventually
from tests.support.worker import Tasks, working

NO_POLL: dict[str, Any] = {"poll_seconds": 600.0}


class Turns:
    """Handlers that end when they are let, and how many of them there were at once."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.most = self._now = 0
        self.may_end: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def tool(self) -> Tool:
        """The tool that they belong to."""

        @tool
        async def turn(label: str) -> str:
            """Take a turn."""
            self.began.append(label)
            self._now += 1
            self.most = max(self.most, self._now)
            await self.may_end[label].wait()
            self._now -= 1
            return label

        return turn

    async def begin(self, *labels: str) -> None:
        """Wait until these have begun, in this order, and no other."""

        async def look() -> bool:
            return len(self.began) >= len(labels)

        await eventually(look)
        assert self.began == list(labels)


class Asking(Store):
    """The store by which a worker claims: knows for how many tasks it was asked, and fails where it is told to."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.asked: list[int] = []
        self.answered = 0
        self.away = False

    async def claim(self, worker_id: UUID, tools: Sequence[str], limit: int, *, since: datetime = EVER) -> Claims:
        self.asked.append(limit)
        if self.away:
            raise StoreUnavailable("It is away.")
        claims = await super().claim(worker_id, tools, limit, since=since)
        self.answered += 1
        return claims


class Rows:
    """Holds on to tasks' rows, and sees who waits for them."""

    def __init__(self, holder: asyncpg.Connection[Any], watcher: asyncpg.Connection[Any]) -> None:
        self._holder, self.watcher = holder, watcher
        self._held = holder.transaction()

    async def hold(self, task_id: UUID) -> None:
        """Hold on to this one until `let_go`."""
        if not self._holder.is_in_transaction():
            await self._held.start()
        await self._holder.execute("SELECT FROM perdure.tasks WHERE task_id = $1 FOR UPDATE", task_id)

    async def waited_for(self, count: int) -> None:
        """Wait until so many connections wait for a lock."""
        await seen(self.watcher, WAITING, count)

    async def let_go(self) -> None:
        """Let go of all."""
        await self._held.rollback()


@pytest.fixture
async def rows(db_url: str) -> AsyncIterator[Rows]:
    holder, watcher = await asyncpg.connect(db_url), await asyncpg.connect(db_url)
    yield Rows(holder, watcher)
    await holder.close()
    await watcher.close()


@pytest.fixture
async def asking(db_url: str) -> AsyncIterator[Asking]:
    async with Database(db_url, connections=2) as database:
        yield Asking(database)


@pytest.fixture
async def listener(db_url: str) -> AsyncIterator[Listener]:
    """One that hears."""
    made = Listener(db_url)
    running = asyncio.create_task(made.run())

    async def hears() -> bool:
        return made.hearing

    await eventually(hears)
    yield made
    running.cancel()
    await asyncio.wait({running})


async def looked(runner: Runner) -> None:
    """Wait until the worker has acted on what woke it last."""

    async def look() -> bool:
        return not runner._wake.is_set() and not runner._claiming.locked()

    await eventually(look)


# -- slots and attempts -----------------------------------------------------------------------------------------------


async def test_a_worker_of_one_slot_runs_the_next_handler_while_the_end_of_the_last_one_waits(
    db_url: str, rows: Rows
) -> None:
    turns = Turns()
    turn = turns.tool()
    async with working(db_url, turn, slots=1) as (tasks, runner):
        first, second = await tasks.start(turn, label="a"), await tasks.start(turn, label="b")
        await turns.begin("a")
        await rows.hold(first)
        turns.may_end["a"].set()
        await rows.waited_for(1)
        await turns.begin("a", "b")
        assert (runner.running, (await tasks.read(first)).task.status) == (1, Status.WORKING)
        await rows.let_go()
        turns.may_end["b"].set()
        ended = [await tasks.reaches(task_id, Status.COMPLETED) for task_id in (first, second)]
    assert ([state.task.epoch for state in ended], turns.most) == ([1, 1], 1)


async def test_no_more_handlers_run_at_once_than_there_are_slots(db_url: str) -> None:
    turns = Turns()
    turn = turns.tool()
    labels = list("abcdefgh")
    async with Database(db_url, connections=1) as database:
        made = Tasks(Store(database), Registry([turn]))
        task_ids = [await made.start(turn, label=label) for label in labels]
    async with working(db_url, turn, slots=2, **NO_POLL) as (tasks, runner):
        await turns.begin(*labels[:2])
        assert (runner.running, runner.slots) == (2, 2)
        for label in labels:
            turns.may_end[label].set()
        for task_id in task_ids:
            await tasks.reaches(task_id, Status.COMPLETED)
    assert turns.most == 2


async def test_many_slots_are_filled_in_portions_one_right_after_the_other(
    db_url: str, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "PORTION", 1)
    turns = Turns()
    turn = turns.tool()
    made = Tasks(asking, Registry([turn]))
    for label in "abcdefg":
        await made.start(turn, label=label)
    async with working(db_url, turn, slots=6, control=asking, **NO_POLL) as (_, runner):
        await turns.begin(*"abcdef")
        await looked(runner)
        assert (asking.asked, runner.running) == ([3, 3], 6)
        turns.may_end["a"].set()
        await turns.begin(*"abcdefg")
        assert asking.asked == [3, 3, 1]


async def test_a_worker_of_many_slots_does_not_ask_on_and_on_for_a_task_that_it_cannot_have(
    db_url: str, asking: Asking, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "PORTION", 1)
    turns = Turns()
    turn = turns.tool()
    await rows.hold(await Tasks(asking, Registry([turn])).start(turn, label="a"))
    async with working(db_url, turn, slots=4, control=asking, **NO_POLL) as (_, runner):

        async def asked() -> bool:
            return asking.answered > 0

        await eventually(asked)
        await looked(runner)
        assert asking.asked == [2]
        await rows.let_go()
        runner._wake.set()  # as a poll would
        await turns.begin("a")
        turns.may_end["a"].set()


async def test_no_more_than_twice_as_many_attempts_as_slots_wait_for_the_database(
    db_url: str, rows: Rows, asking: Asking
) -> None:
    turns = Turns()
    turn = turns.tool()
    made = Tasks(asking, Registry([turn]))
    first, second, third = [await made.start(turn, label=label) for label in "abc"]
    async with working(db_url, turn, slots=1, control=asking, **NO_POLL) as (tasks, runner):
        await turns.begin("a")
        await rows.hold(first)
        turns.may_end["a"].set()
        await turns.begin("a", "b")
        await rows.hold(second)
        turns.may_end["b"].set()
        await rows.waited_for(2)
        runner._wake.set()
        await looked(runner)
        assert (asking.asked, turns.began) == ([1, 1], ["a", "b"])
        await rows.let_go()
        await turns.begin("a", "b", "c")
        turns.may_end["c"].set()
        for task_id in (first, second, third):
            assert (await tasks.reaches(task_id, Status.COMPLETED)).task.epoch == 1


async def test_a_worker_that_stops_waits_for_the_ends_that_are_being_written(db_url: str, rows: Rows) -> None:
    turns = Turns()
    turn = turns.tool()
    with capture_logs() as logs:
        async with working(db_url, turn, slots=1, lease_seconds=2.0, grace_seconds=20.0) as (tasks, runner):
            task_id = await tasks.start(turn, label="a")
            await turns.begin("a")
            await rows.hold(task_id)
            turns.may_end["a"].set()
            await rows.waited_for(1)
            assert runner.running == 0
            runner.stop()
            await seen(rows.watcher, "SELECT count(*) FROM perdure.workers WHERE draining", 1)
            await rows.let_go()
    assert [line for line in logs if line["log_level"] == "warning"] == []
    row = await rows.watcher.fetchrow("SELECT status, epoch FROM perdure.tasks")
    assert tuple(row or ()) == ("completed", 1)
    assert await rows.watcher.fetchval("SELECT count(*) FROM perdure.task_attempts") == 0


# -- looking for work -------------------------------------------------------------------------------------------------


async def test_a_worker_that_found_less_than_it_had_room_for_runs_a_task_that_comes_later_without_a_poll(
    db_url: str, listener: Listener
) -> None:
    turns = Turns()
    turn = turns.tool()
    async with working(db_url, turn, notifies=True, listener=listener, **NO_POLL) as (tasks, _):
        await tasks.start(turn, label="a")
        await turns.begin("a")
        await tasks.start(turn, label="b")
        await turns.begin("a", "b")
        turns.may_end["a"].set()
        await tasks.start(turn, label="c")
        await turns.begin("a", "b", "c")


async def test_a_worker_that_was_told_of_a_task_while_it_had_no_slot_runs_it_when_it_has_one(
    db_url: str, listener: Listener, asking: Asking
) -> None:
    turns, heard = Turns(), asyncio.Event()
    turn = turns.tool()
    options = NO_POLL | {"slots": 1, "notifies": True, "listener": listener, "control": asking}
    async with working(db_url, turn, **options) as (tasks, runner):
        await tasks.start(turn, label="a")
        await turns.begin("a")
        await looked(runner)
        listener.on_ready([turn.name], heard.set)
        await tasks.start(turn, label="b")
        await heard.wait()
        await looked(runner)
        before = len(asking.asked)
        turns.may_end["a"].set()
        await turns.begin("a", "b")
        assert asking.asked[before:] == [1]


async def test_a_worker_that_does_not_hear_looks_for_work_whenever_a_slot_gets_free(db_url: str) -> None:
    turns = Turns()
    turn = turns.tool()
    deaf = Listener(db_url)  # it does not run
    async with working(db_url, turn, listener=deaf, **NO_POLL) as (tasks, runner):
        await tasks.start(turn, label="a")
        runner._wake.set()  # as a poll would
        await turns.begin("a")
        await looked(runner)
        await tasks.start(turn, label="b")
        turns.may_end["a"].set()
        await turns.begin("a", "b")


async def test_a_worker_that_saw_a_task_but_could_not_have_it_looks_again_when_a_slot_gets_free(
    db_url: str, listener: Listener, asking: Asking, rows: Rows
) -> None:
    turns = Turns()
    turn = turns.tool()
    options = NO_POLL | {"slots": 2, "listener": listener, "control": asking}
    async with working(db_url, turn, **options) as (tasks, _):
        await tasks.start(turn, label="a")
        await rows.watcher.execute(f"NOTIFY {READY}, '{turn.name}'")
        await turns.begin("a")
        await rows.hold(await tasks.start(turn, label="b"))
        before = asking.answered
        await rows.watcher.execute(f"NOTIFY {READY}, '{turn.name}'")

        async def in_vain() -> bool:
            return asking.answered > before

        await eventually(in_vain)
        await rows.let_go()
        assert turns.began == ["a"]
        turns.may_end["a"].set()
        await turns.begin("a", "b")


async def test_a_worker_whose_claim_failed_claims_again_when_a_slot_gets_free(
    db_url: str, listener: Listener, asking: Asking
) -> None:
    turns = Turns()
    turn = turns.tool()
    options = NO_POLL | {"slots": 2, "notifies": True, "listener": listener, "control": asking}
    async with working(db_url, turn, **options) as (tasks, runner):
        await tasks.start(turn, label="a")
        await turns.begin("a")
        await looked(runner)
        asking.away = True
        await tasks.start(turn, label="b")

        async def failed() -> bool:
            return runner.obstacle == "claims fail"

        await eventually(failed)
        asking.away = False
        turns.may_end["a"].set()
        await turns.begin("a", "b")


async def test_a_claim_says_whether_more_was_there(asking: Asking, rows: Rows) -> None:
    turn = Turns().tool()
    tasks = Tasks(asking, Registry([turn]))

    async def claimed(limit: int) -> tuple[int, bool]:
        claims = await asking.claim(uuid4(), [turn.name], limit)
        return len(claims), claims.more

    assert await claimed(1) == (0, False)
    task_ids = [await tasks.start(turn, label=label) for label in "abc"]
    assert await claimed(2) == (2, True)
    await rows.hold(task_ids[2])
    assert await claimed(1) == (0, True)
    await rows.let_go()
    assert await claimed(1) == (1, False)


@pytest.mark.parametrize("renewed", [False, True])
async def test_what_was_claimed_while_the_process_stood_still_is_given_back_and_not_begun(
    db_url: str, renewed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    @tool
    async def count(ctx: ToolContext) -> None:
        """Note the attempt."""
        attempts.append(ctx.attempt)

    async with Database(db_url, connections=2) as database:
        store = Store(database)
        async with working(db_url, count, slots=2, poll_seconds=0.05, control=store) as (tasks, runner):
            plain, beat = store.claim, runner._heartbeat

            async def claim(*args: Any, **options: Any) -> Claims:
                claims = await plain(*args, **options)
                if claims and not attempts and claims[0].epoch == 1:
                    if renewed:  # it has beaten again already
                        monkeypatch.setattr(beat, "_unbroken_since", time.monotonic())
                    else:
                        monkeypatch.setattr(beat, "_good_until", 0.0)
                return claims

            monkeypatch.setattr(store, "claim", claim)
            await tasks.reaches(await tasks.start(count), Status.COMPLETED)
    assert attempts == [2]


async def test_a_task_that_was_committed_long_after_it_was_ready_is_found_soon_however_seldom_the_worker_polls(
    db_url: str, listener: Listener, asking: Asking
) -> None:
    turns = Turns()
    turn = turns.tool()
    options = NO_POLL | {"slots": 2, "notifies": True, "listener": listener, "control": asking}
    async with working(db_url, turn, **options) as (tasks, runner), Database(db_url) as database:
        await tasks.start(turn, label="a")
        await turns.begin("a")
        await looked(runner)
        runner._look_back._due = [time.monotonic() + AGAIN_SECONDS] * len(REACHES)  # it has just looked at all
        params = Json('{"name":"turn","arguments":{"label":"late"}}')
        late = await Store(database).create(NewTask(new_task_id(), "o", turn.name, params, Json("{}"), Policy()))
        back = "UPDATE perdure.tasks SET ready_at = ready_at - interval '1 hour' WHERE task_id = $1"
        await database.fetch(back, late.task_id)
        await database.fetch("SELECT pg_notify($1, $2)", READY, turn.name)
        await turns.begin("a", "late")
        for label in ("a", "late"):
            turns.may_end[label].set()
