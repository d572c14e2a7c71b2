"""The floor: a service on the same libraries and the same wire, with nothing in it that could be left out.

    python -m tests.benchmarks.floor serve [--batch]
    python -m tests.benchmarks.floor work
    python -m tests.benchmarks.floor drain COUNT

It has no validation, owners, leases, retries or questions: what a figure of Perdure's is held against, not something
to use. `--batch` lets creations that arrive while one is being committed share the next commit. DATABASE_URL is a
database of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import asyncpg
import uvloop
from aiohttp import web

TABLE = """
CREATE TABLE IF NOT EXISTS job (
    job_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state text NOT NULL DEFAULT 'working',
    taken boolean NOT NULL DEFAULT false,
    arguments text NOT NULL,
    outcome text,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS job_open ON job (job_id) WHERE state = 'working' AND NOT taken"""
MAKE = "INSERT INTO job (arguments) SELECT a FROM unnest($1::text[]) AS a RETURNING job_id, state, made_at, changed_at"
READ = "SELECT job_id, state, made_at, changed_at, outcome FROM job WHERE job_id = $1"
TAKE = """
WITH open AS MATERIALIZED (
    SELECT job_id FROM job WHERE state = 'working' AND NOT taken
    ORDER BY job_id LIMIT 32 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE job SET taken = true, changed_at = clock_timestamp() FROM open WHERE job.job_id = open.job_id
RETURNING job.job_id, job.arguments"""
END = """
UPDATE job SET state = 'completed', outcome = e.outcome, changed_at = clock_timestamp()
FROM unnest($1::bigint[], $2::text[]) AS e (job_id, outcome)
WHERE job.job_id = e.job_id AND job.state = 'working'"""

CHANNEL = "floor"
CONNECTIONS = 10
META = {"io.modelcontextprotocol/serverInfo": {"name": "floor", "version": "0"}}
GREETING = {
    "resultType": "complete",
    "content": [{"type": "text", "text": "Hello, World!"}],
    "isError": False,
    "_meta": META,
}


async def _keep(_: asyncpg.Connection[Any]) -> None:
    """No RESET when a connection goes back."""


def _shown(row: asyncpg.Record, kind: str) -> dict[str, Any]:
    task = {
        "resultType": kind,
        "taskId": str(row["job_id"]),
        "status": row["state"],
        "createdAt": row["made_at"].isoformat(),
        "lastUpdatedAt": row["changed_at"].isoformat(),
        "ttlMs": None,
        "pollIntervalMs": 1000,
        "_meta": META,
    }
    if row["state"] == "completed":
        text = {"type": "text", "text": row["outcome"]}
        task["result"] = {"content": [text], "isError": False, "resultType": "complete"}
    return task


class Floor:
    """Answers calls of two tools, and polls for what became of them."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], *, batch: bool) -> None:
        self._pool, self._batch = pool, batch
        self._turn = asyncio.Semaphore(CONNECTIONS)
        self._arrived: list[tuple[str, asyncio.Future[asyncpg.Record]]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def static(self, _: web.Request) -> web.Response:
        """A reply that costs nothing."""
        return _json({"status": "completed"})

    async def select(self, _: web.Request) -> web.Response:
        """One row by its primary key."""
        return _json({"status": "completed", "found": await self._fetch(READ, 1) is not None})

    async def insert(self, _: web.Request) -> web.Response:
        """One row, committed."""
        row = await self._fetch(MAKE, ["{}"])
        return _json({"taskId": row["job_id"]})

    async def mcp(self, request: web.Request) -> web.Response:
        """The protocol's own wire."""
        message = json.loads(await request.read())
        params = message["params"]
        if message["method"] == "tasks/get":
            result = _shown(await self._fetch(READ, int(params["taskId"])), "complete")
        elif params["name"] == "greet":
            result = GREETING
        else:
            result = _shown(await self._make(json.dumps(params["arguments"])), "task")
            self._news.set()
        return _json({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def tell(self) -> None:
        """Wake the worker: at once, and not more often than every few milliseconds."""
        teller = await asyncpg.connect(os.environ["DATABASE_URL"])
        while True:
            await self._news.wait()
            self._news.clear()
            await teller.execute(f"NOTIFY {CHANNEL}")
            await asyncio.sleep(0.005)

    async def _fetch(self, statement: str, *arguments: object) -> asyncpg.Record:
        async with self._turn:
            (row,) = await self._pool.fetch(statement, *arguments)
        return row

    async def _make(self, arguments: str) -> asyncpg.Record:
        if not self._batch:
            return await self._fetch(MAKE, [arguments])
        made: asyncio.Future[asyncpg.Record] = asyncio.get_running_loop().create_future()
        self._arrived.append((arguments, made))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
        return await made

    async def _flush(self) -> None:
        while batch := self._arrived:
            self._arrived = []
            rows = await self._pool.fetch(MAKE, [arguments for arguments, _ in batch])
            for (_, made), row in zip(batch, rows, strict=True):
                made.set_result(row)


def _json(value: dict[str, Any]) -> web.Response:
    return web.Response(body=json.dumps(value).encode(), content_type="application/json")


async def serve(*, batch: bool) -> None:
    """Serve on a free port, which is printed."""
    async with asyncpg.create_pool(
        os.environ["DATABASE_URL"], min_size=CONNECTIONS, max_size=CONNECTIONS, reset=_keep
    ) as pool:
        await pool.execute(TABLE)
        floor = Floor(pool, batch=batch)
        app = web.Application()
        for path in ("mcp", "static", "select", "insert"):
            app.router.add_post(f"/{path}", getattr(floor, path))
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(f"floor on http://127.0.0.1:{site.port}/", flush=True)
        await floor.tell()


async def work() -> None:
    """Claim by 32 and complete by 32."""
    worker, listener = (
        await asyncpg.connect(os.environ["DATABASE_URL"]),
        await asyncpg.connect(os.environ["DATABASE_URL"]),
    )
    woken = asyncio.Event()
    await listener.add_listener(CHANNEL, lambda *_: woken.set())
    print("floor works", flush=True)
    while True:
        woken.clear()
        while taken := await worker.fetch(TAKE):
            labels = [str(json.loads(row["arguments"]).get("label")) for row in taken]
            await worker.execute(END, [row["job_id"] for row in taken], labels)
        try:
            async with asyncio.timeout(1):
                await woken.wait()
        except TimeoutError:
            continue


# What Perdure writes for a task's claim and its end, and no more: the same rows, 32 at a time.
CLAIM_ROWS = """
WITH open AS MATERIALIZED (
    SELECT task_id FROM perdure.tasks WHERE ready_at <= now() ORDER BY ready_at LIMIT 32 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE perdure.tasks AS t
SET worker_id = $1, epoch = t.epoch + 1, ready_at = NULL, started_at = clock_timestamp()
FROM open JOIN perdure.task_requests AS r USING (task_id) WHERE t.task_id = open.task_id
RETURNING t.task_id, r.params::text"""
END_ROWS = """
WITH outcome AS (
    INSERT INTO perdure.task_outcomes (task_id, result, epoch)
    SELECT d.task_id, d.result, 1 FROM unnest($1::uuid[], $2::json[]) AS d (task_id, result)
)
UPDATE perdure.tasks AS t
SET status = 'completed', worker_id = NULL, finished_at = clock_timestamp(), version = t.version + 1,
    updated_at = clock_timestamp(), expires_at = clock_timestamp() + interval '1 day', ttl_ms = 86400000
WHERE t.task_id = ANY ($1::uuid[])"""


async def drain(count: int) -> None:
    """Claim and end so many of Perdure's tasks with nothing but asyncpg; prints the seconds that it took."""
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    worker_id = await connection.fetchval("SELECT gen_random_uuid()")
    result = json.dumps({"resultType": "complete", "content": [], "isError": False})
    started, spent, done = time.perf_counter(), time.process_time(), 0
    while taken := await connection.fetch(CLAIM_ROWS, worker_id):
        results = [result for row in taken if json.loads(row["params"])]
        await connection.execute(END_ROWS, [row["task_id"] for row in taken], results)
        done += len(taken)
    assert done == count, f"{done} of {count} were there"
    seconds, cost = time.perf_counter() - started, time.process_time() - spent
    print(f"drained in {seconds:.6f} s, {cost:.6f} of the processor", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", *options]:
            uvloop.run(serve(batch="--batch" in options))
        case ["work"]:
            uvloop.run(work())
        case ["drain", number]:
            uvloop.run(drain(int(number)))
        case _:
            sys.exit(__doc__)
