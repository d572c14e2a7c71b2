"""`perdure check`: what is wrong is found, said with what to do, and told by the exit code; secrets are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import make_url

from app.storage import checkup
from app.storage.roles import APP, PAYLOADS, READ
from tests.cli.operating import execute, make_each, make_many, run
from tests.support.command import STATE_KEY, run_perdure
from tests.support.roles import member

KEY = {"PERDURE_REQUEST_STATE_KEY": STATE_KEY}
ALIVE = """
INSERT INTO perdure.workers (worker_id, host, pid, version, tools, slots, lease_ms)
VALUES (gen_random_uuid(), 'here', 7, '0', '{bulk,weigh}', 4, 3600000)"""


def found(url: str, **environment: str) -> dict[str, tuple[str, str]]:
    """What is found, by its name; a failure is exit code 1."""
    ran = run(url, "check", "--json", **KEY | environment)
    (document,) = ran.documents
    findings = {check["name"]: (check["level"], check["says"]) for check in document["checks"]}
    assert ran.code == int("fail" in {level for level, _ in findings.values()})
    return findings


def levels(url: str, **environment: str) -> dict[str, str]:
    """How bad each is that is not as it should be; the tests' own server runs without autovacuum."""
    findings = found(url, **environment).items()
    return {name: level for name, (level, _) in findings if level != "ok" and name != "autovacuum"}


def test_a_healthy_fleet_is_ok_in_every_line(db_url: str, tmp_path: Path) -> None:
    execute(db_url, ALIVE)
    make_many(db_url, 1)
    assert levels(db_url) == {}
    _, out, err = run_perdure(tmp_path / "run", "check", DATABASE_URL=db_url)
    heading, *lines = [line for line in out.splitlines() if not line.startswith(("PERDURE_", "DATABASE_URL"))]
    assert err == ""
    assert heading == "Settings, as a process would have them that was started from here:"
    assert {line.split()[0] for line in lines if "autovacuum:" not in line} == {"ok"}
    assert [line.split(":")[0].split(maxsplit=1)[1] for line in lines] == [
        "settings", "access", "database", "schema", "pooler", "clock", "notifications", "notification queue",
        "connections", "autovacuum", "oldest xmin", "role", "tables", "workers", "tools",
    ]  # fmt: skip


async def test_a_server_without_autovacuum_is_a_failure(db_url: str) -> None:
    connection = await asyncpg.connect(db_url)
    on = await connection.fetchval("SHOW autovacuum") == "on"
    await connection.close()
    assert (await asyncio.to_thread(found, db_url))["autovacuum"][0] == ("ok" if on else "fail")


def test_secrets_are_masked_and_all_else_is_shown(db_url: str) -> None:
    secret = make_url(db_url).password
    assert secret
    ran = run(db_url, "check", PERDURE_SLOTS="7", PERDURE_API_KEYS="alice:hush", **KEY)
    assert "PERDURE_SLOTS=7" in ran.out
    assert "DATABASE_URL=postgresql://postgres:***@" in ran.out
    for hidden in (secret, STATE_KEY, "hush"):
        assert hidden not in ran.out + ran.err
        assert hidden not in run(f"{db_url}?sslpassword={secret}", "check", "--json", **KEY).out
    (document,) = run(db_url, "check", "--json", PERDURE_SLOTS="7", **KEY).documents
    written = {"PERDURE_SLOTS": "7", "PERDURE_RETENTION": "1d", "PERDURE_NOTIFY": "true"}
    assert written.items() <= document["settings"].items()
    assert document["settings"]["PERDURE_REQUEST_STATE_KEY"] == "***"


def test_a_database_that_cannot_be_reached_is_a_failure_at_once() -> None:
    ran = run("postgresql://me:hush@127.0.0.1:1/there", "check", **KEY)
    assert ran.code == 1
    assert "fail database: It cannot be reached" in ran.out
    assert "hush" not in ran.out + ran.err


def test_a_database_that_refuses_is_a_failure_with_the_servers_words(db_url: str) -> None:
    ran = run(make_url(db_url).set(database="nowhere").render_as_string(hide_password=False), "check", **KEY)
    assert ran.code == 1
    assert 'database "nowhere" does not exist' in ran.out


def test_a_schema_that_is_not_at_head_names_the_command(empty_url: str, db_url: str) -> None:
    level, says = found(empty_url)["schema"]
    assert (level, "perdure migrate" in says) == ("fail", True)
    assert not {"tables", "workers", "tools"} & found(empty_url).keys()
    execute(db_url, "UPDATE perdure.alembic_version SET version_num = '9999'")
    assert levels(db_url)["schema"] == "fail"


def test_without_a_worker_it_fails_and_names_the_tools_that_wait(db_url: str) -> None:
    make_many(db_url, 2)
    findings = found(db_url)
    assert findings["workers"][0] == findings["tools"][0] == "fail"
    assert "bulk" in findings["tools"][1]
    execute(db_url, ALIVE, "UPDATE perdure.workers SET tools = '{other}'")
    assert levels(db_url) == {"tools": "fail"}


