"""What the pages have pip install, installed: each line as it stands, in one new virtual environment."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.support.command import STATE_KEY, Command
from tests.support.docker import copy_checkout
from tests.support.pages import block, span
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(300)

TOOLS = '''
from app import tool

@tool
async def traced() -> str:
    """Work."""
    return "done"
'''


@dataclass(frozen=True)
class Newcomer:
    """Somebody with a clean checkout and the virtual environment in it.

    Attributes:
        demo: what the first command of the README printed.
    """

    folder: Path
    demo: str = ""

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """This machine's, without what concerns us; the programs of the virtual environment come first."""
        ours = ("PERDURE_", "DATABASE_URL", "PYTHON", "PYTEST", "COVERAGE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        folders = [str(self.folder / ".venv/bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        return kept | {"PATH": os.pathsep.join(folders)} | dict(given)

    def run(self, script: str, **environment: str) -> str:
        """Run a script to its end, which must be a good one; what it printed."""
        done = subprocess.run(
            ["bash", "-euc", script],  # noqa: S607
            cwd=self.folder,
            env=self.environment(environment),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def start(self, name: str, command: str, **environment: str) -> Iterator[Command]:
        """Start a command that does not end by itself; at the end it is killed if it still runs."""
        folder = self.folder / name
        folder.mkdir()
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                ["bash", "-euc", f"exec {command}"],  # noqa: S607
                cwd=self.folder,
                env=self.environment(environment),
                stdout=out,
                stderr=err,
            )
        try:
            yield Command(process, folder)
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    """Somebody who has run the first command of the README in a clean checkout."""
    folder = copy_checkout(tmp_path_factory.mktemp("checkout"))
    return Newcomer(folder, Newcomer(folder).run(block("README.md", "command: demo")))


def test_the_first_command_of_the_readme_installs_perdure_and_shows_a_task_survive(newcomer: Newcomer) -> None:
    for line in ("Please enter your name.", "Hello, Luca!", "SIGKILL", "299994", "perdure.task_overview", "lost"):
        assert line in newcomer.demo
    assert newcomer.demo.rstrip().endswith("see README.md.")


def test_the_first_tool_is_tested_by_what_the_readme_installs(newcomer: Newcomer) -> None:
    for name in ("shop.py", "test_shop.py"):
        (newcomer.folder / name).write_text(block("README.md", f"tool: {name}"))
    newcomer.run(span("README.md", "pip install pytest"))
    assert "1 passed" in newcomer.run(span("README.md", "pytest "))


def test_the_extra_for_benchmarks_brings_what_they_compare_with(newcomer: Newcomer) -> None:
    newcomer.run(span("docs/benchmarks.md", "pip install"))
    assert newcomer.run("python -c 'import app, pgqueuer; print(app.__file__)'").startswith(str(newcomer.folder))


async def test_spans_of_the_api_and_of_the_worker_arrive_where_opentelemetry_is_told_to_send_them(
    newcomer: Newcomer, db_url: str, tmp_path: Path
) -> None:
    (newcomer.folder / "your").mkdir(exist_ok=True)
    (newcomer.folder / "your/module.py").write_text(TOOLS)
    await asyncio.to_thread(newcomer.run, span("docs/deploy.md", "pip install opentelemetry"))
    with collecting() as (endpoint, received):
        settings = {
            "DATABASE_URL": db_url,
            "PERDURE_REQUEST_STATE_KEY": STATE_KEY,
            "PERDURE_PORT": "0",
            "PERDURE_OPS_PORT": "0",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        }
        serve, work = (
            span("docs/deploy.md", f"opentelemetry-instrument perdure {role}") for role in ("serve", "worker")
        )
        with newcomer.start("serve", serve, **settings) as api, newcomer.start("worker", work, **settings) as worker:
            url = await asyncio.to_thread(api.says, r'"url": "(http://[^"]+/mcp)"')
            await asyncio.to_thread(worker.says, "worker started")
            assert "done" in await asyncio.to_thread(newcomer.run, f"perdure call traced --url {url}")

            async def told() -> bool:
                spans = b"".join(received)
                return b"tools/call traced" in spans and b"execute_tool traced" in spans

            await eventually(told)
            assert [await asyncio.to_thread(each.stop, signal.SIGTERM) for each in (api, worker)] == [0, 0]


@contextmanager
def collecting() -> Iterator[tuple[str, list[bytes]]]:
    """A collector that takes spans over HTTP; where it is, and what it has been sent."""
    received: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf"):
                received.append(body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", received
        finally:
            server.shutdown()
