"""Several processes of the API on one machine: one Python process uses one core.

All listen on the same port, and the system spreads connections over them (SO_REUSEPORT). This process only watches:
it starts one again that has died, and passes signals on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import NoReturn

import structlog

log = structlog.get_logger(__name__)

UNUSABLE = 2
"""The exit code of a process that cannot start as it is set: to start it again would not help."""

LOOK_SECONDS = 0.1
AGAIN_SECONDS = 1.0
"""After so long a process that died is started again; twice as long after each further death in a row, up to 30 s."""

MOST_SECONDS = 30.0
SOUND_SECONDS = 60.0
"""A process that lived for so long has not died in a row."""


class Processes:
    """Runs a command several times.

    Args:
        command: the program and its arguments.
        environments: what each of them gets beside this process's environment.
    """

    def __init__(self, command: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        self._command = list(command)
        self._members = [_Member(os.environ | environment) for environment in environments]
        self._stopping = False

    def run(self) -> int:
        """Run them until a signal comes; the exit code."""
        before = {number: signal.signal(number, self._pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            return self._watch()
        finally:
            self._tell(signal.SIGKILL)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _watch(self) -> int:
        code = 0
        while True:
            for member in self._members:
                if not self._stopping and member.is_due():
                    member.start(self._command)
            ended = [member.ended(stopping=self._stopping) for member in self._members]
            if not self._stopping and UNUSABLE in ended:
                code = UNUSABLE
                self._stopping = True
                self._tell(signal.SIGTERM)
            if self._stopping and not any(member.runs for member in self._members):
                return code
            time.sleep(LOOK_SECONDS)

    def _pass_on(self, _: int, __: FrameType | None) -> None:
        self._stopping = True
        self._tell(signal.SIGTERM)

    def _tell(self, number: signal.Signals) -> None:
        for member in self._members:
            member.tell(number)


class _Member:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._due, self._started, self._pause = 0.0, 0.0, AGAIN_SECONDS

    @property
    def runs(self) -> bool:
        return self._process is not None

    def is_due(self) -> bool:
        return self._process is None and time.monotonic() >= self._due

    def start(self, command: Sequence[str]) -> None:
        self._started = time.monotonic()
        dies = _die_with_parent if sys.platform == "linux" else None
        self._process = subprocess.Popen(command, env=self._environment, preexec_fn=dies)

    def ended(self, *, stopping: bool) -> int | None:
        """The exit code if it has just ended."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        now = time.monotonic()
        self._pause = AGAIN_SECONDS if now - self._started > SOUND_SECONDS else self._pause
        if not stopping:
            log.warning("a process has ended", pid=self._process.pid, code=code)
        self._process, self._due, self._pause = None, now + self._pause, min(2 * self._pause, MOST_SECONDS)
        return code

    def tell(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)


def serve_processes(count: int, options: Sequence[str], ops_port: int | None) -> NoReturn:
    """Run `perdure serve` so many times on one port, and leave with what came of it.

    Args:
        options: those of the command.
        ops_port: the first one's port for operators; the others get those that follow it. None: they have none.
    """
    command = [sys.executable, "-m", "app", "serve", *options]
    ports = ["off" if ops_port is None else str(ops_port and ops_port + number) for number in range(count)]
    environments = [{"PERDURE_REUSE_PORT": "true", "PERDURE_OPS_PORT": port} for port in ports]
    raise SystemExit(Processes(command, environments).run())


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
