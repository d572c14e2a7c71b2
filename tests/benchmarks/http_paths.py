"""The paths over HTTP: creating, reading, end to end, and tools that no task is made for."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvloop

from tests.benchmarks.load import (
    ENDED,
    Connection,
    Figures,
    Step,
    Target,
    closed_loop,
    ended,
    must_hold,
    task_id_of,
)
from tests.benchmarks.stage import Member, Stage

POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Contender:
    """One line of a table: a service, and what is asked of it."""

    name: str
    member: Member
    step: Callable[[Target], Step]


@dataclass
class Row:
    """What the runs of a contender came to."""

    name: str
    figures: list[Figures]
    costs: list[float]
    server_costs: list[float]

    def median(self, pick: Callable[[Figures], float]) -> float:
        """The middle one of the runs."""
        return statistics.median(map(pick, self.figures))


def interleaved(
    on: Stage, contenders: Sequence[Contender], *, connections: int, seconds: float, passes: int
) -> list[Row]:
    """Run all of them, one after the other, so many times."""
    rows = [Row(it.name, [], [], []) for it in contenders]
    for _ in range(passes):
        for row, contender in zip(rows, contenders, strict=True):
            before, server_before = contender.member.spent(), on.postgres_spent()
            step = contender.step(contender.member.target)
            figures = uvloop.run(closed_loop(contender.member.target, step, connections=connections, seconds=seconds))
            row.figures.append(figures)
            row.costs.append(1000 * (contender.member.spent() - before) / max(1, figures.count))
            row.server_costs.append(1000 * (on.postgres_spent() - server_before) / max(1, figures.count))
    return rows


def table(title: str, rows: Sequence[Row], floor: str) -> list[str]:
    """Medians, and how they stand to those of the floor."""
    base = next(row for row in rows if row.name == floor).median(lambda f: f.rate)
    lines = [f"\n{title}", f"{'':38}{'per s':>8}{'p50 ms':>9}{'p99 ms':>9}{'cpu ms':>8}{'pg ms':>8}{'ratio':>8}"]
    for row in rows:
        rate = row.median(lambda f: f.rate)
        times = f"{row.median(lambda f: f.p50):9.2f}{row.median(lambda f: f.p99):9.2f}"
        costs = f"{statistics.median(row.costs):8.3f}{statistics.median(row.server_costs):8.3f}"
        lines.append(f"{row.name:38}{rate:8.0f}{times}{costs}{rate / base:8.2f}")
        for figures in row.figures:
            lines += [f"    {count} failed: {says}" for says, count in figures.failures.items()]
    return lines


def creating(target: Target) -> Step:
    """Create a task."""

    async def step(connection: Connection) -> None:
        task_id_of(await connection.send(target.call("noop", {"label": "x"})))

    return step


def living(target: Target) -> Step:
    """Create a task and poll until it is completed."""

    async def step(connection: Connection) -> None:
        task_id = task_id_of(await connection.send(target.call("noop", {"label": "x"})))
        await ended(target, connection, task_id, poll=POLL_SECONDS)

    return step


def greeting(target: Target) -> Step:
    """Call a tool that answers at once."""

    async def step(connection: Connection) -> None:
        must_hold(await connection.send(target.call("greet", {})), (b"Hello, World!",))

    return step


def plain(word: bytes) -> Callable[[Target], Step]:
    """An HTTP request without a message."""

    def made(target: Target) -> Step:
        async def step(connection: Connection) -> None:
            must_hold(await connection.send(target.plain()), (word,))

        return step

    return made


def reading(target: Target, *, finished: bool) -> Step:
    """Read one task over and over, once it is there."""
    request = target.get(uvloop.run(_made(target, finished=finished)))
    words = ENDED if finished else (b'"status":"working"', b'"status": "working"')

    async def step(connection: Connection) -> None:
        must_hold(await connection.send(request), words)

    return step


async def _made(target: Target, *, finished: bool) -> str:
    connection = await target.connect()
    task_id = task_id_of(await connection.send(target.call("noop", {"label": "x"})))
    if finished:
        await ended(target, connection, task_id, poll=POLL_SECONDS)
    connection.close()
    return task_id


@dataclass(frozen=True)
class Services:
    """All that answers over HTTP."""

    stage: Stage
    floor: Member
    batched: Member
    batched_alone: Member
    perdure: Member
    alone: Member
    unheard: Member

    def bare(self, path: str, word: bytes) -> Contender:
        """A path of the floor service that is no more than HTTP."""
        target = Target(self.floor.target.url.removesuffix("mcp") + path)
        return Contender(f"aiohttp, {path}", Member(path, target, self.floor.pids), plain(word))


def start(on: Stage, *, slots: int) -> Services:
    """Start them. Those that are `alone`, and `unheard`, have no worker; the latter notifies nobody."""
    floor = on.floor("floor")
    batched = on.floor("floor", "--batch")
    batched_alone = on.floor("floor without a worker", "--batch")
    worker = on.floor_worker("floor")
    members = []
    for (url, pid), workers in ((floor, (worker,)), (batched, (worker,)), (batched_alone, ())):
        members.append(Member("floor service", Target(f"{url}mcp"), (pid, *workers)))
    running = on.perdure("worker", "perdure", PERDURE_SLOTS=str(slots))
    running.says('"worker started"')
    for name, database, pids, settings in (
        ("perdure", "perdure", (running.process.pid,), {}),
        ("perdure, no worker", "idle", (), {}),
        ("perdure, no worker, unnotified", "idle", (), {"PERDURE_NOTIFY": "false"}),
    ):
        serve = on.perdure("serve", database, **settings)
        url = serve.says(r'"url": ?"(http[^"]+)"')
        members.append(Member(name, Target(url), (serve.process.pid, *pids)))
    return Services(on, *members)
