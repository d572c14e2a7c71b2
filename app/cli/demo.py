"""`perdure demo`: the whole of it in half a minute, played over HTTP as a client would."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
from rich.console import Console
from rich.table import Table

from app.cli.common import read_settings
from app.embedded_pg import EmbeddedPostgres, first_reachable
from app.errors import PerdureError
from app.settings import Settings
from app.storage.database import asyncpg_dsn

ROWS = 300_000
BAD_EVERY = 50_000
PATIENCE_SECONDS = 60.0
TASKS = "io.modelcontextprotocol/tasks"
META: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}, "elicitation": {}}}
OVERVIEW = """\
SELECT tool, status, attempts, losses, age FROM perdure.task_overview ORDER BY created_at"""
ATTEMPTS = """\
SELECT t.tool, a.epoch, a.ended, a.ended_at - a.started_at AS lasted
FROM perdure.task_attempts a JOIN perdure.tasks t USING (task_id) ORDER BY a.ended_at"""
LOADED = """\
SELECT count(*) AS rows, count(DISTINCT id) AS different FROM perdure_examples.{table}"""

out = Console(highlight=False, soft_wrap=True)


class DemoError(PerdureError):
    """Something was not as it should be; the message says what."""


def demo() -> None:
    """Show a tool call become a task: it asks, survives the death of its worker, and ends with its result."""
    settings = read_settings()
    with _database(settings) as (url, folder):
        asyncio.run(_play(url, folder))


async def _play(url: str, folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    async with aiohttp.ClientSession() as session:
        client = Client(session, f"http://127.0.0.1:{port}/mcp")
        async with _perdure(url, port, folder, client) as process:
            await _hello(client)
            task_id, table = await _load(client, folder)
            _say("The process that runs it is killed: SIGKILL, in the middle of the file")
            process.kill()
            await process.wait()
        async with _perdure(url, port, folder, client):
            await _survived(client, task_id)
    await _look(url, table)
    out.print("\n[bold]All was as it should be.[/bold] Next: write a tool of your own, see README.md.")


async def _hello(client: Client) -> None:
    _say("A client calls a tool, and says that it can handle tasks")
    task = await client.call("hello_world")
    _check(task.get("resultType") == "task", "tools/call did not return a task")
    _say("The task is committed; what it asks is read by polling")
    asking = await client.until(task["taskId"], "input_required")
    _check(set(asking["inputRequests"]) == {"name"}, "the tool asked something else")
    client.show("tasks/get", {"taskId": task["taskId"]}, asking)
    _say("The user answers; it could be days later, nothing waits in memory")
    await client.answer(task["taskId"], "name", {"name": "Luca"})
    done = await client.until(task["taskId"], "completed")
    client.show("tasks/get", {"taskId": task["taskId"]}, done)
    _check(done["result"]["content"][0]["text"] == "Hello, Luca!", "the result is not the one that was expected")


async def _load(client: Client, folder: Path) -> tuple[str, str]:
    """Start to load a file; returns when some of it is in the table."""
    table = f"demo_{time.time_ns()}"
    _say(f"A job that people have: load a file of {ROWS:,} rows, some of which do not parse")
    await asyncio.to_thread(_make_csv, folder / "demo.csv")
    arguments = {"path": "demo.csv", "table": table, "columns": {"id": "integer", "price": "number"}}
    task_id: str = (await client.call("load_csv", arguments))["taskId"]
    asking = await client.until(task_id, "input_required")
    [(key, question)] = asking["inputRequests"].items()
    out.print(f"   it asks: {question['params']['message']}")
    await client.answer(task_id, key, {"action": "skip"})

    async def some_loaded() -> bool:
        task = await client.get(task_id)
        _check(task["status"] in ("working", "input_required"), "the file was loaded before anything could be killed")
        return str(task.get("statusMessage", "")).startswith("Loaded")

    await _until(some_loaded, "the load did not begin")
    out.print(f"   it says: {(await client.get(task_id)).get('statusMessage')}")
    return task_id, table


async def _survived(client: Client, task_id: str) -> None:
    _say("Another process is started. It finds the task when the dead one's lease is over, and goes on")
    done = await client.until(task_id, "completed")
    client.show("tasks/get", {"taskId": task_id}, done)
    loaded = done["result"]["structuredContent"]
    bad = ROWS // BAD_EVERY
    _check(loaded["rows_loaded"] == ROWS - bad, "not every good row was loaded")
    _check(loaded["rows_skipped"] == bad, "not every bad row was left out")


async def _look(url: str, table: str) -> None:
    _say("It is all rows in PostgreSQL. Each row of the file is there once")
    connection = await asyncpg.connect(asyncpg_dsn(url))
    try:
        [counted] = await _query(connection, LOADED.format(table=table))
        _check(
            counted["rows"] == counted["different"] == ROWS - ROWS // BAD_EVERY, "a row was loaded twice or not at all"
        )
        await _query(connection, OVERVIEW)
        attempts = await _query(connection, ATTEMPTS)
        _check(any(row["ended"] == "lost" for row in attempts), "no attempt was lost")
        await connection.execute(f'DROP TABLE perdure_examples."{table}"')
    finally:
        await connection.close()


async def _query(connection: asyncpg.Connection[Any], query: str) -> list[asyncpg.Record]:
    """Run a query and print it with what it gives."""
    rows = await connection.fetch(query)
    out.print(query, style="cyan", markup=False)
    table = Table(*(rows[0].keys() if rows else ()))
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    out.print(table)
    return rows


class Client:
    """A client of the protocol, as small as it gets, that shows what it sends and receives."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._id = 0

    async def rpc(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return its result."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params | {"_meta": META}}
        async with self._session.post(self._url, json=message) as response:
            reply = await response.json()
        if "error" in reply:
            raise DemoError(f"{method} was answered with the error: {reply['error']['message']}")
        result: dict[str, Any] = reply["result"]
        return result

    async def call(self, tool: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call a tool, and show it."""
        params = {"name": tool, "arguments": arguments or {}}
        result = await self.rpc("tools/call", params)
        self.show("tools/call", params, result)
        return result

    async def get(self, task_id: str) -> dict[str, Any]:
        """Read a task."""
        return await self.rpc("tasks/get", {"taskId": task_id})

    async def answer(self, task_id: str, key: str, content: dict[str, Any]) -> None:
        """Answer a question, and show it."""
        params = {"taskId": task_id, "inputResponses": {key: {"action": "accept", "content": content}}}
        self.show("tasks/update", params, await self.rpc("tasks/update", params))

    async def until(self, task_id: str, status: str) -> dict[str, Any]:
        """Poll until the task has this status."""
        seen: dict[str, Any] = {}

        async def reached() -> bool:
            seen.update(await self.get(task_id))
            ended = seen["status"] in ("completed", "failed", "cancelled")
            _check(not ended or seen["status"] == status, f"the task is {seen['status']}, not {status}")
            return bool(seen["status"] == status)

        await _until(reached, f"the task did not become {status}")
        return await self.get(task_id)

    def show(self, method: str, params: dict[str, Any], result: dict[str, Any]) -> None:
        """Print a request and its result, a line each."""
        told = {name: value for name, value in result.items() if name != "_meta"}
        out.print(f"   → {method} {json.dumps(params)}", style="green", markup=False)
        out.print(f"   ← {json.dumps(told)}", style="blue", markup=False)


@contextmanager
def _database(settings: Settings) -> Iterator[tuple[str, Path]]:
    """The database at DATABASE_URL, or one that is thrown away; and a folder for the file."""
    place = first_reachable(Path(tempfile.gettempdir()), Path("/var/tmp"))  # noqa: S108  where a server may run
    with tempfile.TemporaryDirectory(prefix="perdure-demo-", dir=place) as made:
        folder = Path(made)
        folder.chmod(0o755)  # as root, the server runs as another account
        if settings.database_url is not None:
            yield settings.require_database_url(), folder
            return
        _say("PostgreSQL is started in a folder of its own, which is removed at the end")
        with EmbeddedPostgres(folder / "postgres", die_with_parent=True) as server:
            yield server.url(), folder


@asynccontextmanager
async def _perdure(url: str, port: int, folder: Path, client: Client) -> AsyncIterator[asyncio.subprocess.Process]:
    """`perdure dev` in a process of its own, from when it answers."""
    _say("perdure dev --tools app.examples")
    environment = os.environ | {
        "DATABASE_URL": url,
        "PERDURE_EXAMPLES_CSV_DIR": str(folder),
        "PERDURE_LEASE_SECONDS": "2",  # a dead worker is noticed soon; 20 is right for other days
        "PERDURE_GRACE_SECONDS": "1",
        "PERDURE_LOG_LEVEL": "error",
    }
    command = (sys.executable, "-m", "app", "dev", "--tools", "app.examples", "--port", str(port))
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.DEVNULL)

    async def answers() -> bool:
        _check(process.returncode is None, "perdure dev did not start")
        try:
            tools = (await client.rpc("tools/list", {}))["tools"]
        except aiohttp.ClientConnectionError:
            return False
        return {"hello_world", "load_csv"} <= {tool["name"] for tool in tools}

    try:
        await _until(answers, "perdure dev did not answer")
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _until(look: Callable[[], Awaitable[bool]], complaint: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not await look():
        _check(time.monotonic() < end, complaint)
        await asyncio.sleep(0.1)


def _make_csv(path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("id,name,price\n")
        for number in range(1, ROWS + 1):
            price = "unknown" if number % BAD_EVERY == 0 else f"{number % 997}.50"
            file.write(f"{number},item {number},{price}\n")


def _say(text: str) -> None:
    out.print(f"\n[bold]{text}[/bold]")


def _check(holds: bool, complaint: str) -> None:
    if not holds:
        raise DemoError(f"The demo failed: {complaint}")
