"""The project's pages: their blocks of code, the commands in their sentences, and a shell that runs both unchanged."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from app.embedded_pg import find_home
from tests.support.command import STATE_KEY, Command

ROOT = Path(__file__).parents[2]
PAGES = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))
PROGRAMS = {"perdure": "-W error -m app", "python": "", "alembic": "-m alembic", "pytest": "-m pytest"}
"""What a virtual environment would bring, as options of this Python."""

_FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]+) -->\n)?^ *```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^ *```$", re.M | re.S
)
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        name: what the comment before it says; where there is none, its first line.
    """

    page: str
    name: str
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = _FENCE.finditer((ROOT / page).read_text())
    return [
        Block(page, each["mark"] or each["text"].partition("\n")[0].strip(), each["language"], each["text"])
        for each in found
    ]


def block(page: str, name: str) -> str:
    """The text of the one block of this name."""
    found = [each.text for each in blocks(page) if each.name == name]
    assert len(found) == 1, f"{page} has {len(found)} blocks that are called {name!r}"
    return found[0]


def spans(page: str) -> list[str]:
    """The pieces of code in a page's sentences, each once, in order, on one line each."""
    sentences = _FENCE.sub("", (ROOT / page).read_text())
    return list(dict.fromkeys(" ".join(span.split()) for span in _SPAN.findall(sentences)))


def span(page: str, start: str) -> str:
    """The one piece of code in a page's sentences that begins so."""
    found = [each for each in spans(page) if each.startswith(start)]
    assert len(found) == 1, f"{page} has {found} for {start!r}"
    return found[0]


def run_shell(folder: Path, script: str, **environment: str) -> str:
    """Run a script to its end, which must be a good one; what it printed.

    Args:
        folder: where it runs, with the programs of `PROGRAMS` in `.venv/bin`.
        environment: settings beside those of `_environment`.
    """
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],  # noqa: S607
        cwd=folder,
        env=_environment(folder) | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def shell(folder: Path, script: str, **environment: str) -> Iterator[Command]:
    """Start a script that does not end by itself, as `run_shell` does; its last line takes the shell's place, so that
    signals reach that. At the end all that it has started is killed."""
    *before, last = script.strip().splitlines()
    command = ["bash", "-eu", "-c", "\n".join([*before, f"exec {last}"])]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            command, cwd=folder, env=_environment(folder) | environment, stdout=out, stderr=err, start_new_session=True
        )
    try:
        yield Command(process, folder)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(folder: Path) -> dict[str, str]:
    """Nothing of ours but free ports, a key for `serve`, and programs; PostgreSQL's are those of the tests' server."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    for name, options in PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {options} "$@"\n')
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PERDURE_POSTGRES_", "HOME"))}
    return kept | {
        "PATH": os.pathsep.join([str(programs), str(find_home() / "bin"), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "PERDURE_PORT": "0",
        "PERDURE_OPS_PORT": "0",
        "PERDURE_REQUEST_STATE_KEY": STATE_KEY,
    }
