"""The schema's revision: upgrades, refusals, and that metadata and migrations make the same tables."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from structlog.testing import capture_logs

from app.embedded_pg import find_home
from app.errors import SchemaError, SettingsError, StoreUnavailable
from app.storage import migrate
from app.storage.roles import READ
from app.storage.schema import metadata
from tests.support.roles import connected, member
from tests.support.waiting import eventually

HOLD_ADVISORY_LOCK = f"SELECT pg_advisory_lock({int.from_bytes(b'perdure')})"


def config(url: str) -> Config:
    alembic = migrate.alembic_config()
    alembic.attributes["url"] = url
    return alembic


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.fixture
def one_release_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This release has one migration more than it has."""
    shutil.copytree(migrate.alembic_config().get_main_option("script_location") or "", tmp_path / "100% new")
    later = "revision = '0999'\ndown_revision = '{}'\n\ndef upgrade() -> None:\n    pass\n"
    (tmp_path / "100% new/versions/0999_later.py").write_text(later.format(head()))
    alembic = Config()
    alembic.set_main_option("script_location", str(tmp_path / "100%% new"))
    monkeypatch.setattr(migrate, "alembic_config", lambda: alembic)


def head() -> str:
    return str(migrate._scripts().get_current_head())


# -- upgrade ----------------------------------------------------------------------------------------------------------


def test_upgrade_makes_what_the_metadata_say_and_can_be_taken_back_and_made_again(empty_url: str) -> None:
    assert asyncio.run(migrate.upgrade(empty_url)) == head()
    command.check(config(empty_url))
    command.downgrade(config(empty_url), "base")
    assert asyncio.run(migrate.current(empty_url)) is None
    assert asyncio.run(migrate.upgrade(empty_url)) == head()
    command.check(config(empty_url))


async def test_upgrade_works_in_a_running_loop_and_has_nothing_to_do_the_second_time(empty_url: str) -> None:
    assert await migrate.current(empty_url) is None
    assert await migrate.upgrade(f"{empty_url}?sslmode=prefer".replace("postgresql:", "postgres:")) == head()
    assert await migrate.upgrade(empty_url) == head()
    assert await migrate.current(empty_url) == head()


async def test_two_migrators_at_once_both_succeed(empty_url: str) -> None:
    code = "import asyncio, sys; from app.storage.migrate import upgrade; print(asyncio.run(upgrade(sys.argv[1])))"
    start = asyncio.create_subprocess_exec
    both = [await start(sys.executable, "-c", code, empty_url, stdout=subprocess.PIPE) for _ in range(2)]
    said = await asyncio.wait_for(asyncio.gather(*(process.communicate() for process in both)), 60)
    assert [process.returncode for process in both] == [0, 0]
    assert [out.decode().strip() for out, _ in said] == [head(), head()]
    await migrate.require_head(empty_url)


async def test_a_migration_that_does_not_get_its_locks_gives_up_and_is_tried_again(empty_url: str) -> None:
    holder = await asyncpg.connect(empty_url)
    await holder.execute(HOLD_ADVISORY_LOCK)
    execute(empty_url, f'ALTER DATABASE "{name_of(empty_url)}" SET lock_timeout = 20')
    with pytest.raises(SchemaError, match="too busy"):
        await migrate.upgrade(empty_url, tries=2, pause_seconds=0)
    assert await migrate.current(empty_url) is None

    with capture_logs() as logs:

        async def waits() -> Any:
            return [entry for entry in logs if "waits" in entry["event"]]

        upgrade = asyncio.create_task(migrate.upgrade(empty_url, tries=1000, pause_seconds=0.01))
        await eventually(waits)
        await holder.close()
        assert await asyncio.wait_for(upgrade, 20) == head()


# -- require_head -----------------------------------------------------------------------------------------------------


async def test_head_is_where_a_process_may_start(db_url: str) -> None:
    await migrate.require_head(db_url)


async def test_an_empty_database_is_refused_with_the_command_that_helps(empty_url: str) -> None:
    with pytest.raises(SchemaError, match=r"no tables of Perdure yet: run `perdure migrate`"):
        await migrate.require_head(empty_url)


@pytest.mark.usefixtures("one_release_later")
async def test_an_older_database_is_refused_until_it_is_migrated(db_url: str) -> None:
    with pytest.raises(SchemaError, match=r"at revision \d+, this release needs 0999: run `perdure migrate`"):
        await migrate.require_head(db_url)
    assert await migrate.upgrade(db_url) == "0999"
    await migrate.require_head(db_url)


async def test_a_newer_database_is_refused_and_left_as_it_is(db_url: str) -> None:
    execute(db_url, "UPDATE perdure.alembic_version SET version_num = '0999'")
    for refused in (migrate.require_head, migrate.upgrade):
        with pytest.raises(SchemaError, match=r"0999, which this release does not know.*`perdure migrate`"):
            await refused(db_url)
    assert await migrate.current(db_url) == "0999"


# -- connecting -------------------------------------------------------------------------------------------------------


async def test_a_database_that_does_not_exist_is_the_settings_fault(db_url: str) -> None:
    with pytest.raises(SettingsError, match=r"DATABASE_URL .* does not exist"):
        await migrate.current(f"{db_url}_of_somebody_else")


