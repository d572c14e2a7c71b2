"""What docs/clients.md shows works as it stands there, against a service that runs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from app import tool
from app.tools.registry import Registry
from tests.support.pages import block, run_shell, shell
from tests.support.service import serving
from tests.support.terminal import at_terminal

PAGE = "docs/clients.md"
HERE = "http://127.0.0.1:8765/mcp"


@pytest.fixture(scope="module")
def service(module_db_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The service that the page talks to, started as it says, and the folder for CSV files."""
    folder = tmp_path_factory.mktemp("service")
    settings = {"DATABASE_URL": module_db_url, "PERDURE_EXAMPLES_CSV_DIR": str(folder)}
    with shell(folder, block(PAGE, "command: service"), **settings) as dev:
        url = dev.says(r"answers on (http://127\.0\.0\.1:\d+/mcp)")
        dev.says("worker started")
        yield url, folder


@pytest.fixture
def url(service: tuple[str, Path]) -> str:
    """Where the service is."""
    return service[0]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("hello.py", r"Please enter your name\.\nHello, Luca!\n"),
        ("later.py", r"Computing: done after 1 seconds\nThe task was cancelled\.\n"),
        ("waiting.py", r"(Computing: \d of 2\.5 seconds\n)+Computing: done after 2\.5 seconds\n"),
        ("fast.py", r"Please enter your name\.\nHello, Luca!\nComputing: done after 1 seconds\n"),
    ],
)
def test_a_recipe_says_what_it_should(script: str, says: str, url: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(block(PAGE, "file: tasks.py"))
    code = block(PAGE, f"run: {script}")
    assert HERE in code
    (tmp_path / script).write_text(code.replace(HERE, url))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(says, done.stdout), done.stdout


def test_the_terminal_asks_shows_and_takes_a_task_up_again(service: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = service
    hello, slow, load, again = block(PAGE, "command: call").splitlines()
    with at_terminal(*shlex.split(hello)[1:], PERDURE_URL=url) as terminal:
        terminal.answers(("Answer?", ""), ("name: ", "Luca"), ("Send it?", ""))
        terminal.expect("Hello, Luca!")
        assert terminal.ends() == 0
    shown = run_shell(tmp_path, f"{slow.replace('seconds=20', 'seconds=0')} --json", PERDURE_URL=url)
    assert "Rendering" in shown
    task_id = json.loads(shown)["taskId"]
    assert "Rendering" in run_shell(tmp_path, again.replace("0199…", task_id), PERDURE_URL=url)
    (folder / "a.csv").write_text("id,name\n1,Luca\n")
    loaded = json.loads(run_shell(tmp_path, load, PERDURE_URL=url))["result"]["structuredContent"]
    assert loaded["rows_loaded"] == 1


def test_the_strict_request_is_answered_with_a_task(url: str, tmp_path: Path) -> None:
    answer = run_shell(tmp_path, block(PAGE, "command: strict").replace(HERE, url))
    assert json.loads(answer)["result"]["resultType"] == "task"


async def test_the_call_that_is_made_again_is_the_same_task(db_url: str) -> None:
    @tool
    async def order(item: str) -> None:
        """Order something."""

    params = json.loads(block(PAGE, "params: again"))
    async with serving(db_url, Registry([order])) as service:
        first, second = [await service.client.rpc("tools/call", deepcopy(params)) for _ in range(2)]
        assert first.result["taskId"] == second.result["taskId"]
        params["arguments"]["item"] = "pen"
        assert (await service.client.rpc("tools/call", params)).error["code"] == -32602
