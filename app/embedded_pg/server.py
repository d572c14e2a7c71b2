"""Start, adopt and stop a server; the processes that share it agree through the locks in its folder."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, Self
from urllib.parse import quote

from app.embedded_pg.account import EmbeddedPostgresError, current_account, first_reachable
from app.embedded_pg.binaries import copy_home, find_home, major_version

THROWAWAY = {
    "autovacuum": "off",
    "checkpoint_timeout": "1h",
    "fsync": "off",
    "full_page_writes": "off",
    "jit": "off",
    "max_wal_senders": "0",
    "max_wal_size": "512MB",
    "synchronous_commit": "off",
    "wal_level": "minimal",
}
"""Settings for data that nobody will miss."""


class EmbeddedPostgres:
    """A server whose data lies in one folder, shared by all processes that open it.

    Args:
        root: the server's own folder; made if absent.
        throwaway: trade the data's safety for speed.
        die_with_parent: on Linux, stop the server when the thread that started it ends, however it ends. For a server
            with one user: whoever adopted it loses it too.
        settings: more server settings, by name.
        timeout: seconds that starting or stopping may take.
    """

    user = "postgres"

    def __init__(
        self,
        root: str | Path,
        *,
        throwaway: bool = False,
        die_with_parent: bool = False,
        settings: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> None:
        self.root = Path(root).absolute()
        self.data = self.root / "data"
        self.throwaway = throwaway
        self.die_with_parent = die_with_parent
        self.settings = {**(THROWAWAY if throwaway else {}), **(settings or {})}
        self.timeout = timeout
        self.pid = 0
        self.port = 0
        self.password = ""
        self._account = current_account()
        self._process: subprocess.Popen[bytes] | None = None
        self._claim: IO[str] | None = None

    def url(self, database: str = "postgres") -> str:
        """The URL of one of the server's databases, password included."""
        return f"postgresql://{self.user}:{quote(self.password)}@127.0.0.1:{self.port}/{quote(database)}"

    def start(self) -> Self:
        """Start the server, or adopt the one that runs.

        Raises:
            EmbeddedPostgresError: no PostgreSQL is installed, the folder cannot be used, or the server does not start.
        """
        try:
            self._make_root()
            with self._starting():
                home, major = self._find_runnable()
                self._make_cluster(home, major)
                self.password = (self.root / "password").read_text().strip()
                if not self._adopt():
                    self._launch(home)
                self._claim = (self.root / "users.lock").open("a")
                fcntl.flock(self._claim, fcntl.LOCK_SH)
        except PermissionError as error:
            raise EmbeddedPostgresError(f"{error.filename} is another user's: choose another data folder") from error
        return self

    def stop(self) -> bool:
        """Give the server up, and stop it if nobody else uses it; True if it was stopped.

        Raises:
            EmbeddedPostgresError: it did not stop in time.
        """
        if self._claim is None:
            return False
        with self._starting(), self._claim as claim:
            self._claim = None
            if not _only_user(claim):
                if self._process is not None:
                    self._process.returncode = 0  # it goes on, and that is no leak to warn of
                return False
            self._shut_down(self.pid)
        return True

    __enter__ = start

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _make_root(self) -> None:
        self._account.check_reach(self.root)
        for folder in reversed([self.root, *self.root.parents]):
            if not folder.exists():
                folder.mkdir(exist_ok=True)
                self._account.let_in(folder)
        if not any(self.root.iterdir()):
            self._account.let_in(self.root)

    def _starting(self) -> IO[str]:
        """Hold the lock under which the server is started and stopped, until the file is closed."""
        lock = (self.root / "start.lock").open("a")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    def _find_runnable(self) -> tuple[Path, int]:
        """The PostgreSQL to run, where the server's account can run it, and its major version."""
        home = find_home()
        if (major := major_version(home, self._account)) is None and self._account.switch:
            home = copy_home(home, self.root / "runtime")
            major = major_version(home, self._account)
        if major is None:
            raise EmbeddedPostgresError(f"{home / 'bin/postgres'} does not run on this machine")
        return home, major

    def _make_cluster(self, home: Path, major: int) -> None:
        version = self.data / "PG_VERSION"
        if not version.exists():
            self._initdb(home, major)
        if (made_by := version.read_text().strip()) != str(major):
            raise EmbeddedPostgresError(
                f"{self.data} was made by PostgreSQL {made_by}, the installed one is {major}: "
                f"dump it with pg_dump {made_by} and restore it into a new folder"
            )

    def _initdb(self, home: Path, major: int) -> None:
        """Make the cluster under another name first: one that is half made is never taken for whole."""
        password, unfinished = self.root / "password", self.root / "data.new"
        for folder in (self.data, unfinished):
            shutil.rmtree(folder, ignore_errors=True)
        password.unlink(missing_ok=True)
        password.touch(mode=0o600)
        password.write_text(secrets.token_urlsafe(24) + "\n")
        unfinished.mkdir(mode=0o700)
        self._account.give(password)
        self._account.give(unfinished)
        options = ["-U", self.user, "-A", "scram-sha-256", f"--pwfile={password}", "-E", "UTF8", "--locale=C"]
        if major >= 17:  # the same order and case rules on every machine
            options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if self.throwaway:
            options += ["--no-sync"]
        if self.throwaway and major >= 16:  # a connection costs 2.5 ms instead of 8
            options += ["--set=scram_iterations=1"]
        done = self._account.run([home / "bin/initdb", "-D", unfinished, *options])
        if done.returncode:
            raise EmbeddedPostgresError(f"initdb failed ({done.returncode}):\n{done.stdout}{done.stderr}")
        unfinished.rename(self.data)

    def _adopt(self) -> bool:
        end = time.monotonic() + self.timeout
        while (found := self._postmaster()) is not None:
            if not self._runs(found.pid):
                (self.data / "postmaster.pid").unlink(missing_ok=True)  # a crash, a pid used again, a new container
                return False
            if found.ready:
                self.pid, self.port = found.pid, found.port
                return True
            if time.monotonic() > end:
                raise EmbeddedPostgresError(f"the server {found.pid} on {self.data} does not become ready")
            time.sleep(0.02)
        return False

    def _launch(self, home: Path) -> None:
        for _ in range(5):
            with (self.root / "log").open("ab") as log:
                said = log.tell()
                self._process = self._spawn(home, _free_port(), log)
            if self._wait_ready(self._process):
                return
            with (self.root / "log").open("rb") as log:
                log.seek(said)
                reason = log.read()[-4000:].decode(errors="replace")
            if "could not bind" not in reason:
                raise EmbeddedPostgresError(f"PostgreSQL did not start (exit {self._process.returncode}):\n{reason}")
        raise EmbeddedPostgresError("no free port was found in 5 tries")

    def _spawn(self, home: Path, port: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
        network = {"listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": ""}
        settings = [f"--{name}={value}" for name, value in {**network, **self.settings}.items()]
        return subprocess.Popen(
            [home / "bin/postgres", "-D", self.data, *settings],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is ours to handle
            preexec_fn=_die_with_parent if self.die_with_parent and sys.platform == "linux" else None,
            **self._account.popen,
        )

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> bool:
        end = time.monotonic() + self.timeout
        while process.poll() is None:
            found = self._postmaster()
            if found is not None and found.pid == process.pid and found.ready:
                self.pid, self.port = found.pid, found.port
                return True
            if time.monotonic() > end:
                process.kill()
                process.wait()
            time.sleep(0.01)
        return False

    def _postmaster(self) -> _Postmaster | None:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        if len(lines) < 8:
            return _Postmaster(int(lines[0]) if lines else 0, 0, ready=False)
        return _Postmaster(int(lines[0]), int(lines[3]), ready=lines[7].strip() == "ready")

    def _runs(self, pid: int) -> bool:
        """Whether this process is our server, not a dead one or another that got its number."""
        if self._process is not None and self._process.pid == pid:
            return self._process.poll() is None
        process = Path("/proc", str(pid))
        if not Path("/proc/self").exists():
            return _exists(pid)
        try:
            return (process / "cwd").samefile(self.data)
        except PermissionError:  # root in a container, without the right to look into others
            return process.stat().st_uid == self._account.uid and _is_live_postgres(process)
        except OSError:
            return False

    def _shut_down(self, pid: int) -> None:
        end = time.monotonic() + self.timeout
        if self._runs(pid):
            os.kill(pid, signal.SIGINT)  # a fast shutdown: clients are cut off
        while self._runs(pid):
            if time.monotonic() > end:
                raise EmbeddedPostgresError(f"the server {pid} did not stop in {self.timeout:g} seconds")
            time.sleep(0.01)


@contextmanager
def throwaway_postgres(base: Path | None = None) -> Iterator[EmbeddedPostgres]:
    """A server with a new folder below `base`, deleted with all its data at the end. Its parent's death stops it."""
    base = base or first_reachable(Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/dev/shm"))  # noqa: S108
    root = Path(tempfile.mkdtemp(prefix="perdure-postgres-", dir=base))
    try:
        with EmbeddedPostgres(root, throwaway=True, die_with_parent=True) as server:
            yield server
    finally:
        shutil.rmtree(root, ignore_errors=True)


def remove_abandoned(folders: Path) -> None:
    """Stop throw-away servers below this folder whose users were all killed, and delete them."""
    for root in folders.iterdir():
        try:
            with (root / "start.lock").open("r+") as starting, (root / "users.lock").open("r+") as users:
                if not (_only_user(starting) and _only_user(users)):
                    continue
                server = EmbeddedPostgres(root, timeout=10)
                if (found := server._postmaster()) is not None:
                    server._shut_down(found.pid)
                shutil.rmtree(root, ignore_errors=True)
        except (OSError, EmbeddedPostgresError):  # half made, gone already, or another user's
            continue


class _Postmaster(NamedTuple):
    pid: int
    port: int
    ready: bool


def _only_user(file: IO[str]) -> bool:
    """Whether nobody else holds a lock on the file; it is locked for us then."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_live_postgres(process: Path) -> bool:
    stat = re.fullmatch(r"\d+ \((.*)\) (\w) .*", (process / "stat").read_text(), re.DOTALL)
    return stat is not None and stat[1] == "postgres" and stat[2] != "Z"  # a zombie has ended


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGINT)
