"""A fault run from its start to its audit."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import asyncpg

from app.embedded_pg import first_reachable
from tests.faults import attempts
from tests.faults.audit import audit
from tests.faults.caller import Caller
from tests.faults.clients import User
from tests.faults.evidence import Evidence, collect, read_log
from tests.faults.injector import Injector
from tests.faults.ledger import Ledger
from tests.faults.postgres import Postgres, free_port
from tests.faults.processes import Fleet, Member
from tests.faults.tools import CREATE_WRITTEN, JOURNAL

APIS, WORKERS = 2, 3
START_SECONDS = 180.0
GRACE_SECONDS = 2.0
STOP_SECONDS = 20.0
UNACKNOWLEDGED = """
SELECT count(*) FROM perdure.tasks
WHERE status = 'working' AND (tool <> 'endless' OR cancel_requested_at IS NOT NULL)"""


@dataclass(frozen=True)
class Plan:
    """What a run is to be.

    Attributes:
        seconds: how long faults are injected.
        every_seconds: from one fault to the next, on average.
        users: how many clients act at the same time.
        lease_seconds: the workers' lease.
        settle_seconds: how long everything may take to come to rest afterwards.
        long_outages: let PostgreSQL be away for 8 to 14 seconds now and then.
        folder: keep journal and logs here; None: only if something was found.
    """

    seconds: float
    seed: int
    every_seconds: float = 2.0
    users: int = 24
    lease_seconds: float = 3.0
    settle_seconds: float = 60.0
    long_outages: bool = True
    folder: Path | None = None


@dataclass
class Outcome:
    """What a run has come to; `findings` is empty if everything held."""

    plan: Plan
    findings: list[str]
    evidence: Evidence
    ledger: Ledger
    injector: Injector
    fleet: Fleet
    recoveries: list[attempts.Recovery]
    seconds: float
    folder: Path


async def run(plan: Plan) -> Outcome:
    """Inject faults under load, let everything settle, stop it, and audit what is left."""
    folder = _folder(plan)
    postgres = Postgres(folder / "postgres")
    async with postgres.running():
        await _prepare(postgres.url)
        fleet, ledger = _fleet(plan, folder, postgres.url), Ledger()
        injector = Injector(
            fleet,
            postgres,
            seed=plan.seed,
            every_seconds=plan.every_seconds,
            lease_seconds=plan.lease_seconds,
            long_outages=plan.long_outages,
        )
        started = time.monotonic()
        async with fleet.running(start_seconds=START_SECONDS, stop_seconds=STOP_SECONDS):
            await _load(plan, fleet, ledger, injector)
            await _settle(postgres.url, plan.settle_seconds)
            seconds = time.monotonic() - started
        evidence = await collect(postgres.url, folder / "journal")
    for log in sorted(folder.glob("*.log")):
        read_log(log, evidence)
    recoveries = attempts.recoveries(evidence, fleet, postgres.downs, plan.lease_seconds)
    findings = [
        *audit(evidence, ledger, fleet),
        *attempts.slow_rescues(recoveries, plan.lease_seconds),
        *fleet.odd_exits(postgres.downs),
    ]
    if not findings and plan.folder is None:
        shutil.rmtree(folder)
    return Outcome(plan, findings, evidence, ledger, injector, fleet, recoveries, seconds, folder)


async def _load(plan: Plan, fleet: Fleet, ledger: Ledger, injector: Injector) -> None:
    """Act as clients while faults are injected, and after that until all tasks have ended."""
    async with _users(plan, fleet, ledger) as (caller, users):
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for user in users:
                group.create_task(user.run(stop))
            await injector.run(plan.seconds)
            stop.set()
            caller.give_up_at = time.monotonic() + plan.settle_seconds
            await fleet.all_ready()
        for known in ledger.tasks:
            if known.end is None:
                await users[0].look_again(known)


@asynccontextmanager
async def _users(plan: Plan, fleet: Fleet, ledger: Ledger) -> AsyncIterator[tuple[Caller, list[User]]]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout()) as session:
        caller = Caller(session, fleet.apis, ledger, _random(plan, "caller"))
        names = [f"user-{number}" for number in range(plan.users)]
        yield caller, [User(name, caller, ledger, _random(plan, name)) for name in names]


async def _prepare(url: str) -> None:
    """The schema, by the command that operators use, and the table that transactions write to."""
    command = (sys.executable, "-m", "app", "migrate")
    process = await asyncio.create_subprocess_exec(*command, env=_environment(url), stdout=subprocess.DEVNULL)
    try:
        if await process.wait() != 0:
            raise RuntimeError("the database could not be migrated")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    connection = await asyncpg.connect(url, server_settings={"application_name": "faults"})
    await connection.execute(CREATE_WRITTEN)
    await connection.close()


async def _settle(url: str, seconds: float) -> None:
    """Wait until the tasks have ended that no client knows of; what has not ended then is for the audit."""
    connection = await asyncpg.connect(url, server_settings={"application_name": "faults"})
    end = time.monotonic() + seconds
    while await connection.fetchval(UNACKNOWLEDGED) and time.monotonic() < end:
        await asyncio.sleep(0.1)
    await connection.close()


def _fleet(plan: Plan, folder: Path, url: str) -> Fleet:
    environment = _environment(url) | {
        "PERDURE_LEASE_SECONDS": str(plan.lease_seconds),
        "PERDURE_GRACE_SECONDS": str(GRACE_SECONDS),
        "PERDURE_SLOTS": "8",
        "PERDURE_LOG_FORMAT": "json",
        "PERDURE_REQUEST_STATE_KEY": _random(plan, "key").randbytes(32).hex(),
        JOURNAL: str(folder / "journal"),
    }
    apis = []
    for number in range(1, APIS + 1):
        port = free_port()
        api = Member("serve", number, ["--port", str(port)], environment, folder)
        api.url = f"http://127.0.0.1:{port}/mcp"
        apis.append(api)
    tools = ["--tools", "tests.faults.tools"]
    workers = [Member("worker", number, tools, environment, folder) for number in range(1, WORKERS + 1)]
    return Fleet(apis, workers)


def _environment(url: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    return clean | {"DATABASE_URL": url}


def _folder(plan: Plan) -> Path:
    if plan.folder is not None:
        plan.folder.mkdir(parents=True)
        return plan.folder
    place = first_reachable(Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/dev/shm"))  # noqa: S108
    folder = Path(tempfile.mkdtemp(prefix="perdure-faults-", dir=place))
    folder.chmod(0o755)  # as root, the server runs as another account
    return folder


def _random(plan: Plan, name: str) -> random.Random:
    return random.Random(f"{plan.seed}/{name}")  # noqa: S311
