"""Metrics: what was done is counted, in a real process, and nobody outside decides how many series there are."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from aiohttp import ClientSession, web
from prometheus_client import REGISTRY, Metric, generate_latest
from prometheus_client.registry import Collector

from app.errors import ProtocolError, StaleAttempt, StoreUnavailable
from app.http.ops import Ops
from app.http.readiness import Readiness
from app.http.scrape import Scrape
from app.storage import health
from app.storage.database import Database, Use
from app.storage.health import Health
from app.telemetry import metrics
from app.tools.registry import Registry, tool
from app.worker.maintenance.expire import expire
from app.worker.maintenance.loop import repeat
from app.worker.maintenance.purge import purge
from app.worker.maintenance.rescue import rescue
from tests.support.cable import cable_to
from tests.support.command import perdure
from tests.support.rpc import PUBLISHED, TASKS, Client
from tests.support.scraped import Scraped, is_ready, ops_url, read_metrics, scrape, scraped_until
from tests.support.service import DONE, Service, listening, serving
from tests.support.waiting import eventually

TOOLS = '''
import asyncio
from prometheus_client import Counter
from app import tool
from app.errors import ProtocolError, ToolError
from app.tools.context import ToolContext

SOLD = Counter("shop_sold", "What the author counts.")

@tool
async def fine() -> str:
    """Work."""
    SOLD.inc()
    return "done"

@tool
async def wrong(how: str) -> str:
    """Fail in one of several ways."""
    if how == "tool":
        raise ToolError("no")
    if how == "protocol":
        raise ProtocolError(4711, "no")
    raise ValueError("no")

@tool
async def curious(ctx: ToolContext) -> str:
    """Ask."""
    return str(await ctx.elicit("name", "Who?", {"type": "object", "properties": {"name": {"type": "string"}}}))

@tool
async def patient() -> str:
    """Take long."""
    await asyncio.sleep(600)
    return "late"

@tool(task="never")
async def quick() -> str:
    """Answer at once."""
    return "now"
'''
COUNT = "mcp_server_operation_duration_seconds_count"


async def test_a_process_counts_what_it_does_under_real_calls(db_url: str, tmp_path: Path) -> None:
    tools = tmp_path / "measured_tools.py"
    tools.write_text(TOOLS)
    environment = {"DATABASE_URL": db_url, "PERDURE_OPS_PORT": "0"}
    with perdure(tmp_path / "dev", "dev", "--tools", tools, "--port", "0", **environment) as dev:
        url, api = ops_url(dev), dev.says(r"answers on (\S+)")
        await is_ready(url)
        async with ClientSession() as session:
            client = Client(session, api, version=PUBLISHED, capabilities=TASKS | {"elicitation": {}})
            ids = [(await client.call("fine")).result["taskId"] for _ in range(3)]
            ids += [(await client.call("wrong", how=how)).result["taskId"] for how in ("tool", "protocol", "bug")]
            ids += [(await client.call(name)).result["taskId"] for name in ("curious", "patient")]
            assert (await client.call("quick")).result["isError"] is False
            await client.call("made_up")
            await client.rpc("made/up")
            inline = client.with_(capabilities={})
            await inline.call("wrong", how="tool")
            await inline.call("wrong", how="protocol")
            seen = await scraped_until(url, _all_done)
            await client.rpc("tasks/cancel", {"taskId": ids[-1]})
            await scraped_until(
                url, lambda s: s.value("perdure_attempts_total", tool="patient", outcome="cancelled") == 1
            )
    _check_requests(seen)
    _check_attempts(seen)
    _check_state(seen)
    assert seen.value("shop_sold_total") == 3
    assert not [task_id for task_id in ids if task_id in seen.text or UUID(task_id).hex in seen.text]
    assert "anonymous" not in seen.text
    assert "made" not in seen.text
    lines = [json.loads(line) for line in dev.err.splitlines() if '"event": "attempt"' in line]
    fine = [line for line in lines if line["tool"] == "fine"]  # attempts may end in any order
    assert [(line["attempt"], line["outcome"]) for line in fine] == [(1, "completed")] * 3
    assert all(line["queue_ms"] >= 0 and line["run_ms"] > 0 for line in fine)
    assert not [task_id for task_id in ids if task_id in dev.err]


def _all_done(seen: Scraped) -> bool:
    """Until the workers have done what was asked of them, a scrape has seen the queue as it is then, and the loop's lag
    was looked at for the first time."""
    over = sum(value for _, value in seen.all("perdure_attempts_total"))
    parked = seen.value("perdure_tasks", tool="curious", activity="waiting_for_answers")
    working = seen.value("perdure_tasks", tool="patient", activity="running")
    return over == 9 and parked == working == 1 and seen.value("perdure_event_loop_lag_seconds_count") > 0


def _attempts(seen: Scraped, tool: str, outcome: str) -> float:
    return seen.value("perdure_attempts_total", tool=tool, outcome=outcome)


def _check_requests(seen: Scraped) -> None:
    def requests(method: str, tool: str, error: str) -> float:
        return seen.value(COUNT, mcp_method_name=method, gen_ai_tool_name=tool, error_type=error)

    assert requests("tools/call", "fine", "") == 3
    assert requests("tools/call", "quick", "") == 1
    assert requests("tools/call", "wrong", "") == 3
    assert requests("tools/call", "wrong", "tool_error") == 1
    assert requests("tools/call", "wrong", "_OTHER") == 1, "a code of the tool's own"
    assert requests("tools/call", "_OTHER", "-32602") == 1
    assert requests("_OTHER", "", "-32601") == 1
    assert seen.value("perdure_requests_refused_total", reason="method_not_found") == 1
    assert seen.value("perdure_requests_refused_total", reason="tool") == 1
    assert seen.value("perdure_tasks_created_total", tool="wrong") == 5


def _check_attempts(seen: Scraped) -> None:
    assert _attempts(seen, "fine", "completed") == 3
    assert [_attempts(seen, "wrong", outcome) for outcome in ("tool_error", "failed", "internal_error")] == [2, 2, 1]
    assert _attempts(seen, "curious", "asked") == 1
    assert seen.value("perdure_queue_duration_seconds_count", tool="fine") == 3
    assert seen.value("perdure_attempt_duration_seconds_count", tool="fine") == 3
    assert 0 < seen.value("perdure_attempt_duration_seconds_sum", tool="fine") < 60


def _check_state(seen: Scraped) -> None:
    assert seen.value("perdure_database_up") == 1
    assert seen.value("perdure_listener_hearing") == 1
    assert seen.value("perdure_worker_claiming") == 1
    assert seen.value("perdure_worker_running") == 1
    assert seen.value("perdure_worker_slots") == 16
    assert seen.value("perdure_tool_workers", tool="fine") == 1
    assert seen.value("perdure_pool_limit_connections", pool="requests") == 10
    assert {labels["pool"] for labels, _ in seen.all("perdure_pool_used_connections")} == {"requests", "control"}
    assert 0 <= seen.value("perdure_notification_queue_ratio") < 1
    for name in ("perdure_tasks_rescued_total", "perdure_attempts_total", "perdure_requests_refused_total"):
        assert 0 in [value for _, value in seen.all(name)], "an alert sees the first time too"
    assert seen.all("perdure_loop_failures_total", loop="listener") == [({"loop": "listener"}, 0)]
    [(build, one)] = seen.all("perdure_build_info")
    assert (build["role"], one) == ("dev", 1)


# -- bounds -----------------------------------------------------------------------------------------------------------


def series() -> set[tuple[str, frozenset[tuple[str, str]]]]:
    found = read_metrics(generate_latest(REGISTRY).decode())
    return {(name, frozenset(labels.items())) for name, labels, _ in found.samples}


async def test_callers_that_make_up_names_make_up_no_series(service: Service) -> None:
    async def nonsense(number: int) -> None:
        await service.client.call(f"made-up-{number}")
        await service.client.rpc(f"made/up/{number}")
        await service.client.rpc("tools/call", {"name": number})
        await service.client.rpc("tasks/get", {"taskId": f"made-up-{number}"})
        await service.client.rpc("tasks/get", {"name": f"made-up-{number}"})

    await nonsense(0)
    before = series()
    for start in range(1, 1001, 50):
        await asyncio.gather(*(nonsense(number) for number in range(start, start + 50)))
    assert series() == before


@tool(task="never")
async def coded(code: int) -> str:
    """Fail with a code of the caller's choice."""
    raise ProtocolError(code, "no")


