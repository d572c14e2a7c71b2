"""`perdure healthcheck`, against a process that says what the test wants."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import cli, healthcheck
from tests.support.command import run_perdure


@contextmanager
def answering(status: int, body: bytes = b"{}") -> Iterator[tuple[int, list[str]]]:
    """A server that answers everything like this; its port, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, asked
        server.shutdown()
        thread.join()


def test_a_process_that_is_ready_is_exit_code_0(tmp_path: Path) -> None:
    with answering(200) as (port, asked):
        assert run_perdure(tmp_path / "run", "healthcheck", PERDURE_OPS_PORT=str(port)) == (0, "", "")
        assert CliRunner().invoke(cli, ["healthcheck", "--port", str(port), "--host", "0.0.0.0"]).exit_code == 0  # noqa: S104
    assert asked == ["/readyz"] * 2


def test_a_process_that_is_not_ready_is_exit_code_1_with_what_it_says() -> None:
    with answering(503, b'{"ready":false,"\x1b[31m') as (port, _):
        ran = CliRunner().invoke(cli, ["healthcheck", "--port", str(port)])
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == 'Not ready: {"ready":false,"\\x1b[31m\n'


def test_a_process_that_is_not_there_or_says_nothing_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(healthcheck, "SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        ran = CliRunner().invoke(cli, ["healthcheck", "--port", str(port)])
        assert (ran.exit_code, ran.stderr) == (1, f"Nothing answers on port {port}.\n")
    assert CliRunner().invoke(cli, ["healthcheck", "--port", str(port)]).exit_code == 1


def test_it_loads_nothing_of_what_a_service_is_made_of() -> None:
    """A container runs it every few seconds, and gives it little time."""
    code = "import sys; sys.argv = ['perdure', 'healthcheck', '--port', '1']\nfrom app.cli import main\ntry: main()\n"
    code += "except SystemExit as left: print(left.code, *sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    exit_code, *loaded = ran.stdout.split()
    assert exit_code == "1"
    assert not {"sqlalchemy", "aiohttp", "asyncpg", "mcp_types", "structlog", "app.settings"} & set(loaded)
