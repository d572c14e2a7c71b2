"""The port for operators: alive, ready and why not, for every role, from the first moment to the last."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from aiohttp import ClientSession, web
from structlog.testing import capture_logs

from app import bootstrap
from app.http.guards import Guard
from app.http.operations import Operations
from app.http.ops import Ops
from app.http.readiness import Readiness, State, accepting, claiming, shared_checks
from app.settings import Settings
from app.storage.health import Health
from app.storage.listener import Listener
from tests.support.cable import cable_to
from tests.support.command import perdure
from tests.support.rpc import TASKS, Client
from tests.support.scraped import is_ready, ops_url, probe
from tests.support.waiting import eventually

TOOLS = '''
import asyncio
from app import tool

@tool
async def wait() -> None:
    """Take long."""
    await asyncio.sleep(60)
'''
HOST = "127.0.0.1"


@asynccontextmanager
async def answering(readiness: Readiness, **parts: Any) -> AsyncIterator[str]:
    ops = Ops(readiness, **parts)
    port = await ops.start(HOST, 0)
    try:
        yield f"http://{HOST}:{port}"
    finally:
        await ops.stop()


async def asked(url: str, **headers: str) -> tuple[int, Any]:
    async with ClientSession() as session, session.get(url, headers=headers) as response:
        text = await response.text()
        return response.status, json.loads(text) if response.content_type == "application/json" else text


def states(body: dict[str, Any]) -> dict[str, str]:
    return {name: check["state"] for name, check in body["checks"].items()}


# -- the server -------------------------------------------------------------------------------------------------------


async def test_a_process_is_alive_before_it_is_ready_and_ready_once_all_checks_pass() -> None:
    readiness, stopped = Readiness(), asyncio.Event()
    async with answering(readiness) as url:
        assert await asked(f"{url}/livez") == (200, {"live": True})
        starting = {"ready": False, "checks": {"start": {"ok": False, "state": "starting"}}}
        assert await asked(f"{url}/readyz") == (503, starting)
        readiness.started({"api": accepting(stopped), "worker": claiming(lambda: None)})
        status, body = await asked(f"{url}/readyz")
        assert (status, states(body)) == (200, {"api": "accepting", "worker": "claiming"})
        stopped.set()
        status, body = await asked(f"{url}/readyz")
        assert (status, states(body)) == (503, {"api": "stopping", "worker": "claiming"})
        assert (await asked(f"{url}/livez"))[0] == 200
        readiness.stopping()
        assert (await asked(f"{url}/readyz"))[0] == 503


async def test_a_check_that_fails_or_takes_too_long_makes_it_unready_and_hides_why() -> None:
    async def slow() -> State:
        await asyncio.sleep(60)
        return State(True, "late")

    async def broken() -> State:
        raise ValueError("postgresql://me:hush@there")

    readiness = Readiness(seconds=0.05)
    readiness.started({"slow": slow, "broken": broken, "worker": claiming(lambda: "draining")})
    async with answering(readiness) as url:
        status, body = await asked(f"{url}/readyz")
    assert (status, body["ready"]) == (503, False)
    assert states(body) == {"slow": "no answer in time", "broken": "unknown", "worker": "draining"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "10.1.2.3:8766"}, 200),
        ({"Host": "[fd00::1]:8766"}, 200),
        ({"Host": "ops.example.com"}, 200),
        ({"Host": "evil.example.com"}, 403),
        ({"Host": "10.1.2.3.evil.example.com"}, 403),
        ({"Origin": "https://evil.example.com"}, 403),
    ],
)
async def test_probes_by_address_are_answered_and_pages_of_others_are_not(headers: dict[str, str], status: int) -> None:
    async with answering(Readiness(), guard=Guard(["ops.example.com"], addresses=True)) as url:
        for path in ("/livez", "/nothing"):
            expected = 404 if (status, path) == (200, "/nothing") else status
            assert (await asked(url + path, **headers))[0] == expected


async def test_other_modules_bring_routes_and_whole_applications() -> None:
    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    pages = web.Application()
    pages.add_routes([web.get("/", hello)])
    async with answering(Readiness(), routes=[web.get("/hello", hello)], pages={"/ui": pages}) as url:
        assert await asked(f"{url}/hello") == (200, "hello")
        assert await asked(f"{url}/ui/") == (200, "hello")
        assert (await asked(f"{url}/ui/", Host="evil.example.com"))[0] == 403


async def test_requests_that_are_no_http_and_probes_leave_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with answering(Readiness()) as url:
        reader, writer = await asyncio.open_connection(HOST, int(url.rpartition(":")[2]))
        writer.write(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert b"400" in await reader.readline()
        writer.close()
        await writer.wait_closed()
        await asked(f"{url}/livez")
    assert not caplog.records


# -- the checks -------------------------------------------------------------------------------------------------------


async def test_the_schema_may_be_newer_than_the_release_and_never_older(db_url: str) -> None:
    health = Health(db_url, name="test")
    checks = shared_checks(health, None)
    try:
        assert await checks["schema"]() == State(True, "head")
        assert await checks["listener"]() == State(True, "polling")
        for revision, expected in (("0001", State(False, "behind")), ("9999", State(True, "newer"))):
            with psycopg.connect(db_url) as connection:
                connection.execute("UPDATE perdure.alembic_version SET version_num = %s", (revision,))

            async def found(expected: State = expected) -> bool:
                return await checks["schema"]() == expected

            await eventually(found)
    finally:
        await health.close()


async def test_a_database_without_our_tables_is_reachable_and_not_at_head(empty_url: str) -> None:
    health = Health(empty_url, name="test")
    checks = shared_checks(health, None)
    assert await checks["database"]() == State(True, "reachable")
    assert await checks["schema"]() == State(False, "no tables")
    await health.close()


async def test_many_probes_ask_the_database_once_over_one_connection(db_url: str) -> None:
    health = Health(db_url, name="counted probes")
    await asyncio.gather(*(health.revision() for _ in range(200)))
    with psycopg.connect(db_url) as connection:
        counted = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted probes'"
        assert connection.execute(counted).fetchone() == (1,)
    await health.close()


async def test_a_database_that_is_gone_is_told_and_found_again(db_url: str) -> None:
    async with cable_to(db_url) as cable:
        health = Health(cable.url, name="test")
        check = shared_checks(health, None)["database"]

        async def found(state: State) -> bool:
            return await check() == state

        await eventually(lambda: found(State(True, "reachable")))
        await cable.pull_out()
        await eventually(lambda: found(State(False, "unreachable")))
        await cable.plug_in()
        await eventually(lambda: found(State(True, "reachable")))
        await health.close()


async def test_a_database_that_says_nothing_is_not_waited_for() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, HOST, 0) as silent:
        url = f"postgresql://me@{HOST}:{silent.sockets[0].getsockname()[1]}/tasks"
        health = Health(url, name="test", probe_seconds=0.1)
        async with asyncio.timeout(5):
            assert await shared_checks(health, None)["database"]() == State(False, "unreachable")
        await health.close()


async def test_a_listener_that_never_heard_holds_a_rollout_up_and_one_that_lost_its_connection_does_not(
    db_url: str,
) -> None:
    listener, health = Listener(db_url), Health(db_url, name="test")
    check = shared_checks(health, listener)["listener"]
    assert await check() == State(False, "not hearing; polling")
    listener.hearing = True
    assert await check() == State(True, "hearing")
    listener.hearing = False
    assert await check() == State(True, "not hearing; polling")


# -- whole processes --------------------------------------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "ops_tools.py"
    path.write_text(TOOLS)
    return path


@pytest.mark.parametrize(
    ("role", "own"),
    [("serve", {"api": "accepting"}), ("worker", {"worker": "claiming"}), ("dev", {"worker": "claiming"})],
)
async def test_every_role_becomes_ready_and_says_why(
    role: str, own: dict[str, str], db_url: str, tools: Path, tmp_path: Path
) -> None:
    arguments: list[str | Path] = ["--tools", tools] if role != "serve" else []
    port = ["--port", "0"] if role != "worker" else []
    environment = {"DATABASE_URL": db_url, "PERDURE_OPS_PORT": "0"}
    with perdure(tmp_path / role, role, *arguments, *port, **environment) as process:
        body = await is_ready(ops_url(process))
        assert states(body) == {"database": "reachable", "schema": "head", "listener": "hearing"} | own
        assert process.stop() == 0


async def test_a_worker_that_drains_is_alive_and_not_ready(db_url: str, tools: Path, tmp_path: Path) -> None:
    environment = {"DATABASE_URL": db_url, "PERDURE_OPS_PORT": "0", "PERDURE_GRACE_SECONDS": "60"}
    with perdure(tmp_path / "dev", "dev", "--tools", tools, "--port", "0", **environment) as process:
        url, api = ops_url(process), process.says(r"answers on (\S+)")
        await is_ready(url)
        async with ClientSession() as session:
            call = {"name": "wait", "arguments": {}}
            assert "taskId" in (await Client(session, api, capabilities=TASKS).rpc("tools/call", call)).result
        await running(db_url)
        process.process.send_signal(signal.SIGTERM)

        async def drains() -> bool:
            status, body = await probe(f"{url}/readyz")
            return (status, states(body).get("worker")) == (503, "draining")

        await eventually(drains)
        assert await probe(f"{url}/livez") == (200, {"live": True})


async def running(db_url: str) -> None:
    async def look() -> bool:
        with psycopg.connect(db_url) as connection:
            found = connection.execute("SELECT count(*) FROM perdure.tasks WHERE worker_id IS NOT NULL").fetchone()
        return found == (1,)

    await eventually(look)


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_port_that_was_asked_for_must_be_free(db_url: str, tools: Path, tmp_path: Path) -> None:
    with taken_port() as port:
        environment = {"DATABASE_URL": db_url, "PERDURE_OPS_PORT": str(port)}
        with perdure(tmp_path / "worker", "worker", "--tools", tools, **environment) as process:
            assert process.ends() == 2
            assert f"The operations port cannot listen on 127.0.0.1:{port} (Address already in use)" in process.err


async def test_a_process_goes_on_without_where_the_default_port_is_taken() -> None:
    with taken_port() as port, capture_logs() as logs:
        operations = Operations("worker")
        await operations.listen(HOST, port, required=False)
        await operations.stop()
    assert [(entry["log_level"], entry["port"]) for entry in logs] == [("warning", port)]


async def test_operators_are_not_answered_where_that_is_switched_off() -> None:
    with capture_logs() as logs:
        async with bootstrap._operations(Settings.read(ops_port="off"), "serve"):
            assert logs == []
