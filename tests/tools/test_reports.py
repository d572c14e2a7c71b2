"""How an attempt's reports are thinned out, what they say, and which are refused. What becomes of them is stored."""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.errors import StaleAttempt, StoreUnavailable, UsageError
from app.tools import reports
from app.tools.context import SyncToolContext, ToolContext
from app.tools.reports import STATUS_CHARACTERS, Report, Reports, progress_report
from tests.support.waiting import eventually


class Written:
    """Stands where the store is: keeps what is written, and waits or fails when it is told to."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.times: list[float] = []
        self.fault: Exception | None = None
        self.free = asyncio.Event()
        self.free.set()
        self.entered = asyncio.Event()
        self.stale = asyncio.Event()

    def by(self) -> Reports:
        """Reports that are written here."""
        return Reports(self.write, self.stale.set)

    async def write(self, report: Report) -> None:
        """Write one."""
        self.times.append(asyncio.get_running_loop().time())
        self.entered.set()
        await self.free.wait()
        if self.fault is not None:
            raise self.fault
        self.reports.append(report)

    async def last_is(self, report: Report) -> None:
        """Wait until this is the last one that was written."""

        async def look() -> bool:
            return self.reports[-1:] == [report]

        await eventually(look)


def said(*texts: str) -> list[Report]:
    return [Report(text) for text in texts]


def gaps(written: Written) -> list[float]:
    return [after - before for before, after in pairwise(written.times)]


async def nothing_runs_on(before: set[asyncio.Task[Any]]) -> None:
    async def look() -> bool:
        return asyncio.all_tasks() <= before

    await eventually(look)


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no second report be written by itself in a test's time."""
    monkeypatch.setattr(reports, "REPORT_SECONDS", 3600.0)


async def test_the_first_report_is_written_at_once_and_of_the_next_ones_the_last_in_time() -> None:
    written, before = Written(), asyncio.all_tasks()
    told = written.by()
    await told.put(Report("0"))
    assert written.reports == said("0")
    for n in range(1, 100):
        await told.put(Report(str(n)))
    await written.last_is(Report("99"))
    assert all(gap >= reports.REPORT_SECONDS - 0.01 for gap in gaps(written))
    await nothing_runs_on(before)


async def test_however_many_come_they_are_written_so_far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "REPORT_SECONDS", 0.02)
    written = Written()
    told = written.by()
    while len(written.reports) < 8:
        await told.put(Report(str(len(written.reports))))
        await asyncio.sleep(0)
    assert min(gaps(written)) >= 0.019
    told.close()


@pytest.mark.usefixtures("seldom")
async def test_what_waits_is_written_when_the_attempt_ends_and_only_once() -> None:
    written, before = Written(), asyncio.all_tasks()
    told = written.by()
    for text in ("first", "second", "third"):
        await told.put(Report(text))
    await told.flush_unheard()
    await told.flush_unheard()
    assert written.reports == said("first", "third")
    told.close()
    await nothing_runs_on(before)


@pytest.mark.usefixtures("seldom")
async def test_a_message_that_takes_the_place_of_progress_does_not_take_it_away() -> None:
    written = Written()
    told = written.by()
    for report in (Report("a"), Report("1 of 2", 1, 2), Report("b")):
        await told.put(report)
    await told.flush_unheard()
    await told.put(Report("c"))
    await told.put(Report("5", 5))
    await told.flush_unheard()
    assert written.reports == [Report("a"), Report("b", 1, 2), Report("5", 5)]
    told.close()


@pytest.mark.usefixtures("seldom")
async def test_reports_that_come_during_a_write_wait_for_their_turn() -> None:
    written = Written()
    told = written.by()
    written.free.clear()
    first = asyncio.create_task(told.put(Report("first")))
    await written.entered.wait()
    await told.put(Report("second"))
    ending = asyncio.create_task(told.flush_unheard())
    written.free.set()
    await asyncio.gather(first, ending)
    assert written.reports == said("first", "second")
    told.close()


@pytest.mark.usefixtures("seldom")
async def test_a_report_whose_write_was_cut_off_is_written_when_the_attempt_ends() -> None:
    written = Written()
    told = written.by()
    written.free.clear()
    cut_off = asyncio.create_task(told.put(Report("1 of 2", 1, 2)))
    await written.entered.wait()
    cut_off.cancel()
    await asyncio.wait({cut_off})
    assert cut_off.cancelled()
    written.free.set()
    await told.flush_unheard()
    assert written.reports == [Report("1 of 2", 1, 2)]


async def test_a_stale_attempt_is_told_by_the_write_it_waits_for() -> None:
    written = Written()
    written.fault = StaleAttempt("too late")
    with pytest.raises(StaleAttempt):
        await written.by().put(Report("first"))