async def test_a_server_that_stays_away_is_told_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "PATIENCE_SECONDS", 0.05)
    with pytest.raises(StoreUnavailable, match="cannot be reached") as told:
        await migrate.require_head("postgresql://me:hush@127.0.0.1:1/there")
    assert "hush" not in str(told.value)


async def test_who_only_looks_is_not_kept_waiting_for_a_server_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "PATIENCE_SECONDS", 600.0)
    monkeypatch.setattr(migrate, "OPERATOR_PATIENCE_SECONDS", 0.05)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await migrate.require_head("postgresql://me@127.0.0.1:1/there", writes=False)


async def test_a_connection_that_is_lost_between_two_statements_is_a_database_that_went_away(db_url: str) -> None:
    with pytest.raises(StoreUnavailable, match="went away"):
        async with migrate._connect(db_url) as connection, connection.transaction():
            connection.terminate()


# -- what is made -----------------------------------------------------------------------------------------------------


def test_metadata_and_migrations_make_the_same_to_the_last_comment(empty_url: str, db_url: str) -> None:
    engine = create_engine(empty_url.replace("postgresql:", "postgresql+psycopg:"))
    metadata.create_all(engine)
    engine.dispose()
    made = dump(db_url)
    assert dump(empty_url) == made
    for part in ("CHECK ", "WHERE (ready_at IS NOT NULL)", "COMMENT ON COLUMN", "fillfactor", "CREATE VIEW"):
        assert part in "\n".join(made)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE perdure.tasks DROP CONSTRAINT tasks_priority",
        "ALTER TABLE perdure.tasks ALTER version SET DEFAULT 2",
        "ALTER TABLE perdure.tasks RESET (fillfactor)",
        "COMMENT ON COLUMN perdure.tasks.tool IS 'another'",
        "ALTER VIEW perdure.queue_health RENAME COLUMN queued TO waiting",
        "DROP INDEX perdure.tasks_ready; CREATE INDEX tasks_ready ON perdure.tasks (tool, priority, ready_at)",
    ],
)
def test_the_comparison_sees_a_change_of(change: str, db_url: str) -> None:
    before = dump(db_url)
    execute(db_url, change)
    assert dump(db_url) != before


def test_every_table_view_and_column_says_what_it_is(db_url: str) -> None:
    silent = """
        SELECT c.oid::regclass || coalesce('.' || a.attname, '')
        FROM pg_class AS c
        CROSS JOIN LATERAL (
            SELECT 0 AS attnum, NULL AS attname
            UNION ALL
            SELECT attnum, attname FROM pg_attribute
            WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND c.relkind = 'r'
        ) AS a
        WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind IN ('r', 'v') AND c.relname <> 'alembic_version'
            AND coalesce(CASE a.attnum WHEN 0 THEN obj_description(c.oid, 'pg_class')
                         ELSE col_description(c.oid, a.attnum) END, '') = ''"""
    with psycopg.connect(db_url) as connection:
        assert connection.execute(silent).fetchall() == []
        connection.execute("COMMENT ON TABLE perdure.tools IS NULL")
        connection.execute("COMMENT ON COLUMN perdure.tools.name IS NULL")
        assert len(connection.execute(silent).fetchall()) == 2


def dump(url: str) -> list[str]:
    """The statements that make the schema, in an order that does not depend on how it was made."""
    what = ["--schema-only", "--schema=perdure", "--no-owner", "--no-privileges", url]
    script = subprocess.run(
        [str(find_home() / "bin/pg_dump"), *what], check=True, capture_output=True, text=True
    ).stdout
    bare = re.sub(r"^(--.*|\\(un)?restrict .*|SET .*|SELECT pg_catalog\..*)\n", "", script, flags=re.MULTILINE)
    statements = [statement.strip() for statement in bare.split(";\n")]
    return sorted(text for text in statements if text and "alembic_version" not in text)


def name_of(url: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])


async def test_a_role_that_may_not_write_is_told_before_anything_fails(db_url: str) -> None:
    async with member(db_url, READ) as url:
        with pytest.raises(SchemaError, match=r"may not write .* `perdure roles`"):
            await migrate.require_head(url)


async def test_tables_without_a_revision_are_left_alone_and_told_of(db_url: str) -> None:
    async with connected(db_url) as connection:
        await connection.execute("DELETE FROM perdure.alembic_version")
        with pytest.raises(SchemaError, match="alembic stamp"):
            await migrate.upgrade(db_url)
        assert await connection.fetchval("SELECT count(*) FROM perdure.tasks") == 0


@pytest.mark.parametrize(("patience", "times"), [(30.0, 1), (0.2, 1000)], ids=["once", "for good"])
async def test_a_server_that_goes_away_in_the_middle_is_asked_again_for_a_while(
    db_url: str, monkeypatch: pytest.MonkeyPatch, patience: float, times: int
) -> None:
    looks = 0

    async def cut_off(connection: asyncpg.Connection[Any]) -> None:
        nonlocal looks
        looks += 1
        if looks <= times:
            await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr(migrate, "_require_rights", cut_off)
    monkeypatch.setattr(migrate, "PATIENCE_SECONDS", patience)
    if times == 1:
        await migrate.require_head(db_url)
        assert looks == 2
    else:
        with pytest.raises(StoreUnavailable, match="went away"):
            await migrate.require_head(db_url)
