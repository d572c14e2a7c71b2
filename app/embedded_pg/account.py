"""Whom the server runs as, and what that account can reach."""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import PerdureError


class EmbeddedPostgresError(PerdureError):
    """The embedded server cannot be started or stopped; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Account:
    """Whom the server runs as; `switch` where that is not ourselves. Permissions are read from the mode bits alone."""

    uid: int
    gid: int
    switch: bool = False

    @property
    def popen(self) -> dict[str, Any]:
        """What starts a process as this account, free of PG* variables, locales and folders that it may not read."""
        identity = {"user": self.uid, "group": self.gid, "extra_groups": []} if self.switch else {}
        return {**identity, "cwd": "/", "env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", "HOME": "/"}}

    def run(self, command: list[str | Path]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, check=False, text=True, capture_output=True, stdin=subprocess.DEVNULL, **self.popen
        )

    def give(self, path: Path) -> None:
        if self.switch:
            os.chown(path, self.uid, self.gid)

    def let_in(self, folder: Path) -> None:
        if self.switch:
            folder.chmod(folder.stat().st_mode | 0o711)

    def barrier(self, folder: Path) -> Path | None:
        """The first parent that this account may not enter; the folder itself is ours to open."""
        if not self.switch:
            return None
        return next((parent for parent in folder.parents if parent.exists() and not self._may_enter(parent)), None)

    def check_reach(self, folder: Path) -> None:
        if (parent := self.barrier(folder)) is not None:
            name = pwd.getpwuid(self.uid).pw_name
            raise EmbeddedPostgresError(
                f"as root, the server runs as {name}, who may not enter {parent}: choose a data folder outside of it"
            )

    def _may_enter(self, folder: Path) -> bool:
        stat = folder.stat()
        bit = 0o100 if stat.st_uid == self.uid else 0o010 if stat.st_gid == self.gid else 0o001
        return bool(stat.st_mode & bit)


def current_account() -> Account:
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    name = os.environ.get("PERDURE_POSTGRES_USER", "nobody")
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise EmbeddedPostgresError(f"there is no user {name!r} to run PostgreSQL: set PERDURE_POSTGRES_USER") from None
    return Account(entry.pw_uid, entry.pw_gid, switch=True)


def first_reachable(*folders: Path) -> Path:
    """The first folder, present or not, that the server could work in; without one the first, whose start tells why."""
    account = current_account()
    return next((folder for folder in folders if account.barrier(folder.absolute()) is None), folders[0])
