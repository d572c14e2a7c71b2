"""The protocol's official conformance suite: an npm package, which plays a client and records what it checked."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

PACKAGE = Path(__file__).with_name("package.json")
INSTALL_SECONDS = 300
SCENARIO_SECONDS = 60


class Case(NamedTuple):
    """A scenario as it is to be run.

    Attributes:
        revision: what the suite is to speak; None for what it chooses, which is 2025-11-25 if it can be.
    """

    scenario: str
    revision: str | None = None


@dataclass(frozen=True)
class Run:
    """What a run of a scenario came to.

    Attributes:
        checks: as the suite has recorded them, none if it never got that far.
        output: all that it printed.
    """

    code: int
    checks: list[dict[str, Any]]
    output: str

    @property
    def shortfalls(self) -> set[tuple[str, str]]:
        """Each check that is no success: its id and its status."""
        return {(check["id"], check["status"]) for check in self._short}

    @property
    def report(self) -> str:
        """What a person has to know of those checks; all of the output where nothing was checked."""
        if not self.checks:
            return f"nothing was checked, exit status {self.code}\n{self.output}"
        return "\n".join(
            f"{check['status']} {check['id']}: {check['description']}\n"
            f"    {check.get('errorMessage')}\n    {json.dumps(check.get('details'))[:2000]}"
            for check in self._short
        )

    @property
    def _short(self) -> list[dict[str, Any]]:
        return [check for check in self.checks if check["status"] != "SUCCESS"]


@dataclass(frozen=True)
class Suite:
    """The suite, installed in a folder."""

    folder: Path

    @classmethod
    def install(cls, npm: str, folder: Path) -> Self:
        """Install it, unless another process or an earlier run has.

        Raises:
            RuntimeError: with what npm said.
        """
        done, wanted = folder / "installed.json", PACKAGE.read_text()
        with _locked(folder / "lock"):
            if not done.exists() or done.read_text() != wanted:
                done.unlink(missing_ok=True)
                shutil.rmtree(folder / "node_modules", ignore_errors=True)
                shutil.copy(PACKAGE, folder)
                command = (npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts=false")
                code, output = _run(folder, INSTALL_SECONDS, *command)
                if code != 0:
                    raise RuntimeError(f"npm cannot install the conformance suite, exit status {code}\n{output}")
                done.write_text(wanted)
        return cls(folder)

    def scenarios(self) -> set[str]:
        """The scenarios for servers that it knows."""
        code, output = self._conformance("list", "--server")
        assert code == 0, output
        return set(re.findall(r"^ +- (\S+)", output, re.MULTILINE))

    def run(self, case: Case, url: str, folder: Path) -> Run:
        """Run a scenario on the server at this URL; the suite writes into a folder that is empty before."""
        revision = ("--spec-version", case.revision) if case.revision else ()
        milliseconds = str(SCENARIO_SECONDS * 1000)
        code, output = self._conformance(
            "server", "--url", url, "--timeout", milliseconds, "--scenario", case.scenario, *revision, "-o", str(folder)
        )
        checks = [check for file in folder.glob("*/checks.json") for check in json.loads(file.read_text())]
        return Run(code, checks, output)

    def _conformance(self, *arguments: str) -> tuple[int, str]:
        suite = self.folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
        node = self.folder / "node_modules" / "node" / "bin" / "node"
        return _run(self.folder, SCENARIO_SECONDS + 30, node, suite, *arguments)


def _run(folder: Path, seconds: int, *command: str | Path) -> tuple[int, str]:
    ended = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False
    )
    return ended.returncode, ended.stdout


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that other processes wait for."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
