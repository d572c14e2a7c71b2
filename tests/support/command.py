"""`perdure` as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

WAIT_SECONDS = 60.0
STATE_KEY = "a key of the tests that is worth nothing at all"


@dataclass(frozen=True)
class Command:
    """A process that has been started, and what it has said so far."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def out(self) -> str:
        """What it printed."""
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        """What it logged, and how it failed."""
        return (self.folder / "err").read_text()

    def says(self, pattern: str) -> str:
        """Wait until the process has printed or logged this; its first group, or all of it."""
        end = time.monotonic() + WAIT_SECONDS
        while not (found := re.search(pattern, self.out + self.err)):
            assert self.process.poll() is None, f"it has ended: {self.err}"
            assert time.monotonic() < end, f"it does not say {pattern}: {self.out}{self.err}"
            time.sleep(0.01)
        return found[found.re.groups and 1]

    def ends(self) -> int:
        """Wait until it has ended; its exit code."""
        return self.process.wait(WAIT_SECONDS)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait until it has ended; its exit code."""
        self.process.send_signal(number)
        return self.ends()


@contextmanager
def perdure(folder: Path, *arguments: str | Path, **environment: str) -> Iterator[Command]:
    """Start `python -m app ARGUMENTS` with no settings but these, and a key that `serve` needs; at the end it is
    killed if it still runs.

    Args:
        folder: new, or an earlier command's; output goes there.
    """
    folder.mkdir(exist_ok=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "DATABASE_URL"))}
    clean["PERDURE_REQUEST_STATE_KEY"] = STATE_KEY
    clean["PERDURE_OPS_PORT"] = "off"
    kept = {name: value for name, value in os.environ.items() if name.startswith("PERDURE_POSTGRES_")}
    command = [sys.executable, "-W", "error", "-m", "app", *map(str, arguments)]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=clean | kept | environment)
    try:
        yield Command(process, folder)
    finally:
        process.kill()
        process.wait()


def run_perdure(folder: Path, *arguments: str | Path, **environment: str) -> tuple[int, str, str]:
    """Run a command to its end; exit code, output, errors."""
    with perdure(folder, *arguments, **environment) as command:
        return command.ends(), command.out, command.err
