"""What the README says is so: its settings, its first tool and its test, and the session with curl."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from app.settings import Settings, variable
from app.testing import harness
from app.tools.registry import Registry
from tests.cli.operating import make_each, run
from tests.support.pages import ROOT, block, run_shell, shell, span
from tests.support.terminal import at_terminal

README = ROOT / "README.md"
TELLING = "SELECT * FROM perdure.task_overview WHERE status = 'failed' ORDER BY created_at DESC LIMIT 20;"
DEPLOYED = "export DATABASE_URL=postgresql://user:password@host:5432/name"
LISTING = """curl -s -w '%{http_code}' URL -H 'Host: tasks.example.com' -H 'Authorization: Bearer TOKEN' \\
  -H 'Content-Type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'"""


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
    (tmp_path / "shop.py").write_text(block("README.md", "tool: shop.py"))
    tested = block("README.md", "tool: test_shop.py").replace("harness()", f"harness({db_url!r})")
    asked_again = tested.replace("a_crash_charges_once", "a_misfit_is_asked_again")
    asked_again = asked_again.replace('{"sure": {', '{"sure": {"no": 1}, "sure#2": {').replace("(3, 1)", "(4, 1)")
    (tmp_path / "test_shop.py").write_text(tested + asked_again)
    command = span("README.md", "pytest -o")
    assert "2 passed" in run_shell(tmp_path, f"{command} -p no:cacheprovider")


async def test_the_tool_that_asks_before_it_is_a_task_works(
    tmp_path: Path, db_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "archive.py").write_text(block("README.md", "tool: archive.py"))
    [archive] = Registry.load([str(tmp_path / "archive.py")])
    async with harness(db_url) as perdure:
        run = await perdure.run(archive, answers={"target": {"folder": "old"}}, files=["a", "b"])
    assert (run.text, run.detached) == ("2 files are in old", True)


@pytest.fixture(scope="module")
def shop_url(module_db_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with the first tool."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(block("README.md", "tool: shop.py"))
    command = block("README.md", ".venv/bin/perdure dev --tools shop.py")
    with shell(folder, command, DATABASE_URL=module_db_url) as dev:
        url = dev.says(r"answers on (http://127\.0\.0\.1:\d+/mcp)")
        dev.says("worker started")
        yield url


@pytest.mark.timeout(180)
def test_the_first_tool_asks_in_the_terminal_that_calls_it(shop_url: str) -> None:
    command = block("README.md", "command: call").split()[1:]
    with at_terminal(*command, PERDURE_URL=shop_url) as terminal:
        terminal.answers(("Order book?", ""), ("yes (yes or no): ", "y"), ("Send it?", ""))
        terminal.expect("receipt for book")
        assert terminal.ends() == 0


@pytest.mark.timeout(180)
def test_the_session_with_curl_ends_with_a_receipt(tmp_path: Path, shop_url: str) -> None:
    script = block("README.md", "command: curl").replace("http://127.0.0.1:8765/mcp", shop_url)
    handle, asked, acknowledged, ended = run_shell(tmp_path, script).strip().splitlines()
    assert '"resultType":"task"' in handle
    assert '"status":"input_required"' in asked
    assert "Order book?" in asked
    assert '"resultType":"complete"' in acknowledged
    assert '"status":"completed"' in ended
    assert "receipt for book" in ended
    listening = (
        block("README.md", "command: listen")
        .replace("http://127.0.0.1:8765/mcp", shop_url)
        .replace("curl ", "curl -m 3 ")
    )
    task_id = re.search(r'"taskId":"([^"]+)"', handle)
    assert task_id is not None
    heard = run_shell(tmp_path, f"{listening.strip()} || true", ID=task_id[1])  # it would stay open
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
    queries = block("README.md", TELLING)
    with psycopg.connect(db_url) as connection:
        for query in queries.replace("…", "01920000-0000-7000-8000-000000000000").splitlines():
            connection.execute(query.encode())


@pytest.mark.timeout(180)
def test_what_is_deployed_as_the_readme_says_answers_a_client_that_has_the_key(empty_url: str, tmp_path: Path) -> None:
    (tmp_path / "my_company").mkdir()
    (tmp_path / "my_company/tools.py").write_text(block("README.md", "tool: archive.py"))
    script = block("README.md", DEPLOYED).replace("postgresql://user:password@host:5432/name", empty_url)
    background = re.sub(r"^(perdure serve [^#]*)", r"\1 & ", script, flags=re.MULTILINE)
    with shell(tmp_path, background, PYTHONPATH=f"{ROOT}:{tmp_path}") as worker:
        url = f"http://127.0.0.1:{worker.says(r'http://0.0.0.0:([0-9]+)/mcp')}/mcp"
        worker.says("worker started")
        token = (tmp_path / "key").read_text().splitlines()[0]
        asked = LISTING.replace("TOKEN", token).replace("URL", url)
        assert '"name":"archive"' in run_shell(tmp_path, asked)
        assert run_shell(tmp_path, asked.replace(token, "another")).endswith("401")
        assert run_shell(tmp_path, asked.replace("tasks.example", "other.example")).endswith("403")
        assert worker.stop() == 0


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
