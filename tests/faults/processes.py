"""`perdure serve` and `perdure worker` as processes, each started again at once when it ends, as a supervisor does."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.faults.windows import Window, any_meets

READY = {"serve": b'"serving"', "worker": b'"worker started"'}
"""What each says in its log when it is ready."""

_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Exit:
    """A process that ended, and how; `asked`: it was killed or stopped by the run."""

    pid: int
    at: float
    code: int
    asked: bool
    ready: bool


class Member:
    """One place in the fleet, with one process after the other in it.

    Attributes:
        name: what the run calls it.
        downs: when it could not be reached; for an API.
        kills: each SIGKILL: pid and moment.
        stops: each SIGTERM: pid and moment.
        pauses: each SIGSTOP: pid and window.
        exits: each process that ended.
        ready: set while the process is there and has started.
    """

    def __init__(self, role: str, number: int, arguments: list[str], environment: dict[str, str], folder: Path) -> None:
        self.role = role
        self.name = f"{role} {number}"
        self.url = ""
        self.downs = [Window(time.time())]
        self.kills: list[tuple[int, float]] = []
        self.stops: list[tuple[int, float]] = []
        self.pauses: list[tuple[int, Window]] = []
        self.exits: list[Exit] = []
        self.ready = asyncio.Event()
        self._command = [sys.executable, "-m", "app", role, *arguments]
        self._environment = environment
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._leaving = asyncio.Event()

    def up_for(self, seconds: float) -> bool:
        """Whether it is up for at least so long, and not stopped by SIGSTOP."""
        now = time.time()
        return not self.was_down(now - seconds, now) and not any_meets((w for _, w in self.pauses), now, now)

    def was_down(self, begin: float, end: float) -> bool:
        """Whether it could not be reached at some moment of this stretch."""
        return any_meets(self.downs, begin, end)

    def kill(self) -> None:
        """SIGKILL the process."""
        if self._process is not None and self._process.returncode is None:
            self._goes_down()
            with suppress(ProcessLookupError):
                self._process.kill()
            # Only now it is past: what it did in the moment before the signal came was no attempt that overlaps.
            self.kills.append((self._process.pid, time.time()))

    def terminate(self) -> None:
        """SIGTERM the process, as a deploy does."""
        if self._process is not None and self._process.returncode is None:
            self._goes_down()
            self.stops.append((self._process.pid, time.time()))
            with suppress(ProcessLookupError):
                self._process.terminate()

    async def pause(self, seconds: float) -> None:
        """SIGSTOP the process for so long."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        window = Window(time.time())
        self.pauses.append((process.pid, window))
        process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            window.end = time.time()

    async def run(self) -> None:
        """Keep a process running until `leave`."""
        for number in count(1):
            if self._leaving.is_set():
                return
            log = self._folder / f"{self.name.replace(' ', '-')}-{number:03}.log"
            process = self._process = await self._start(log)
            if self._leaving.is_set():
                process.terminate()
            watching = asyncio.create_task(self._watch(log))
            code = await process.wait()
            watching.cancel()
            asked = self._leaving.is_set() or process.pid in {pid for pid, _ in (*self.kills, *self.stops)}
            self.exits.append(Exit(process.pid, time.time(), code, asked, self.ready.is_set()))
            self._goes_down()
            if not asked:
                await asyncio.sleep(0.2)

    def leave(self) -> None:
        """Ask the process to stop; it is not started again."""
        self._leaving.set()
        self._goes_down()
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    def destroy(self) -> None:
        """Kill what is left, whatever it does."""
        self._leaving.set()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _start(self, log: Path) -> asyncio.subprocess.Process:
        with log.open("wb") as file:
            return await asyncio.create_subprocess_exec(
                *self._command, stdout=file, stderr=file, env=self._environment, preexec_fn=_die_with_parent
            )

    async def _watch(self, log: Path) -> None:
        while READY[self.role] not in log.read_bytes():  # noqa: ASYNC240  a few lines
            await asyncio.sleep(0.05)
        self.downs[-1].end = time.time()
        self.ready.set()

    def _goes_down(self) -> None:
        if self.ready.is_set():
            self.ready.clear()
            self.downs.append(Window(time.time()))


class Fleet:
    """All processes of a run.

    Attributes:
        apis: the members that serve.
        workers: the members that work.
    """

    def __init__(self, apis: list[Member], workers: list[Member]) -> None:
        self.apis = apis
        self.workers = workers

    @property
    def members(self) -> list[Member]:
        """Every one."""
        return [*self.apis, *self.workers]

    @asynccontextmanager
    async def running(self, *, start_seconds: float, stop_seconds: float) -> AsyncIterator[None]:
        """Start them; at the end, stop them, and kill those that do not stop or all if the run broke off.

        Raises:
            TimeoutError: they did not all start in time.
        """
        runs = [asyncio.create_task(member.run()) for member in self.members]
        try:
            async with asyncio.timeout(start_seconds):
                await self.all_ready()
            yield
            for member in self.members:
                member.leave()
            await asyncio.wait(runs, timeout=stop_seconds)
        finally:
            for member in self.members:
                member.destroy()
            await asyncio.gather(*runs)

    def odd_exits(self, downs: list[Window]) -> Iterator[str]:
        """Processes that ended by themselves, or not well when they were asked to.

        One that cannot start while the database is away says so and leaves; that is well.
        """
        for member in self.members:
            killed = {pid for pid, _ in member.kills}
            for ended in member.exits:
                started_in_vain = not ended.ready and ended.code == 2 and any_meets(downs, ended.at - 40.0, ended.at)
                if not ended.asked and not started_in_vain:
                    yield f"{member.name} ({ended.pid}) ended by itself with code {ended.code}"
                if ended.asked and ended.pid not in killed and ended.code != 0:
                    yield f"{member.name} ({ended.pid}) was asked to stop and ended with code {ended.code}"

    async def all_ready(self) -> None:
        """Wait until all of them have started."""
        for member in self.members:
            await member.ready.wait()


def _die_with_parent() -> None:
    """In the child: be killed when the run is, however that ends."""
    pr_set_pdeathsig = 1
    _libc.prctl(pr_set_pdeathsig, signal.SIGKILL)
