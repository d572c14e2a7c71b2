"""A command at a terminal: what it shows is read, and answered, as a user would."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

WAIT_SECONDS = 60.0
_ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*([@-~]|$)|[@-Z\\-_]|$)")


@dataclass
class Terminal:
    """A process whose input and errors, and output unless that is caught, are one terminal.

    Attributes:
        shown: all that it has shown, without what moves the cursor.
    """

    process: subprocess.Popen[bytes]
    end: int
    shown: str = ""
    _raw: bytes = b""
    _read: int = 0

    def expect(self, text: str) -> str:
        """Wait until the process shows this, after what was expected before; returns what came until then."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (found := self.shown.find(text, self._read)) < 0:
            assert time.monotonic() < deadline, f"it does not show {text!r}: {self.shown}"
            assert self._more(0.1) or self.process.poll() is None, f"it ended without {text!r}: {self.shown}"
        before, self._read = self.shown[self._read : found], found + len(text)
        return before

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self.end, f"{line}\n".encode())

    def answers(self, *lines: tuple[str, str]) -> None:
        """Wait for each prompt, or the end of it, and type the line that belongs to it."""
        for prompt, line in lines:
            self.expect(prompt)
            self.type(line)

    def rests(self) -> None:
        """Wait until the process sleeps, as one that has shown its prompt does once it reads. A signal that comes
        between the two is seen by Python only after the reading."""
        deadline = time.monotonic() + WAIT_SECONDS
        state = Path(f"/proc/{self.process.pid}/stat")
        while state.read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < deadline, f"it does not rest: {self.shown}"
            time.sleep(0.01)

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def ends(self) -> int:
        """Wait until the process has ended, reading on; its exit code."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end: {self.shown}"
            self._more(0.05)
        while self._more(0):
            pass
        return self.process.returncode

    def _more(self, seconds: float) -> bool:
        """Read what has come; False where nothing has within this time."""
        if not select.select([self.end], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.end, 65536)
        except OSError:  # the other end is closed
            return False
        self._raw += data
        self.shown = _ESCAPE.sub("", self._raw.decode(errors="replace").replace("\r", ""))
        return bool(data)


def _hear_interrupts() -> None:
    """A shell starts what runs in its background with interrupts ignored, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def at_terminal(*arguments: str | Path, out: Path | None = None, **environment: str) -> Iterator[Terminal]:
    """Start `python -m app ARGUMENTS` at a terminal; at the end it is killed if it still runs.

    Args:
        out: the file that its output goes to instead.
    """
    ours, theirs = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    command = [sys.executable, "-W", "error", "-m", "app", *map(str, arguments)]
    with open(out or os.devnull, "wb") as file:
        process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=file if out else theirs,
            stderr=theirs,
            env=clean | {"TERM": "xterm", "COLUMNS": "200"} | environment,
            preexec_fn=_hear_interrupts,
        )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
