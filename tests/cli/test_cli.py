"""The commands as people and init systems run them: what they say, how they stop, and with which exit code."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import psycopg
import pytest

from app.embedded_pg import first_reachable, remove_abandoned
from app.version import __version__
from tests.support.command import Command, perdure, run_perdure
from tests.support.rpc import TASKS, Client
from tests.support.waiting import eventually

TOOLS = '''
import time
from app import tool

@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@tool
async def hog() -> None:
    """Block the event loop."""
    print("hogging", flush=True)
    time.sleep(600)

@tool
def linger() -> None:
    """Never look whether it should stop."""
    print("lingering", flush=True)
    time.sleep(600)

@tool(task="never")
def where() -> str:
    """Say where this runs."""
    return "here"
'''


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "my_tools.py"
    path.write_text(TOOLS)
    return path


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def reachable_folder() -> Iterator[Path]:
    """A folder that the account of the embedded server can reach, which tmp_path is not."""
    base = first_reachable(Path(tempfile.gettempdir()), Path("/var/tmp"))  # noqa: S108
    folder = Path(tempfile.mkdtemp(prefix="perdure-test-", dir=base))
    folder.chmod(0o755)
    yield folder
    remove_abandoned(folder)
    shutil.rmtree(folder)


async def ended(client: Client, task_id: str) -> dict[str, Any]:
    """Wait for a task to end."""

    async def look() -> dict[str, Any] | None:
        state: dict[str, Any] = (await client.rpc("tasks/get", {"taskId": task_id})).result
        return None if state["status"] == "working" else state

    state = await eventually(look, seconds=30)
    assert state is not None
    return state


# -- what cannot be done ----------------------------------------------------------------------------------------------


def test_the_version_is_told(tmp_path: Path) -> None:
    assert run_perdure(tmp_path / "run", "--version") == (0, f"perdure {__version__}\n", "")


@pytest.mark.parametrize("command", ["worker", "dev"])
def test_without_tools_there_is_nothing_to_run(command: str, tmp_path: Path) -> None:
    code, _, err = run_perdure(tmp_path / "run", command)
    assert code == 2
    assert "--tools" in err


def test_a_wrong_setting_is_told_in_one_line_without_secrets(tmp_path: Path) -> None:
    settings = {"DATABASE_URL": "mysql://me:hush@there/tasks", "PERDURE_LOG_LEVEL": "debug"}
    code, out, err = run_perdure(tmp_path / "run", "serve", **settings)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("perdure: DATABASE_URL cannot be used: ")
    assert "hush" not in err


def test_the_api_needs_a_key_that_all_of_its_processes_share(tmp_path: Path, db_url: str) -> None:
    code, _, err = run_perdure(tmp_path / "none", "serve", DATABASE_URL=db_url, PERDURE_REQUEST_STATE_KEY="")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("perdure: PERDURE_REQUEST_STATE_KEY is not set: it takes a secret")
    code, _, err = run_perdure(tmp_path / "short", "serve", DATABASE_URL=db_url, PERDURE_REQUEST_STATE_KEY="hush")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("perdure: PERDURE_REQUEST_STATE_KEY cannot be used: it has fewer than 32 characters.")
    assert "hush" not in err


def test_a_module_that_cannot_be_loaded_is_told_in_one_line(tmp_path: Path) -> None:
    code, _, err = run_perdure(tmp_path / "run", "worker", "--tools", "no.such.module")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("perdure: There is no module no.such.module")


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_schema_that_is_not_at_head_is_refused_with_the_command_that_helps(
    command: str, tmp_path: Path, tools: Path, empty_url: str
) -> None:
    code, out, err = run_perdure(tmp_path / "run", command, "--tools", tools, DATABASE_URL=empty_url)
    assert (code, out) == (2, "")
    assert err == "perdure: The database has no tables of Perdure yet: run `perdure migrate`\n"


def test_a_port_that_is_taken_is_told_with_the_option_for_another(tmp_path: Path, db_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        code, _, err = run_perdure(tmp_path / "run", "serve", "--port", port, DATABASE_URL=db_url)
    assert code == 2
    assert err.startswith(f"perdure: The API cannot listen on 127.0.0.1:{port} (Address already in use)")
    assert "--port" in err


def test_a_worker_whose_tools_are_never_tasks_has_nothing_to_do(tmp_path: Path, db_url: str) -> None:
    path = tmp_path / "local.py"
    path.write_text('from app import tool\n\n@tool(task="never")\ndef where() -> str:\n    """Say."""\n    return ""\n')
    code, _, err = run_perdure(tmp_path / "run", "worker", "--tools", path, DATABASE_URL=db_url)
    assert code == 2
    assert err.startswith("perdure: None of these tools runs as a task")


# -- in production ----------------------------------------------------------------------------------------------------


async def test_migrate_serve_and_worker_run_a_tool_and_stop_at_a_signal(
    tmp_path: Path, tools: Path, empty_url: str, session: aiohttp.ClientSession
) -> None:
    code, out, _ = run_perdure(tmp_path / "migrate", "migrate", DATABASE_URL=empty_url)
    assert (code, out[:27]) == (0, "The database is at revision")
    with (
        perdure(tmp_path / "api", "serve", "--tools", tools, "--port", "0", DATABASE_URL=empty_url) as api,
        perdure(tmp_path / "worker", "worker", "--tools", tools, DATABASE_URL=empty_url) as worker,
    ):
        url = api.says(r'"url": "(http://127\.0\.0\.1:\d+/mcp)"')
        worker.says("worker started")
        client = Client(session, url, capabilities=TASKS)
        listed = (await client.rpc("tools/list")).result["tools"]
        assert [tool["name"] for tool in listed] == ["add", "hog", "linger", "where"]
        assert (await client.call("where")).result["content"][0]["text"] == "here"
        task = (await client.call("add", a=1, b=2)).result
        done = await ended(client, task["taskId"])
        assert (done["status"], done["result"]["content"]) == ("completed", [{"type": "text", "text": "3"}])
        assert (worker.stop(), api.stop()) == (0, 0)
        assert task["taskId"] not in api.err + worker.err


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_process_that_still_waits_for_its_database_stops_at_once(command: str, tmp_path: Path, tools: Path) -> None:
    nowhere = "postgresql://me:hush@127.0.0.1:1/tasks"
    with perdure(tmp_path / "run", command, "--tools", tools, DATABASE_URL=nowhere) as waiting:
        waiting.says("trying again")
        assert waiting.stop() == 130
    assert "Traceback" not in waiting.err
    assert "hush" not in waiting.err


async def started(session: aiohttp.ClientSession, worker: Command, api: Command, tool: str, word: str) -> str:
    """Have a worker run this tool; the task's id."""
    client = Client(session, api.says(r'"url": "([^"]*)"'), capabilities=TASKS)
    worker.says("worker started")
    task_id: str = (await client.call(tool)).result["taskId"]
    await asyncio.to_thread(worker.says, word)
    return task_id


