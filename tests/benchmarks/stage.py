"""The processes that are measured, and where they run: services on the first processor, the load on the second."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from app.embedded_pg import EmbeddedPostgres
from app.storage import migrate
from app.storage.database import Database
from app.storage.store import Store
from app.tools.registry import Registry
from tests.benchmarks import tools
from tests.benchmarks.load import Target
from tests.support.command import Command, perdure

TUNING = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "30min", "jit": "off"}
"""Of the one server that all share. fsync and synchronous_commit are as PostgreSQL has them: on."""

TOOLS = "tests.benchmarks.tools"
ROOT = Path(__file__).parents[2]
SERVICE, LOAD = 0, 1
MANY = "1000000000"
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class Member:
    """A service that answers, and the processes whose work is its cost."""

    name: str
    target: Target
    pids: tuple[int, ...]

    def spent(self) -> float:
        """Seconds of processor time that its processes have used."""
        return sum(map(spent, self.pids))


@dataclass
class Stage:
    """A PostgreSQL server and what has been started on it."""

    folder: Path
    postgres: EmbeddedPostgres
    _stack: ExitStack
    _databases: set[str] = field(default_factory=set)
    _count: int = 0

    def database(self, name: str, *, perdure: bool) -> str:
        """The URL of a database, made when it is first asked for."""
        url = self.postgres.url(name)
        if name not in self._databases:
            self._databases.add(name)
            asyncio.run(self._make(name, url, perdure=perdure))
        return url

    def postgres_spent(self) -> float:
        """Seconds of processor time that the database server has used, all of its processes together."""
        pids = [entry for entry in os.listdir("/proc") if entry.isdigit()]
        children = [int(pid) for pid in pids if _fields(pid)[1] == str(self.postgres.pid)]
        return sum(map(spent, [self.postgres.pid, *children]))

    def floor(self, database: str, *options: str) -> tuple[str, int]:
        """Start a floor service; its URL and its pid."""
        process = self._floor(database, "serve", *options)
        assert process.stdout is not None
        return process.stdout.readline().rsplit(" ", 1)[1].strip(), process.pid

    def floor_worker(self, database: str) -> int:
        """Start the floor's worker; its pid."""
        process = self._floor(database, "work")
        assert process.stdout is not None
        assert process.stdout.readline()
        return process.pid

    def perdure(self, role: str, database: str, **settings: str) -> Command:
        """Start `perdure serve` or `perdure worker` with the benchmark's tools."""
        self._count += 1
        settings = {"DATABASE_URL": self.database(database, perdure=True), "PERDURE_LOG_FORMAT": "json"} | settings
        settings |= {f"PERDURE_MAX_{what}": MANY for what in ("LIVE_TASKS", "STREAMS", "CALLS_PER_MINUTE")}
        arguments = ("--tools", TOOLS, *(("--port", "0") if role == "serve" else ()))
        with on(SERVICE):  # a child is where its parent was when it was started
            return self._stack.enter_context(perdure(self.folder / str(self._count), role, *arguments, **settings))

    def run_floor(self, *arguments: str, database: str) -> str:
        """Run one of the floor's commands on a database to its end; what it printed."""
        with on(SERVICE):
            return self._popen(*arguments, url=self.postgres.url(database)).communicate(timeout=300)[0]

    def _floor(self, database: str, *arguments: str) -> subprocess.Popen[str]:
        url = self.database(database, perdure=False)
        with on(SERVICE):
            process = self._stack.enter_context(self._popen(*arguments, url=url))
        self._stack.callback(process.kill)
        return process

    def _popen(self, *arguments: str, url: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", *arguments] if "." in arguments[0] else None
        command = command or [sys.executable, "-m", "tests.benchmarks.floor", *arguments]
        return subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"DATABASE_URL": url}, stdout=subprocess.PIPE, text=True
        )

    async def _make(self, name: str, url: str, *, perdure: bool) -> None:
        connection = await asyncpg.connect(self.postgres.url())
        await connection.execute(f'CREATE DATABASE "{name}"')
        await connection.close()
        if perdure:
            await migrate.upgrade(url)
            async with Database(url, connections=1) as database:
                await Store(database).publish_tools(Registry([tools.noop]).catalogue())


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """A server of its own, and an empty stage on it. From here on this process is the load."""
    folder.chmod(0o711)  # as root, the database server has another account
    with ExitStack() as stack:
        postgres = EmbeddedPostgres(folder / "postgres", die_with_parent=True, settings=TUNING)
        stack.enter_context(postgres)
        before = os.sched_getaffinity(0)
        stack.callback(os.sched_setaffinity, 0, before)
        os.sched_setaffinity(0, {sorted(before)[LOAD % len(before)]})
        yield Stage(folder, postgres, stack)


async def all_ended(url: str) -> None:
    """Wait until the workers on this database have nothing left to do."""
    connection, until = await asyncpg.connect(url), time.monotonic() + PATIENCE_SECONDS
    try:
        while await connection.fetchval("SELECT count(*) FROM perdure.tasks WHERE finished_at IS NULL"):
            assert time.monotonic() < until, "the workers do not end all tasks"
            await asyncio.sleep(0.2)
    finally:
        await connection.close()


@contextmanager
def on(processor: int) -> Iterator[None]:
    """What is started in here runs on one processor."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {processor})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def spent(pid: int) -> float:
    """Seconds of processor time that a process has used, with its children that have ended."""
    return sum(int(field) for field in _fields(pid)[11:15]) / os.sysconf("SC_CLK_TCK")


def _fields(pid: int | str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return ["0"] * 50
