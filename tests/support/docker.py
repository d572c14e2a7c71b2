"""Docker's client, and the engine behind it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.command import Command
from tests.support.pages import ROOT, shell


@dataclass(frozen=True)
class Docker:
    """The client that is on the PATH.

    Attributes:
        environment: where it finds the engine, and its plugins.
    """

    environment: Mapping[str, str]

    @classmethod
    def find(cls) -> Docker:
        """The client of this machine.

        Raises:
            OSError: there is none.
            CalledProcessError: it has no Compose, or no engine answers it.
        """
        found = cls({name: value for name, value in os.environ.items() if name.startswith(("DOCKER_", "HOME"))})
        found.run("compose", "version")
        found.run("version")
        return found

    def run(self, *words: str, folder: Path | None = None, **environment: str) -> str:
        """Run a command of the client to its end, which must be a good one; what it printed."""
        own = {"PATH": os.environ["PATH"], **self.environment, **environment}
        done = subprocess.run(["docker", *words], cwd=folder, env=own, capture_output=True, text=True, check=False)  # noqa: S607
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, words, done.stdout, done.stderr)
        return done.stdout

    def inspect(self, name: str) -> dict[str, Any]:
        """All that the engine knows of an image or a container."""
        [found] = json.loads(self.run("inspect", name))
        return dict(found)

    @contextmanager
    def running(self, folder: Path, *words: str) -> Iterator[Command]:
        """`docker run WORDS` in the foreground, so that signals reach the container; it is removed at the end."""
        name = f"perdure-test-{uuid.uuid4().hex[:8]}"
        folder.mkdir(exist_ok=True)
        try:
            with shell(folder, f"docker run --name {name} {' '.join(words)}", **self.environment) as command:
                yield command
        finally:
            self.run("rm", "--force", "--volumes", name)


def copy_checkout(folder: Path) -> Path:
    """Copy what git knows of this checkout, as it is now, to a new folder."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    for path in filter(None, listed.stdout.split("\0")):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, folder / path)
    return folder


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Wait until no other process is in here with the same file."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