async def test_the_codes_of_tools_make_up_no_series(db_url: str) -> None:
    async with serving(db_url, Registry([coded])) as service:
        await service.client.call("coded", code=1)
        before = series()
        for code in range(2, 50):
            assert (await service.client.call("coded", code=code)).error["code"] == code
        assert series() == before


def test_counting_a_request_takes_microseconds() -> None:
    metrics.operation("tools/call", "job", "", 0.001)
    started = time.perf_counter()
    for _ in range(10_000):
        metrics.operation("tools/call", "job", "", 0.001)
    assert (time.perf_counter() - started) / 10_000 < 50e-6


# -- maintenance ------------------------------------------------------------------------------------------------------


class _Trusted:
    trusted = True


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_what_maintenance_moves_and_what_comes_too_late_is_counted(service: Service) -> None:
    names = [
        ("perdure_tasks_rescued_total", {"tool": "job"}),
        ("perdure_tasks_expired_total", {"tool": "job"}),
        ("perdure_tasks_purged_total", {}),
        ("perdure_stale_writes_total", {}),
    ]
    before = [counted(name, **labels) for name, labels in names]
    await service.start_task()
    lost = await service.claim()  # by a worker that has no row
    assert await rescue(service.store, _Trusted()) == 1  # type: ignore[arg-type]
    with pytest.raises(StaleAttempt):
        await service.store.finish(lost, DONE)
    await service.connection.execute("UPDATE perdure.tasks SET deadline_at = now() - interval '1 hour'")
    assert await expire(service.store) == 1
    await service.connection.execute("UPDATE perdure.tasks SET expires_at = now() - interval '2 hours'")
    assert await purge(service.store) == 1
    assert [counted(name, **labels) for name, labels in names] == [value + 1 for value in before]