async def test_the_second_signal_leaves_at_once_even_if_a_tool_blocks_the_loop(
    tmp_path: Path, tools: Path, db_url: str, session: aiohttp.ClientSession
) -> None:
    with (
        perdure(tmp_path / "api", "serve", "--port", "0", DATABASE_URL=db_url) as api,
        perdure(tmp_path / "worker", "worker", "--tools", tools, DATABASE_URL=db_url) as worker,
    ):
        await started(session, worker, api, "hog", "hogging")
        worker.process.send_signal(signal.SIGTERM)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(worker.process.wait, 0.5), 0.4)
        assert worker.stop(signal.SIGINT) == 128 + signal.SIGINT


async def test_a_worker_leaves_without_a_thread_that_does_not_end_and_gives_its_task_back(
    tmp_path: Path, tools: Path, db_url: str, session: aiohttp.ClientSession
) -> None:
    settings = {"DATABASE_URL": db_url, "PERDURE_GRACE_SECONDS": "0"}
    with (
        perdure(tmp_path / "api", "serve", "--port", "0", DATABASE_URL=db_url) as api,
        perdure(tmp_path / "worker", "worker", "--tools", tools, **settings) as worker,
    ):
        task_id = await started(session, worker, api, "linger", "lingering")
        assert worker.stop() == 0
    connection = await asyncpg.connect(db_url)
    row = await connection.fetchrow("SELECT ready_at, losses FROM perdure.tasks WHERE task_id = $1", task_id)
    await connection.close()
    assert row is not None
    assert row["ready_at"] is not None
    assert row["losses"] == 0


# -- for development --------------------------------------------------------------------------------------------------


async def test_dev_brings_its_own_database_and_keeps_its_data(
    tmp_path: Path, tools: Path, reachable_folder: Path, session: aiohttp.ClientSession
) -> None:
    data = reachable_folder / "data"
    options: Any = {"PERDURE_DATA_DIR": str(data)}
    with perdure(tmp_path / "first", "dev", "--tools", tools, "--port", "0", **options) as dev:
        client = Client(session, dev.says(r"answers on (http://127\.0\.0\.1:\d+/mcp)"), capabilities=TASKS)
        dev.says("worker started")
        assert f"PostgreSQL in {data}" in dev.out
        assert "add, hog, linger, where" in dev.out
        task_id = (await client.call("add", a=20, b=22)).result["taskId"]
        await ended(client, task_id)
        with psycopg.connect(dev.says(r"psql (\S+)")) as connection:
            assert connection.execute("SELECT activity FROM perdure.task_overview").fetchall() == [("ended",)]
        assert dev.stop(signal.SIGINT) == 0
    assert not (data / "data/postmaster.pid").exists()
    with perdure(tmp_path / "second", "dev", "--tools", tools, "--port", "0", **options) as dev:
        client = Client(session, dev.says(r"answers on (\S+)"), capabilities=TASKS)
        again = (await client.rpc("tasks/get", {"taskId": task_id})).result
        assert again["result"]["content"][0]["text"] == "42"
        assert dev.stop() == 0


def test_dev_on_a_database_of_ones_own_does_not_show_its_password(tmp_path: Path, tools: Path, empty_url: str) -> None:
    with perdure(tmp_path / "run", "dev", "--tools", tools, "--port", "0", DATABASE_URL=empty_url) as dev:
        dev.says("Ctrl-C")
        assert dev.stop() == 0
    assert 'psql "$DATABASE_URL"' in dev.out
    assert "postgresql:" not in dev.out + dev.err