def test_tasks_that_nobody_rescues_are_a_warning(db_url: str) -> None:
    make_each(db_url)
    execute(db_url, "UPDATE perdure.workers SET beat_at = now() - interval '1 hour'", ALIVE)
    assert found(db_url)["workers"] == (
        "warn",
        "2 tasks belong to workers that are gone, and nobody rescues them: look at the workers' logs.",
    )


def test_a_setting_that_keeps_serve_from_starting_is_a_warning(db_url: str) -> None:
    execute(db_url, ALIVE)
    assert levels(db_url, PERDURE_REQUEST_STATE_KEY="") == {"settings": "warn"}
    assert levels(db_url, PERDURE_HOST="0.0.0.0") == {"access": "warn"}  # noqa: S104


def test_a_variable_that_is_no_setting_is_a_warning_with_the_nearest_name(db_url: str) -> None:
    execute(db_url, ALIVE)
    known = dict.fromkeys(("PERDURE_URL", "PERDURE_TOKEN", "PERDURE_EXAMPLES_CSV_DIR", "perdure_slots"), "3")
    assert levels(db_url, **known) == {}
    says = "PERDURE_SLOT is no setting, and ignored: is PERDURE_SLOTS meant?"
    assert found(db_url, PERDURE_SLOT="3")["settings"] == ("warn", says)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"PERDURE_AUTH": "keys", "PERDURE_API_KEYS_FILE": "/nowhere/keys"}, "No such file"),
        ({"PERDURE_AUTH": "keys", "PERDURE_API_KEYS": "alice hush"}, "line 1"),
        ({"PERDURE_AUTH": "keys"}, "There are no API keys"),
        ({"PERDURE_AUTH": "oauth", "PERDURE_PUBLIC_URL": "https://example.org/mcp"}, "PERDURE_OAUTH_ISSUER"),
        ({"PERDURE_AUTH": "oauth", "PERDURE_OAUTH_ISSUER": "https://example.org"}, "PERDURE_PUBLIC_URL"),
    ],
)
def test_access_that_serve_could_not_give_is_a_failure_with_its_reason(
    db_url: str, given: dict[str, str], reason: str
) -> None:
    level, says = found(db_url, **given)["access"]
    assert (level, reason in says, "hush" in says) == ("fail", True, False)


def test_access_that_serve_can_give_is_ok(db_url: str) -> None:
    keys = {"PERDURE_AUTH": "keys", "PERDURE_API_KEYS": f"alice sha256:{'0' * 64}"}
    assert found(db_url, **keys)["access"][0] == "ok"


async def test_a_role_that_may_not_write_is_a_failure(db_url: str) -> None:
    async with member(db_url, READ, PAYLOADS) as reader, member(db_url, APP) as writer:
        level, says = (await asyncio.to_thread(found, reader))["role"]
        assert (level, APP in says) == ("fail", True)
        assert (await asyncio.to_thread(found, writer))["role"][0] == "ok"


@pytest.mark.parametrize(
    ("statement", "level"),
    [
        ("ALTER TABLE perdure.tasks SET (autovacuum_enabled = false)", "fail"),
        ("ALTER TABLE perdure.tasks RESET (autovacuum_vacuum_scale_factor)", "warn"),
    ],
)
def test_tables_whose_vacuum_was_changed_are_told(db_url: str, statement: str, level: str) -> None:
    execute(db_url, ALIVE, statement)
    assert levels(db_url) == {"tables": level}


async def test_a_transaction_that_holds_vacuum_back_is_a_warning(db_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "LONG_IDLE", timedelta())
    connection: Any = await asyncpg.connect(db_url)
    async with connection.transaction():
        await connection.execute("SELECT 1")
        level, says = (await asyncio.to_thread(found, db_url))["oldest xmin"]
    await connection.close()
    assert level == "warn"
    assert "idle in its transaction" in says


def test_a_clock_that_is_off_is_told(db_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(db_url, ALIVE)
    for limit, level in (("CLOCK_WARN", "warn"), ("CLOCK_FAIL", "fail")):
        monkeypatch.setattr(checkup, limit, timedelta(days=-1))
        assert levels(db_url) == {"clock": level}


def test_polling_is_no_fault_and_deafness_is_a_warning(db_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(db_url, ALIVE)
    assert levels(db_url, PERDURE_NOTIFY="false") == {}
    monkeypatch.setattr(checkup, "HEARING_SECONDS", 0)
    assert levels(db_url) == {"notifications": "warn"}


def test_a_transaction_pooler_is_found_and_is_a_failure_unless_it_is_known(
    db_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind one: two clients at once get the same process of the server's."""
    connected = checkup._connected
    held: list[Any] = []

    @asynccontextmanager
    async def pooled(url: str) -> AsyncIterator[Any]:
        if held:
            yield held[0]
            return
        async with connected(url) as connection:
            held.append(connection)
            yield connection
            held.clear()

    execute(db_url, ALIVE)
    monkeypatch.setattr(checkup, "_connected", pooled)
    level, says = found(db_url)["pooler"]
    assert (level, "PERDURE_POOLED=true" in says) == ("fail", True)
    assert levels(db_url, PERDURE_POOLED="true") == {}
    assert levels(db_url, PERDURE_POOLED="true", PERDURE_DIRECT_URL=db_url) == {}