async def test_a_stale_attempt_is_noticed_by_a_write_that_nobody_waits_for() -> None:
    written = Written()
    told = written.by()
    await told.put(Report("first"))
    written.fault = StaleAttempt("too late")
    await told.put(Report("second"))
    async with asyncio.timeout(10):
        await written.stale.wait()


@pytest.mark.parametrize("fault", [StoreUnavailable("away"), RuntimeError("odd")])
async def test_a_fault_that_nobody_waits_for_is_logged_and_the_next_report_gets_through(fault: Exception) -> None:
    written = Written()
    told = written.by()
    await told.put(Report("first"))
    written.fault = fault
    with capture_logs() as logs:
        await told.put(Report("second"))

        async def logged() -> bool:
            return len(logs) == 1

        await eventually(logged)
    assert logs[0]["event"].startswith("status not written")
    written.fault = None
    await told.put(Report("third"))
    await written.last_is(Report("third"))
    assert not written.stale.is_set()


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [
        (3, 10, "3 of 10"),
        (3, None, "3"),
        (0, 0.5, "0 of 0.5"),
        (2.5, 10.0, "2.5 of 10"),
        (0.1 + 0.2, 1, "0.3 of 1"),
        (1_234_567, 20_000_000, "1234567 of 20000000"),
        (1e21, 1e22, "1000000000000000000000 of 10000000000000000000000"),
        (1 / 3, None, "0.333333"),
        (-1, None, "-1"),
    ],
)
def test_progress_without_a_message_says_how_much_is_done(done: float, total: float | None, text: str) -> None:
    assert progress_report(done, total, None) == Report(text, done, total)


def test_progress_with_a_message_says_that() -> None:
    assert progress_report(3, 10, "reading") == Report("reading", 3, 10)


MISFITS: list[tuple[Any, Any, Any]] = [
    (math.nan, None, None),
    (math.inf, None, None),
    (True, None, None),
    ("3", None, None),
    (None, None, None),
    (10**400, None, None),
    (1, math.nan, None),
    (1, -math.inf, None),
    (1, True, None),
    (1, 0, None),
    (1, -5, None),
    (1, 2, ""),
    (1, 2, "\0"),
    (1, 2, "\ud800"),
    (1, 2, "x" * (STATUS_CHARACTERS + 1)),
]


@pytest.mark.parametrize(("done", "total", "message"), MISFITS)
async def test_progress_that_cannot_be_told_is_the_tools_error_wherever_it_runs(
    done: Any, total: Any, message: Any
) -> None:
    told: list[object] = []

    async def tell(*report: object) -> None:
        told.append(report)

    with pytest.raises(UsageError):
        await ToolContext("count", "ada", {}, None, tell).progress(done, total, message)
    in_thread = SyncToolContext("count", "ada", {}, None, tell)
    with pytest.raises(UsageError):
        await asyncio.to_thread(in_thread.progress, done, total, message)
    assert told == []


async def test_progress_of_a_tool_without_a_task_goes_to_who_listens() -> None:
    told: list[object] = []

    async def tell(done: float, total: float | None, message: str | None) -> None:
        told.append((done, total, message))

    await ToolContext("count", "ada", {}, None, tell).progress(1)
    await asyncio.to_thread(SyncToolContext("count", "ada", {}, None, report=tell).progress, 2, 3, "reading")
    assert told == [(1, None, None), (2, 3, "reading")]


@pytest.mark.usefixtures("seldom")
async def test_who_reports_without_a_pause_lets_others_have_their_turn() -> None:
    async def turns() -> None:
        while True:
            taken.append(True)
            await asyncio.sleep(0)

    taken: list[bool] = []
    told, others = Written().by(), asyncio.create_task(turns())
    for n in range(100):
        await told.put(Report(str(n)))
    assert len(taken) >= 90
    for n in range(100):
        await ToolContext("count", "ada", {}, None).progress(n)
    assert len(taken) >= 190
    others.cancel()
    told.close()


async def test_progress_of_a_tool_without_a_task_is_dropped_where_nobody_listens() -> None:
    await ToolContext("count", "ada", {}, None).progress(1, 2, "reading")
    await asyncio.to_thread(SyncToolContext("count", "ada", {}, None).progress, 1)


async def test_a_tool_without_a_task_has_no_status_and_cannot_detach() -> None:
    context, in_thread = ToolContext("count", "ada", {}, None), SyncToolContext("count", "ada", {}, None)
    for call in (context.status("reading"), context.detach()):
        with pytest.raises(UsageError, match="has no task"):
            await call
    for act in (lambda: in_thread.status("reading"), in_thread.detach):
        with pytest.raises(UsageError, match="has no task"):
            await asyncio.to_thread(act)
