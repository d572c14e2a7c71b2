"""What shows only with time: a table that has grown, a session that is idle in a transaction, memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import asyncpg
import uvloop

from tests.benchmarks.http_paths import Contender, creating, interleaved, living, reading, table
from tests.benchmarks.load import Step, Target, closed_loop
from tests.benchmarks.stage import Member, Stage, all_ended

STEPS: dict[str, Callable[[Target], Step]] = {
    "create": creating,
    "get": partial(reading, finished=True),
    "life": living,
}
AT_ONCE = 500_000
"""Tasks that one statement makes."""

WARM_SECONDS = 120.0
"""Memory is compared from then on: pools, caches and allocators have filled."""

SAMPLE_SECONDS = 60.0

# $1 first $2 last: tasks of the last hours that have ended, by UUIDs in the order of their making, and all that belongs
# to them.
FILL = """
WITH made AS (
    INSERT INTO perdure.tasks (task_id, owner, tool, priority, status, reply, epoch, version, ttl_ms, created_at,
        updated_at, started_at, finished_at, expires_at)
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0')
            || '8' || substr(md5(n::text), 1, 15))::uuid,
        'owner', 'noop', 1, 'completed', 'task', 1, 2, 86400000, at, at, at, at, now() + interval '1 day'
    FROM (SELECT n, now() - interval '8 hours' + n * interval '1 millisecond' AS at
        FROM generate_series($1::integer, $2::integer) AS n) AS moments
    RETURNING task_id
), requests AS (
    INSERT INTO perdure.task_requests (task_id, method, params, capabilities, retention_ms, answer_within_ms,
        loss_limit)
    SELECT task_id, 'tools/call', '{"name":"noop","arguments":{"label":"x"}}', '{}', 86400000, 604800000, 3 FROM made
)
INSERT INTO perdure.task_outcomes (task_id, result, epoch)
SELECT task_id, '{"content":[{"type":"text","text":"x"}],"isError":false,"resultType":"complete"}', 1 FROM made"""


def growth(on: Stage, *, finished: int, connections: int, seconds: float, passes: int) -> list[str]:
    """Each path on a table with so many tasks that have ended, and on one that began empty, in turns."""
    members = [_pair(on, name) for name in ("empty", "grown")]
    asyncio.run(_fill(on.database("grown", perdure=True), finished))
    title = f"grown has {finished:,} that have ended"
    return _in_turns(on, members, title, connections=connections, seconds=seconds, passes=passes)


def idle(on: Stage, *, minutes: float, connections: int, seconds: float, passes: int) -> list[str]:
    """Each path after some minutes of load beside a session that is idle in a transaction, and on a table that began
    empty beside none, in turns."""
    members = [_pair(on, name) for name in ("empty", "held")]
    for member in members:
        uvloop.run(_load(member.target, connections, 2 * seconds))
    with asyncio.Runner() as runner:
        session = runner.run(_idle_session(on.database("held", perdure=True)))
        count = uvloop.run(_load(members[1].target, connections, 60 * minutes))
        title = f"held has ended {count:,} in {minutes:g} minutes beside a session idle in a transaction"
        lines = _in_turns(on, members, title, connections=connections, seconds=seconds, passes=passes)
        runner.run(session.close())
    return lines


def _in_turns(
    on: Stage, members: Sequence[Member], title: str, *, connections: int, seconds: float, passes: int
) -> list[str]:
    """Each path on each of them; the first is the floor."""
    lines = []
    for path, step in STEPS.items():
        contenders = [Contender(member.name, member, step) for member in members]
        rows = interleaved(on, contenders, connections=connections, seconds=seconds, passes=passes)
        _let_them_end(on, members)
        lines += table(f"{path}: {title}", rows, members[0].name)
    return lines


def memory(on: Stage, *, minutes: float, connections: int) -> list[str]:
    """What the API and the worker occupy while tasks are created, run and read for so long."""
    member = _pair(on, "memory")
    samples: list[tuple[float, list[int]]] = []
    started = time.monotonic()

    async def watch() -> None:
        while True:
            samples.append((time.monotonic() - started, [_resident(pid) for pid in member.pids]))
            await asyncio.sleep(min(SAMPLE_SECONDS, 6 * minutes))

    async def run() -> int:
        watching = asyncio.create_task(watch())
        count = await _load(member.target, connections, 60 * minutes)
        watching.cancel()
        return count

    count = uvloop.run(run())
    samples.append((time.monotonic() - started, [_resident(pid) for pid in member.pids]))
    lines = [f"\nmemory, MiB, over {minutes:g} minutes in which {count:,} tasks ran and were polled"]
    lines.append(f"{'minutes':>8}{'API':>8}{'worker':>8}")
    lines += [f"{at / 60:8.1f}" + "".join(f"{size / 2**20:8.1f}" for size in sizes) for at, sizes in samples]
    warm = next((sizes for at, sizes in samples if at >= min(WARM_SECONDS, 30 * minutes)), samples[0][1])
    last = samples[-1][1]
    grown = [f"{100 * (end - begin) / begin:+.1f} %" for begin, end in zip(warm, last, strict=True)]
    return [*lines, f"from when they were warm to the end: API {grown[0]}, worker {grown[1]}"]


def _pair(on: Stage, database: str) -> Member:
    """An API and a worker on a database of that name."""
    worker = on.perdure("worker", database, PERDURE_SLOTS="32")
    worker.says('"worker started"')
    serve = on.perdure("serve", database)
    target = Target(serve.says(r'"url": ?"(http[^"]+)"'))
    return Member(database, target, (serve.process.pid, worker.process.pid))


def _let_them_end(on: Stage, members: Sequence[Member]) -> None:
    """What a path left to the worker is not to be part of the next one."""
    for member in members:
        asyncio.run(all_ended(on.database(member.name, perdure=True)))


async def _load(target: Target, connections: int, seconds: float) -> int:
    figures = await closed_loop(target, living(target), connections=connections, seconds=seconds)
    assert not figures.failures, figures.failures
    return figures.count


async def _fill(url: str, count: int) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("SET session_replication_role = replica")  # the foreign keys hold; they are not checked
    for first in range(1, count + 1, AT_ONCE):
        await connection.execute(FILL, first, min(count, first + AT_ONCE - 1), timeout=600)
    for statement in ("VACUUM (ANALYZE) perdure.tasks", "VACUUM (ANALYZE) perdure.task_requests", "CHECKPOINT"):
        await connection.execute(statement, timeout=1800)
    await connection.close()


async def _idle_session(url: str) -> asyncpg.Connection:
    connection = await asyncpg.connect(url)
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await connection.execute("SELECT count(*) FROM perdure.tools")
    return connection


def _resident(pid: int) -> int:
    """Bytes of memory that a process occupies."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
