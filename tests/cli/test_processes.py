"""`perdure serve --processes N`: several processes on one port, watched over."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp

from tests.support.command import Command, perdure, run_perdure
from tests.support.rpc import TASKS, Client
from tests.support.waiting import eventually


@contextmanager
def serving(folder: Path, db_url: str, count: int) -> Iterator[tuple[Command, str]]:
    """So many processes on a port that is free, and their URL."""
    assert run_perdure(folder / "migrate", "migrate", DATABASE_URL=db_url)[0] == 0
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ("--port", str(port), "--processes", str(count))
    with perdure(folder / "serve", "serve", *options, DATABASE_URL=db_url, PERDURE_LOG_FORMAT="console") as command:
        yield command, f"http://127.0.0.1:{port}/mcp"
        if command.process.poll() is None:
            command.stop()


def children(command: Command) -> set[int]:
    """The processes that it has started and that have not ended."""
    task = Path(f"/proc/{command.process.pid}/task/{command.process.pid}/children")
    return {int(pid) for pid in task.read_text().split() if _lives(int(pid))}


def _lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return re.sub(r".*\) ", "", stat)[0] != "Z"


async def _all_serve(command: Command, count: int) -> None:
    async def served() -> bool:
        return len(re.findall(r"serving ", command.err)) >= count

    await eventually(served, seconds=60)


async def test_several_processes_answer_on_one_port_are_kept_alive_and_leave_together(
    tmp_path: Path, db_url: str
) -> None:
    with serving(tmp_path, db_url, 2) as (command, url):
        await _all_serve(command, 2)
        before = children(command)
        assert len(before) == 2
        os.kill(min(before), signal.SIGKILL)
        await _all_serve(command, 3)
        started = children(command)
        assert len(started) == 2
        assert started != before
        for _ in range(8):
            async with aiohttp.ClientSession() as session:
                assert (await Client(session, url, capabilities=TASKS).rpc("tools/list")).status == 200
        assert command.stop() == 0
        assert not any(_lives(pid) for pid in started)


async def test_none_outlives_the_one_that_watches_them(tmp_path: Path, db_url: str) -> None:
    with serving(tmp_path, db_url, 2) as (command, _):
        await _all_serve(command, 2)
        started = children(command)
        command.stop(signal.SIGKILL)

        async def gone() -> bool:
            return not any(_lives(pid) for pid in started)

        await eventually(gone, seconds=30)


def test_what_cannot_start_is_told_once_and_not_tried_again(tmp_path: Path, empty_url: str) -> None:
    """The schema is not there."""
    options = ("--port", "8799", "--processes", "2")
    code, _, err = run_perdure(tmp_path / "run", "serve", *options, DATABASE_URL=empty_url)
    assert code == 2
    assert "perdure migrate" in err


def test_a_free_port_cannot_be_shared(tmp_path: Path, db_url: str) -> None:
    code, _, err = run_perdure(tmp_path / "run", "serve", "--port", "0", "--processes", "2", DATABASE_URL=db_url)
    assert code == 2
    assert "--port" in err
