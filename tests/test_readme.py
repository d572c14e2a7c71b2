"""What the README says is so: its settings, its first tool and its test, and the session with curl."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from app.settings import Settings, variable
from app.testing import harness
from app.tools.registry import Registry
from tests.cli.operating import make_each, run
from tests.support.dev import running_dev
from tests.support.terminal import at_terminal

README = Path(__file__).parents[1] / "README.md"


def block(mark: str) -> str:
    """The code behind a marker."""
    found = re.search(rf"<!-- {re.escape(mark)} -->\n```\w+\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None, mark
    return found[1]


def settings_table() -> str:
    """The table of settings, as it should stand there."""
    lines = ["| variable | by default | what it is |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = field.get_default()
        shown = ", ".join(default) if isinstance(default, tuple) else "" if default is None else str(default).lower()
        shown = "24h" if name == "retention" else shown
        lines.append(f"| `{variable(name)}` | {f'`{shown}`' if shown else ''} | {field.description} |")
    return "\n".join(lines)


def test_every_default_in_the_readme_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = re.findall(r"^\| `(PERDURE_\w+)` \| `([^`]+)` \|", README.read_text(), re.MULTILINE)
    assert len(shown) > 10
    for name, value in shown:
        monkeypatch.setenv(name, value)
    given, default = Settings.read().model_dump(), Settings().model_dump()
    assert given == default


def test_every_setting_is_in_the_readme() -> None:
    text = README.read_text()
    there = text.split("<!-- settings -->\n")[1].split("\n<!-- end of settings -->")[0]
    assert there == settings_table(), "python -m tests.test_readme writes the table anew"


@pytest.mark.timeout(180)
def test_the_first_tool_and_its_test_work(tmp_path: Path, db_url: str) -> None:
    (tmp_path / "shop.py").write_text(block("tool: shop.py"))
    tested = block("tool: test_shop.py").replace("harness()", f"harness({db_url!r})")
    asked_again = tested.replace("a_crash_charges_once", "a_misfit_is_asked_again")
    asked_again = asked_again.replace('{"sure": {', '{"sure": {"no": 1}, "sure#2": {').replace("(3, 1)", "(4, 1)")
    (tmp_path / "test_shop.py").write_text(tested + asked_again)
    command = [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "."]
    found = os.environ | {"PYTHONPATH": str(README.parent)}
    done = subprocess.run(command, cwd=tmp_path, env=found, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


async def test_the_tool_that_asks_before_it_is_a_task_works(
    tmp_path: Path, db_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "archive.py").write_text(block("tool: archive.py"))
    [archive] = Registry.load([str(tmp_path / "archive.py")])
    async with harness(db_url) as perdure:
        run = await perdure.run(archive, answers={"target": {"folder": "old"}}, files=["a", "b"])
    assert (run.text, run.detached) == ("2 files are in old", True)


@pytest.fixture(scope="module")
def shop_url(module_db_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with the first tool."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(block("tool: shop.py"))
    with running_dev(folder / "dev", module_db_url, folder / "shop.py") as url:
        yield url


@pytest.mark.timeout(180)
def test_the_first_tool_asks_in_the_terminal_that_calls_it(shop_url: str) -> None:
    command = block("command: call").split()[1:]
    with at_terminal(*command, PERDURE_URL=shop_url) as terminal:
        terminal.answers(("Order book?", ""), ("yes (yes or no): ", "y"), ("Send it?", ""))
        terminal.expect("receipt for book")
        assert terminal.ends() == 0


@pytest.mark.timeout(180)
def test_the_session_with_curl_ends_with_a_receipt(tmp_path: Path, shop_url: str) -> None:
    script = block("command: curl").replace("http://127.0.0.1:8765/mcp", shop_url)
    done = subprocess.run(
        ["bash", "-eu", "-c", script],  # noqa: S607
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    handle, asked, acknowledged, ended = done.stdout.strip().splitlines()
    assert '"resultType":"task"' in handle
    assert '"status":"input_required"' in asked
    assert "Order book?" in asked
    assert '"resultType":"complete"' in acknowledged
    assert '"status":"completed"' in ended
    assert "receipt for book" in ended
    listening = block("command: listen").replace("http://127.0.0.1:8765/mcp", shop_url).replace("curl ", "curl -m 3 ")
    task_id = re.search(r'"taskId":"([^"]+)"', handle)
    assert task_id is not None
    heard = subprocess.run(
        ["bash", "-c", listening],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "ID": task_id[1]},
    ).stdout
    acknowledged, completed = re.findall("^data: (.*)$", heard, re.MULTILINE)
    assert task_id[1] in acknowledged
    assert '"status":"completed"' in completed
    assert "receipt for book" in completed


def operating() -> list[list[str]]:
    """The commands for operators, as a shell splits them."""
    (section,) = re.findall(r"^## Operate\n(.*?)^## ", README.read_text(), re.DOTALL | re.MULTILINE)
    return [shlex.split(command) for command in re.findall(r"`perdure ([^`]+)`", section)]


def test_each_command_for_operators_does_what_it_says(db_url: str) -> None:
    tasks = make_each(db_url, owner="somebody")
    commands = operating()
    assert len(commands) >= 9
    for words in commands:
        given = [str(tasks["failed"]) if word == "ID" else word for word in words]
        assert run(db_url, *given).code in (0, 1), words  # `check` fails: there is no worker
        assert run(db_url, *given, "--nonsense").code == 2
    (cancel,) = [words for words in commands if words[:3] == ["tasks", "cancel", "--tool"]]
    assert run(db_url, *cancel, "--yes").code in (0, 1)


def test_the_queries_of_the_readme_run(db_url: str) -> None:
    (queries,) = re.findall(r"```sql\n(SELECT.*?)```", README.read_text(), re.DOTALL)
    with psycopg.connect(db_url) as connection:
        for query in queries.replace("…", "01920000-0000-7000-8000-000000000000").splitlines():
            connection.execute(query.encode())


def test_every_kind_of_client_in_the_table_has_a_test() -> None:
    table = README.read_text().split("<!-- clients -->\n")[1].split("<!-- end of clients -->")[0]
    rows = table.splitlines()[2:]
    assert len(rows) > 10
    for row in rows:
        shown = re.findall(r"\[`(test_\w+)`\]\((tests/[\w/]+\.py)\)", row)
        assert shown, row
        for name, file in shown:
            assert re.search(rf"^(async )?def {name}\(", (README.parent / file).read_text(), re.MULTILINE), (name, file)


if __name__ == "__main__":
    start, end = "<!-- settings -->\n", "\n<!-- end of settings -->"
    before, rest = README.read_text().split(start)
    README.write_text(before + start + settings_table() + end + rest.split(end.strip())[1])
