"""Claim, run and end what waits: one worker process against asyncpg alone, and against pgqueuer if it is installed."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import statistics
from collections.abc import Callable, Iterable
from functools import partial

import asyncpg

from app.domain.task import Json, NewTask, Policy, new_task_id
from app.storage.database import Database
from app.storage.store import Store
from tests.benchmarks.stage import Stage, all_ended, spent

Run = tuple[float, float]
"""Seconds that it took, and seconds of processor time that the worker's process used meanwhile."""


BY_HAND = "asyncpg, the same rows by 32s"
PGQUEUER = "pgqueuer, by 32s"


def measure(on: Stage, *, count: int, passes: int, slots: Iterable[int]) -> list[str]:
    """Tasks in a second, medians of interleaved runs, as lines."""
    ways: dict[str, Callable[[], Run]] = {BY_HAND: lambda: _asyncpg(on, count)}
    ways |= {f"perdure worker, {each} slots": partial(_perdure, on, count, each) for each in slots}
    if importlib.util.find_spec("pgqueuer") is not None:
        ways[PGQUEUER] = lambda: _pgqueuer(on, count)
    runs: dict[str, list[Run]] = {name: [] for name in ways}
    for _ in range(passes):
        for name, run in ways.items():
            runs[name].append(run())
    medians = {name: [statistics.median(column) for column in zip(*found, strict=True)] for name, found in runs.items()}
    floors = [medians[name][0] for name in (BY_HAND, PGQUEUER) if name in ways]
    lines = [f"\n(c) claim, run and end {count:,} that wait", f"{'':38}{'per s':>8}{'cpu ms':>8}"]
    lines[1] += "".join(f"{'x ' + name.partition(',')[0]:>12}" for name in (BY_HAND, PGQUEUER) if name in ways)
    for name, (seconds, cost) in medians.items():
        ratios = "".join(f"{floor / seconds:12.2f}" for floor in floors)
        lines.append(f"{name:38}{count / seconds:8.0f}{1000 * cost / count:8.3f}{ratios}")
    if PGQUEUER not in ways:
        lines.append("pgqueuer                              not installed (the extra: benchmarks)")
    return lines


def _asyncpg(on: Stage, count: int) -> Run:
    asyncio.run(_fill(on.database("drain", perdure=True), count))
    return _seconds(on.run_floor("drain", str(count), database="drain"))


def _perdure(on: Stage, count: int, slots: int) -> Run:
    """From the first claim to the last end, by the database's clock: starting a process is not in it."""
    url = on.database("drain", perdure=True)
    asyncio.run(_fill(url, count))
    worker = on.perdure("worker", "drain", PERDURE_SLOTS=str(slots))
    worker.says('"worker started"')
    before = spent(worker.process.pid)
    seconds = asyncio.run(_ended(url, count))
    cost = spent(worker.process.pid) - before
    assert worker.stop() == 0
    return seconds, cost


def _pgqueuer(on: Stage, count: int) -> Run:
    on.database("pgqueuer", perdure=False)
    return _seconds(on.run_floor("tests.benchmarks.with_pgqueuer", str(count), database="pgqueuer"))


def _seconds(said: str) -> Run:
    found = re.search(r"drained in ([\d.]+) s, ([\d.]+) of the processor", said)
    assert found is not None, said
    return float(found[1]), float(found[2])


async def _fill(url: str, count: int) -> None:
    """An empty table, and so many tasks that wait in it."""
    async with Database(url, connections=20) as database:
        await database.fetch("TRUNCATE perdure.tasks CASCADE")
        store, numbers = Store(database), iter(range(count))

        async def create() -> None:
            for number in numbers:
                params = Json(f'{{"name":"noop","arguments":{{"label":"{number}"}}}}')
                await store.create(NewTask(new_task_id(), "owner", "noop", params, Json("{}"), Policy()))

        await asyncio.gather(*(create() for _ in range(64)))
        await database.fetch("ANALYZE perdure.tasks, perdure.task_requests")
    await _checkpoint(url)


async def _checkpoint(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("CHECKPOINT")
    await connection.close()


async def _ended(url: str, count: int) -> float:
    await all_ended(url)
    connection = await asyncpg.connect(url)
    try:
        (row,) = await connection.fetch("""
            SELECT count(*) FILTER (WHERE status = 'completed') AS completed,
                extract(epoch FROM max(finished_at) - min(started_at))::float8 AS seconds
            FROM perdure.tasks""")
    finally:
        await connection.close()
    assert row["completed"] == count, f"{row['completed']} of {count} completed"
    return float(row["seconds"])
