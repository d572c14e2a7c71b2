"""What goes wrong in a fault run: each kind equally often, in an order and with targets that the seed decides."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass

import asyncpg

from tests.faults.postgres import Postgres
from tests.faults.processes import Fleet, Member

PAUSE_LEASES = (1.5, 4.0)
"""How long a process is stopped, in leases."""

OUTAGE_SECONDS = (0.0, 2.0)
LONG_OUTAGE_SECONDS = (8.0, 14.0)
LONG_OUTAGE_EVERY = 8
"""Of so many restarts of PostgreSQL one takes long."""

UP_SECONDS = 3.0
"""How long whatever is to fail has been up at least. For PostgreSQL it is longer than the product pauses between two
tries."""

_TERMINATE = "SELECT pg_terminate_backend(pid) FROM unnest($1::integer[]) AS pid"
_BACKENDS = """
SELECT pid, application_name FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND application_name <> 'faults' ORDER BY pid"""


@dataclass(frozen=True)
class Fault:
    """One thing that was done to the product."""

    at: float
    kind: str
    what: str


class Injector:
    """Injects faults into a fleet and its database.

    Args:
        seed: decides kinds, targets and pauses.
        every_seconds: how long from one fault to the next, on average.
        lease_seconds: the workers' lease.
        long_outages: let PostgreSQL be away for long now and then.
    """

    def __init__(
        self,
        fleet: Fleet,
        postgres: Postgres,
        *,
        seed: int,
        every_seconds: float,
        lease_seconds: float,
        long_outages: bool,
    ) -> None:
        self._fleet = fleet
        self._postgres = postgres
        self._random = random.Random(f"{seed}/injector")  # noqa: S311
        self._every = every_seconds
        self._lease = lease_seconds
        self._long_outages = long_outages
        self._restarting = asyncio.Lock()
        self.faults: list[Fault] = []
        self.backends: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[], Coroutine[None, None, None]]] = {
            "SIGKILL worker": self._kill_worker,
            "SIGKILL api": self._kill_api,
            "SIGTERM worker": self._terminate_worker,
            "SIGTERM api": self._terminate_api,
            "SIGSTOP worker": self._pause_worker,
            "SIGSTOP api": self._pause_api,
            "terminate backends": self._terminate_backends,
            "restart PostgreSQL": self._restart_postgres,
        }

    @property
    def counts(self) -> dict[str, int]:
        """How many faults of each kind there were."""
        counted = Counter(fault.kind for fault in self.faults)
        return {kind: counted[kind] for kind in self._kinds}

    async def run(self, seconds: float) -> None:
        """Inject for so long; returns when nothing is broken any more that was broken here."""
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for kind in self._deal():
                pause = self._every * self._random.uniform(0.5, 1.5)
                if time.monotonic() + pause > end:
                    break
                await asyncio.sleep(pause)
                group.create_task(self._kinds[kind](), name=kind)

    def _deal(self) -> Iterator[str]:
        """Kinds of faults for ever: each once, in random order, and again."""
        while True:
            kinds = list(self._kinds)
            self._random.shuffle(kinds)
            yield from kinds

    async def _kill_worker(self) -> None:
        await self._kill(self._fleet.workers)

    async def _kill_api(self) -> None:
        await self._kill(self._fleet.apis)

    async def _terminate_worker(self) -> None:
        await self._terminate(self._fleet.workers)

    async def _terminate_api(self) -> None:
        await self._terminate(self._fleet.apis)

    async def _pause_worker(self) -> None:
        await self._pause(self._fleet.workers)

    async def _pause_api(self) -> None:
        await self._pause(self._fleet.apis)

    async def _kill(self, members: list[Member]) -> None:
        member = await self._any_running(members)
        self._note(f"SIGKILL {_kind(member)}", member.name)
        member.kill()

    async def _terminate(self, members: list[Member]) -> None:
        member = await self._any_running(members)
        self._note(f"SIGTERM {_kind(member)}", member.name)
        member.terminate()

    async def _pause(self, members: list[Member]) -> None:
        leases = self._random.uniform(*PAUSE_LEASES)
        member = await self._any_running(members)
        self._note(f"SIGSTOP {_kind(member)}", f"{member.name} for {leases * self._lease:.1f} s")
        await member.pause(leases * self._lease)

    async def _any_running(self, members: list[Member]) -> Member:
        """One that has been up for so long that it has something to lose."""
        while not (up := [member for member in members if member.up_for(UP_SECONDS)]):
            await asyncio.sleep(0.05)
        return self._random.choice(up)

    async def _terminate_backends(self) -> None:
        count = self._random.randint(1, 4)
        async with self._restarting:
            connection = await asyncpg.connect(self._postgres.url, server_settings={"application_name": "faults"})
            try:
                backends = await connection.fetch(_BACKENDS)
                chosen = self._random.sample(backends, min(count, len(backends)))
                await connection.fetch(_TERMINATE, [backend["pid"] for backend in chosen])
            finally:
                await connection.close()
        names = [backend["application_name"] or "(no name)" for backend in chosen]
        self.backends.update(names)
        self._note("terminate backends", ", ".join(names))

    async def _restart_postgres(self) -> None:
        how = self._random.choice([signal.SIGQUIT, signal.SIGKILL])
        away = self._random.uniform(*OUTAGE_SECONDS)
        if self._long_outages and self._random.randrange(LONG_OUTAGE_EVERY) == 0:
            away = self._random.uniform(*LONG_OUTAGE_SECONDS)
        async with self._restarting:
            self._note("restart PostgreSQL", f"{how.name}, away for {away:.1f} s")
            await self._postgres.crash(how, away)
            await asyncio.sleep(UP_SECONDS)

    def _note(self, kind: str, what: str) -> None:
        self.faults.append(Fault(time.time(), kind, what))


def _kind(member: Member) -> str:
    return "api" if member.role == "serve" else member.role