async def test_a_round_of_a_loop_that_fails_is_counted() -> None:
    before = counted("perdure_loop_failures_total", loop="counted")

    async def body() -> None:
        raise StoreUnavailable("away")

    loop = asyncio.create_task(repeat("counted", 0.0, body))

    async def fails() -> bool:
        return counted("perdure_loop_failures_total", loop="counted") > before + 1

    await eventually(fails)
    loop.cancel()


# -- what is looked at when somebody asks -----------------------------------------------------------------------------


async def test_the_database_is_asked_once_however_many_scrape(db_url: str) -> None:
    asked = Health(db_url, name="test")
    figures = await asyncio.gather(*(asked.figures() for _ in range(100)))
    assert all(each is figures[0] for each in figures)
    await asked.close()


async def test_of_a_database_that_is_gone_nothing_is_told_but_that(
    db_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "FIGURES_FRESH_SECONDS", 0.0)
    async with cable_to(db_url) as cable:
        asked = Health(cable.url, name="test")
        ops = Ops(Readiness(), routes=[web.get("/metrics", Scrape(health=asked).handle)])
        url = f"http://127.0.0.1:{await ops.start('127.0.0.1', 0)}"
        try:
            with psycopg.connect(db_url) as connection:
                connection.execute("INSERT INTO perdure.tools VALUES ('job', '{}', '{}', '')")
            here = await scrape(url)
            assert here.value("perdure_database_up") == 1
            assert here.value("perdure_tasks", tool="job", activity="queued") == 0
            assert here.all("perdure_tasks", tool="job")
            await cable.pull_out()
            gone = await scrape(url)
            assert gone.value("perdure_database_up") == 0
            assert gone.all("perdure_tasks") == []
        finally:
            await ops.stop()
            await asked.close()


async def test_a_process_shows_nothing_of_what_it_has_not() -> None:
    """An alert on a worker that claims nothing must not go off for each API process."""
    ops = Ops(Readiness(), routes=[web.get("/metrics", Scrape().handle)])
    url = f"http://127.0.0.1:{await ops.start('127.0.0.1', 0)}"
    try:
        assert not (await scrape(url)).names & metrics.LOOKED.keys()
    finally:
        await ops.stop()


class _Witness(Collector):
    """Is asked for its series, and remembers by whom."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def collect(self) -> list[Metric]:
        self.threads.append(threading.current_thread())
        return []


async def test_requests_do_not_wait_for_a_scrape_and_it_is_sent_as_it_is_asked_for() -> None:
    witness = _Witness()
    REGISTRY.register(witness)
    ops = Ops(Readiness(), routes=[web.get("/metrics", Scrape().handle)])
    url = f"http://127.0.0.1:{await ops.start('127.0.0.1', 0)}/metrics"
    witness.threads.clear()
    try:
        async with ClientSession(headers={"Accept-Encoding": "gzip"}) as session:
            open_metrics = {"Accept": "application/openmetrics-text; version=1.0.0"}
            for headers, kind in (({}, "text/plain"), (open_metrics, "application/openmetrics-text")):
                async with session.get(url, headers=headers) as response:
                    assert (response.status, response.content_type) == (200, kind)
                    assert response.headers["Content-Encoding"] == "gzip"
                    assert "perdure_build_info" in await response.text()
    finally:
        await ops.stop()
        REGISTRY.unregister(witness)
    assert len(witness.threads) == 2
    assert threading.main_thread() not in witness.threads


async def test_a_pool_says_how_many_wait_for_a_connection(db_url: str) -> None:
    async with Database(db_url, connections=2) as database:
        assert database.use == Use(2, 0, 0)
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(database.connection())
            waiting = asyncio.create_task(database.fetch("SELECT 1"))

            async def waits() -> bool:
                return database.use == Use(2, 2, 1)

            await eventually(waits)
        await waiting
        assert database.use == Use(2, 0, 0)


async def test_a_listener_that_loses_its_connection_is_counted(db_url: str) -> None:
    before = counted("perdure_listener_losses_total")
    async with listening(db_url, True) as listener:
        assert listener is not None
        with psycopg.connect(db_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perdure listener' "
                "AND datname = current_database()"
            )

        async def lost() -> bool:
            return counted("perdure_listener_losses_total") == before + 1

        await eventually(lost)
