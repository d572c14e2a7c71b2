"""How the end of an attempt is written: with those of others, and what is done when that does not work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import structlog
from structlog.testing import capture_logs

from app.domain.task import Claim, Json, Status
from app.errors import StoreUnavailable, ToolError
from app.storage.database import Database
from app.storage.store import Store
from app.telemetry import metrics, traces
from app.tools.registry import Registry, Tool, tool
from app.tools.transactions import Transactions
from app.worker.attempt import Attempt, Outcome
from tests.support.waiting import eventually
from tests.support.worker import Tasks, working


@tool
async def greet() -> str:
    """Say hello."""
    return "hello"


class Ends(Store):
    """A store in which the end of no attempt can be written together with others: it says so, or what its fault is."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.forgets = False
        self.fault: Exception | None = None

    def finish_soon(self, claim: Claim, result: Json, tell: Callable[[bool | Exception], object]) -> None:
        if self.forgets:
            super().finish_soon(claim, result, lambda _: tell(False))
        else:
            asyncio.get_running_loop().call_soon(tell, self.fault or False)


@pytest.fixture
async def ends(db_url: str) -> AsyncIterator[Ends]:
    async with Database(db_url, connections=3) as database:
        yield Ends(database)


async def attempt_at(ends: Ends, subject: Tool = greet) -> tuple[Tasks, Attempt]:
    """An attempt at a task, that a worker which nobody looks after has claimed."""
    tasks = Tasks(ends, Registry([subject]))
    await tasks.start(subject)
    (claim,) = await ends.claim(uuid4(), [subject.name], 1)
    executor: Any = ThreadPoolExecutor(1)
    return tasks, Attempt(claim, subject, ends, Transactions(ends._db), executor)


async def test_an_end_that_is_found_to_be_written_already_counts_once(ends: Ends) -> None:
    ends.forgets = True
    tasks, attempt = await attempt_at(ends)
    await attempt.run()
    state = await tasks.read(attempt.claim.task_id)
    assert (attempt.outcome, state.task.status, state.task.version) == (Outcome.COMPLETED, Status.COMPLETED, 2)


async def test_an_end_that_could_not_be_written_with_others_is_written_alone(ends: Ends) -> None:
    tasks, attempt = await attempt_at(ends)
    await attempt.run()
    assert attempt.outcome is Outcome.COMPLETED
    assert "hello" in str((await tasks.read(attempt.claim.task_id)).result)


async def test_the_end_of_an_attempt_that_lost_its_task_meanwhile_is_refused(ends: Ends) -> None:
    tasks, attempt = await attempt_at(ends)
    await ends.release(attempt.claim.worker_id, [(attempt.claim.task_id, attempt.claim.epoch)])
    await attempt.run()
    assert attempt.outcome is Outcome.STALE
    assert (await tasks.read(attempt.claim.task_id)).task.status is Status.WORKING


async def test_a_database_that_is_away_leaves_the_attempt_to_be_released(ends: Ends) -> None:
    ends.fault = StoreUnavailable("It is away.")
    tasks, attempt = await attempt_at(ends)
    with capture_logs() as logs:
        await attempt.run()
    assert attempt.outcome is Outcome.UNWRITTEN
    assert [line["event"] for line in logs] == ["attempt could not be ended; it will be released and run again"]
    assert (await tasks.read(attempt.claim.task_id)).task.status is Status.WORKING


async def test_what_nobody_foresaw_breaks_the_attempt_off_and_is_told(ends: Ends) -> None:
    ends.fault = LookupError("unforeseen")
    _, attempt = await attempt_at(ends)
    with pytest.raises(LookupError, match="unforeseen"):
        await attempt.run()
    assert attempt.outcome is Outcome.UNWRITTEN


async def test_the_handler_of_an_attempt_that_lost_its_task_before_it_began_does_not_start(ends: Ends) -> None:
    started = asyncio.Event()

    @tool
    async def start() -> None:
        """Say that it has started."""
        started.set()

    _, attempt = await attempt_at(ends, start)
    attempt.abandon()
    await attempt.run()
    assert (attempt.outcome, started.is_set()) == (Outcome.STALE, False)


@pytest.mark.parametrize("how", ["returns", "refuses"])
async def test_what_a_process_binds_to_its_log_is_in_the_line_of_each_attempt(
    db_url: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    @tool
    async def job() -> str:
        """Bind something, and end."""
        structlog.contextvars.bind_contextvars(mine="secret")
        if how == "refuses":
            raise ToolError("no")
        return "yes"

    with (
        structlog.contextvars.bound_contextvars(deployment="blue"),
        capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logs,
    ):
        async with working(db_url, job) as (tasks, _):
            await tasks.reaches(await tasks.start(job), Status.COMPLETED)
            (line,) = await eventually(lambda: attempts(logs))
    assert (line["deployment"], "mine" in line) == ("blue", False)


async def attempts(logs: Sequence[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [line for line in logs if line["event"] == "attempt"]


async def test_an_attempt_of_which_nothing_can_be_told_frees_its_slot_and_that_is_told(
    db_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise LookupError("unforeseen")

    monkeypatch.setattr(metrics, "attempt_ended", refuse)
    with capture_logs() as logs:
        async with working(db_url, greet, slots=1) as (tasks, _):
            for _ in range(2):
                await tasks.reaches(await tasks.start(greet), Status.COMPLETED)
    faults = [(line["event"], line["tool"]) for line in logs if line["log_level"] == "error"]
    assert faults == [("how an attempt went cannot be told", "greet")] * 2


async def test_an_attempt_that_cannot_begin_frees_its_slot_and_its_task_is_released(
    db_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, begun = Attempt.begin, 0
    ended: list[tuple[str, bool]] = []
    span = SimpleNamespace(
        run=lambda call, *args, **named: call(*args, **named),
        ended=lambda outcome, failed: ended.append((outcome, failed)),
    )
    monkeypatch.setattr(traces, "attempt", lambda *_: span)

    def begin_later(attempt: Attempt, over: Callable[[], object]) -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise LookupError("unforeseen")
        begin(attempt, over)

    monkeypatch.setattr(Attempt, "begin", begin_later)
    with capture_logs() as logs:
        async with working(db_url, greet, slots=1) as (tasks, _):
            state = await tasks.reaches(await tasks.start(greet), Status.COMPLETED)
    assert (begun, state.task.epoch) == (2, 2)
    assert ended == [("unwritten", False), ("completed", False)]
    assert [line["event"] for line in logs if line["log_level"] in ("error", "warning")] == [
        "attempt cannot begin; its task will be released",
        "released tasks that were claimed but not run",
    ]


async def test_an_attempt_that_breaks_off_is_told_and_its_task_is_released(
    db_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish_soon, faults = Store.finish_soon, [LookupError("unforeseen")]

    def finish_later(store: Store, claim: Claim, result: Json, tell: Callable[[bool | Exception], object]) -> None:
        if faults:
            tell(faults.pop())
        else:
            finish_soon(store, claim, result, tell)

    monkeypatch.setattr(Store, "finish_soon", finish_later)
    with capture_logs() as logs:
        async with working(db_url, greet, slots=1) as (tasks, _):
            state = await tasks.reaches(await tasks.start(greet), Status.COMPLETED)
    assert state.task.epoch == 2
    assert [line["event"] for line in logs if line["log_level"] in ("error", "warning")] == [
        "attempt broke off; its task will be released",
        "released tasks that were claimed but not run",
    ]
