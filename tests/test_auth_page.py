"""What docs/auth.md shows works as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from app.settings import Settings, variable
from tests.support.command import perdure, run_perdure
from tests.support.dev import running_dev

PAGE = Path(__file__).parents[1] / "docs/auth.md"


def block(mark: str) -> str:
    """The commands behind a marker, with this Python's `perdure`."""
    found = re.search(rf"<!-- {re.escape(mark)} -->\n```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None, mark
    return re.sub(r"(^|=\$\(|\) )perdure ", rf"\1{shlex.quote(sys.executable)} -m app ", found[1], flags=re.MULTILINE)


def run(command: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", command],  # noqa: S607
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PAGE.parents[1]), **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_key_that_is_made_opens_the_door_and_no_other_does(db_url: str, tmp_path: Path) -> None:
    key = run(block("command: new key"), tmp_path).strip()
    assert re.fullmatch(r"perdure_\S{43}", key)
    assert key not in (tmp_path / "api_keys").read_text()
    auth = {"PERDURE_AUTH": "keys", "PERDURE_API_KEYS_FILE": str(tmp_path / "api_keys")}
    call = block("command: use key").replace("hello_world", "slow_compute --arg seconds=0")
    with running_dev(tmp_path / "dev", db_url, "app.examples", **auth) as url:
        assert "done after" in run(call, tmp_path, PERDURE_URL=url)
        refused = run_perdure(tmp_path / "without", "call", "slow_compute", PERDURE_URL=url)
        assert refused[0] == 2
        assert "token" in refused[2]
    with psycopg.connect(db_url) as connection:
        assert connection.execute("SELECT owner FROM perdure.tasks").fetchall() == [("reporting",)]


def test_the_roles_are_made_as_the_page_says(db_url: str, tmp_path: Path) -> None:
    with perdure(tmp_path / "roles", "roles") as command:
        assert command.ends() == 0
    piped = block("command: roles").partition(" | ")
    assert piped[2].strip() == 'psql -v ON_ERROR_STOP=1 "$DATABASE_URL"'
    with psycopg.connect(db_url) as connection:
        connection.execute(command.out.encode())
        granted = "SELECT has_table_privilege('perdure_read', 'perdure.task_overview', 'SELECT')"
        assert connection.execute(granted).fetchone() == (True,)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"PERDURE_[A-Z_]+", PAGE.read_text())) - {"PERDURE_TOKEN"}))
def test_a_setting_of_the_page_exists(name: str) -> None:
    assert name in {variable(field) for field in Settings.model_fields}
