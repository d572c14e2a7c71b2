"""What docs/clients.md shows works as it stands there, against a service that runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dev import running_dev

PAGE = Path(__file__).parents[1] / "docs/clients.md"
HERE = "http://127.0.0.1:8765/mcp"


@pytest.fixture(scope="module")
def url(module_db_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The service that the page talks to."""
    tools = re.search(r"perdure dev --tools (\S+)", block("command: service"))
    assert tools is not None
    with running_dev(tmp_path_factory.mktemp("dev"), module_db_url, tools[1]) as url:
        yield url


def block(mark: str) -> str:
    """The code behind a marker."""
    found = re.search(rf"<!-- {re.escape(mark)} -->\n```\w+\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None, mark
    return found[1]


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
    (tmp_path / "tasks.py").write_text(block("file: tasks.py"))
    code = block(f"run: {script}")
    assert HERE in code
    (tmp_path / script).write_text(code.replace(HERE, url))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(says, done.stdout), done.stdout


def test_the_strict_request_is_answered_with_a_task(url: str) -> None:
    command = block("command: strict").replace(HERE, url)
    done = subprocess.run(
        ["bash", "-eu", "-c", command],  # noqa: S607
        capture_output=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert json.loads(done.stdout)["result"]["resultType"] == "task"
