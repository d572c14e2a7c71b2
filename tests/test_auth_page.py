"""What docs/auth.md shows works as it stands there."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path

import psycopg
import pytest

from app.settings import Settings, variable
from tests.support.command import run_perdure
from tests.support.dev import running_dev
from tests.support.pages import ROOT, block, run_shell, shell

PAGE = "docs/auth.md"
LIST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'


def test_a_key_that_is_made_opens_the_door_and_no_other_does(db_url: str, tmp_path: Path) -> None:
    key = run_shell(tmp_path, block(PAGE, "command: new key")).strip()
    assert re.fullmatch(r"perdure_\S{43}", key)
    assert key not in (tmp_path / "api_keys").read_text()
    auth = {"PERDURE_AUTH": "keys", "PERDURE_API_KEYS_FILE": str(tmp_path / "api_keys")}
    call = block(PAGE, "command: use key").replace("hello_world", "slow_compute --arg seconds=0")
    with running_dev(tmp_path / "dev", db_url, "app.examples", **auth) as url:
        assert "done after" in run_shell(tmp_path, call, PERDURE_URL=url)
        refused = run_perdure(tmp_path / "without", "call", "slow_compute", PERDURE_URL=url)
        assert refused[0] == 2
        assert "token" in refused[2]
    with psycopg.connect(db_url) as connection:
        assert connection.execute("SELECT owner FROM perdure.tasks").fetchall() == [("reporting",)]


def test_the_api_that_is_started_with_the_keys_lets_their_holders_in(db_url: str, tmp_path: Path) -> None:
    key = run_shell(tmp_path, block(PAGE, "command: new key")).strip()
    with shell(tmp_path, block(PAGE, "command: serve with keys"), DATABASE_URL=db_url) as api:
        url = f"http://127.0.0.1:{api.says(r'http://0.0.0.0:([0-9]+)/mcp')}/mcp"
        assert answer(url, key)[0] == 200
        assert answer(url, key[::-1])[0] == 401


def test_with_the_settings_for_oauth_a_client_is_sent_to_the_issuer(db_url: str, tmp_path: Path) -> None:
    script = block(PAGE, "settings: oauth") + "perdure serve"
    with shell(tmp_path, script, DATABASE_URL=db_url) as api:
        url = api.says(r'"url": "(http://127\.0\.0\.1:\d+/mcp)"')
        status, challenge = answer(url)
        assert status == 401
        assert 'resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp"' in challenge
        served = url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        with urllib.request.urlopen(served) as metadata:  # noqa: S310
            assert b"https://login.example.com/realms/tools" in metadata.read()


def answer(url: str, key: str = "") -> tuple[int, str]:
    """The status and the challenge of the answer to who has this key, or none."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(url, LIST, headers)) as response:  # noqa: S310
            return response.status, ""
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.headers["WWW-Authenticate"]


def test_the_roles_are_made_as_the_page_says(db_url: str, tmp_path: Path) -> None:
    run_shell(tmp_path, block(PAGE, "command: roles"), DATABASE_URL=db_url)
    with psycopg.connect(db_url) as connection:
        granted = "SELECT has_table_privilege('perdure_read', 'perdure.task_overview', 'SELECT')"
        assert connection.execute(granted).fetchone() == (True,)


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"PERDURE_[A-Z_]+", (ROOT / PAGE).read_text())) - {"PERDURE_TOKEN"})
)
def test_a_setting_of_the_page_exists(name: str) -> None:
    assert name in {variable(field) for field in Settings.model_fields}
