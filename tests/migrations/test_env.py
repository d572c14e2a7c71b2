"""Alembic as an operator runs it, from a shell with DATABASE_URL, and as the service does, on a connection."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Transaction, create_engine

ROOT = Path(__file__).parents[2]
TABLES = "select count(*) from information_schema.tables where table_schema = 'perdure'"


def shell(*arguments: str, url: str | None) -> subprocess.Popen[str]:
    """`alembic ARGUMENTS`, with no setting but DATABASE_URL."""
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    environment |= {"DATABASE_URL": url} if url else {}
    command = [sys.executable, "-m", "alembic", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def config(url: str, output: io.StringIO | None = None) -> Config:
    alembic = Config(ROOT / "alembic.ini")
    alembic.output_buffer = output
    alembic.attributes["url"] = url
    return alembic


def count(url: str, query: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def migrated_uncommitted(url: str) -> Iterator[Transaction]:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
    alembic = Config(ROOT / "alembic.ini")
    with engine.connect() as connection, connection.begin() as transaction:
        alembic.attributes["connection"] = connection
        command.upgrade(alembic, "head")
        yield transaction
    engine.dispose()


def test_from_a_shell_the_plain_scheme_is_enough(empty_url: str) -> None:
    with shell("upgrade", "head", url=empty_url) as process:
        assert "-> 0001" in process.communicate()[1]
    assert process.returncode == 0
    assert count(empty_url, TABLES) > 1


def test_a_second_migrator_waits_for_the_first_and_finds_the_work_done(
    empty_url: str, admin: psycopg.Connection
) -> None:
    waiting = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = %s"
    database = [psycopg.conninfo.conninfo_to_dict(empty_url)["dbname"]]
    with (
        migrated_uncommitted(empty_url) as first,
        shell("upgrade", "head", url=f"{empty_url}?sslmode=prefer") as second,
    ):
        end = time.monotonic() + 20
        while admin.execute(waiting, database).fetchone() is None and time.monotonic() < end:
            assert second.poll() is None
            time.sleep(0.02)
        first.commit()
        said = second.communicate()[1]
    assert (second.returncode, "Running upgrade" in said) == (0, False), said
    assert count(empty_url, TABLES) > 1


def test_without_a_database_url_the_shell_says_what_to_set() -> None:
    process = shell("upgrade", "head", url=None)
    assert process.communicate()[1].strip().startswith("set DATABASE_URL")
    assert process.returncode == 1


def test_all_that_a_migration_makes_goes_with_a_downgrade_but_alembics_own_table(empty_url: str) -> None:
    command.upgrade(config(empty_url), "head")
    command.downgrade(config(empty_url), "base")
    assert count(empty_url, TABLES) == 1
    assert count(empty_url, "select count(*) from perdure.alembic_version") == 0
    command.upgrade(config(empty_url), "head")


def test_tables_outside_of_our_schema_are_none_of_our_business(db_url: str) -> None:
    with psycopg.connect(db_url) as connection:
        connection.execute("create table public.others (id int)")
        connection.execute("create schema neighbours create table theirs (id int)")
    command.check(config(db_url))


def test_a_table_that_no_migration_makes_is_found(db_url: str) -> None:
    with psycopg.connect(db_url) as connection:
        connection.execute("create table perdure.stray (id int)")
    with pytest.raises(CommandError, match="stray"):
        command.check(config(db_url))


def test_the_script_for_an_operator_to_run_makes_the_same_tables(empty_url: str, db_url: str) -> None:
    script = io.StringIO()
    command.upgrade(config(empty_url, script), "head", sql=True)
    with psycopg.connect(empty_url, autocommit=True) as connection:
        connection.execute(script.getvalue().encode())
    assert count(empty_url, TABLES) == count(db_url, TABLES)
    command.check(config(empty_url))


def test_a_role_that_may_not_make_schemas_migrates_one_that_it_was_given(
    empty_url: str, admin: psycopg.Connection
) -> None:
    may_make_roles = "select rolcreaterole or rolsuper from pg_roles where rolname = current_user"
    if admin.execute(may_make_roles).fetchone() != (True,):
        pytest.skip("the tests' role may not make another")
    role = f"{psycopg.conninfo.conninfo_to_dict(empty_url)['dbname']}_tenant"
    with psycopg.connect(empty_url, autocommit=True) as connection:
        connection.execute(f"create role {role}")
        try:
            connection.execute(f"create schema perdure authorization {role}")
            command.upgrade(config(f"{empty_url}?options=-crole%3D{role}"), "head")
            owned = f"select count(*) from pg_tables where schemaname = 'perdure' and tableowner = '{role}'"
            assert count(empty_url, owned) > 1
        finally:
            connection.execute(f"drop owned by {role}")
            connection.execute(f"drop role {role}")


def test_a_callers_transaction_stays_its_own_to_commit(empty_url: str) -> None:
    with migrated_uncommitted(empty_url) as transaction:
        transaction.rollback()
    assert count(empty_url, TABLES) == 0
