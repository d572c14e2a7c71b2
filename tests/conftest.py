"""PostgreSQL for the tests.

By default a private server, started at the first test that asks for a database, shared by all workers of pytest-xdist,
stopped by the last. With --database-url an existing server is used; its role needs CREATEDB. Alembic runs once per
run, into a template; each test gets its own copy.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from pytest_postgresql import factories
from pytest_postgresql.executors import NoopExecutor

from app.embedded_pg import EmbeddedPostgres, first_reachable, remove_abandoned
from tests.support.log import log_as_it_was
from tests.support.oracle import use_official

__all__ = ["log_as_it_was"]

ROOT = Path(__file__).parents[1]
RUN = f"perdure_test_{os.environ.setdefault('PERDURE_TEST_RUN', uuid.uuid4().hex[:8])}"
"""The name of this run and of its databases; the workers inherit it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--database-url",
        default=os.environ.get("TEST_DATABASE_URL"),
        help="an existing PostgreSQL server to test on (default: $TEST_DATABASE_URL, else a private one)",
    )
    parser.addoption(
        "--official-schemas",
        type=lambda folder: str(Path(folder).resolve(strict=True)),  # a string: it is sent to the workers
        metavar="DIR",
        help="a folder of the protocol's official JSON Schemas, to hold every reply to them too; write it with a =",
    )
    parser.addoption(
        "--conformance",
        choices=("required", "optional"),
        default="required" if os.environ.get("CI") == "true" else "optional",
        help="whether the tests of the official conformance suite fail without npm, or are left out "
        "(default: required where $CI is true, else optional)",
    )
    parser.addoption(
        "--browser",
        choices=("required", "optional"),
        default="required" if os.environ.get("CI") == "true" else "optional",
        help="whether the tests of the operators' pages in a browser fail without Chromium, or are left out "
        "(default: required where $CI is true, else optional)",
    )
    parser.addoption(
        "--engine",
        choices=("required", "optional"),
        default="optional",
        help="whether the tests of the image fail without Docker, or are left out; they build the image `perdure`, "
        "and need port 8765 (default: optional)",
    )
    parser.addoption(
        "--programs",
        choices=("required", "optional"),
        default="required" if os.environ.get("CI") == "true" else "optional",
        help="whether the tests that need PgBouncer, Prometheus, systemd or SSH fail without it, or are left out "
        "(default: required where $CI is true, else optional)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that does not say how long it may take has two minutes. Not in pyproject.toml: whoever tries a tool in the
    checkout has a pytest without this plugin, to which the option would be an error."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(120))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what the run, or an earlier one that was killed, has left."""
    if hasattr(config, "workerinput"):
        return
    if url := config.getoption("database_url", None):
        _drop_databases(url)
    elif _servers().exists():
        remove_abandoned(_servers())
        with suppress(OSError):  # in use by another run
            _servers().rmdir()


@dataclass(frozen=True)
class Server:
    """A server to make databases on; pytest-postgresql reads its attributes."""

    host: str
    port: int
    user: str
    password: str | None
    maintenance_dbname: str = "postgres"
    template_dbname: str = f"{RUN}_template"
    options: str = ""

    def url(self, database: str) -> str:
        """The URL of one of its databases, in the form that DATABASE_URL has."""
        login = quote(self.user, safe="") + (f":{quote(self.password, safe='')}" if self.password else "")
        return f"postgresql://{login}@{quote(self.host, safe='')}:{self.port}/{database}"


@pytest.fixture(scope="session")
def pg_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The server of this run, with a template that is migrated to head."""
    if url := request.config.getoption("database_url"):
        given = {name: str(value) for name, value in conninfo_to_dict(url).items()}
        server = Server(
            host=given.get("host", "127.0.0.1"),
            port=int(given.get("port", 5432)),
            user=given.get("user", "postgres"),
            password=given.get("password"),
            maintenance_dbname=given.get("dbname", "postgres"),
        )
        _make_template(server)
        yield server
        return
    with EmbeddedPostgres(_servers() / RUN, throwaway=True) as pg:
        server = Server("127.0.0.1", pg.port, pg.user, pg.password)
        _make_template(server)
        yield server


@pytest.fixture(scope="session")
def admin(pg_server: Server) -> Iterator[psycopg.Connection]:
    """A connection of the server's owner, each statement its own transaction, to a database that no test uses."""
    with psycopg.connect(pg_server.url(pg_server.maintenance_dbname), autocommit=True) as connection:
        yield connection


@pytest.fixture
def db_url(pg_server: Server, admin: psycopg.Connection, worker_template: NoopExecutor) -> Iterator[str]:
    """The URL of a migrated, empty database of the test's own, in the form that DATABASE_URL has."""
    with _database(admin, f"{worker_template.dbname}_db", worker_template.template_dbname) as name:
        yield pg_server.url(name)


@pytest.fixture(scope="session")
def shared_db_url(pg_server: Server, admin: psycopg.Connection, worker_template: NoopExecutor) -> Iterator[str]:
    """As `db_url`, but one database for all the tests of a process, for a service that they share."""
    with _database(admin, f"{worker_template.dbname}_shared", worker_template.template_dbname) as name:
        yield pg_server.url(name)


@pytest.fixture
def empty_url(pg_server: Server, admin: psycopg.Connection, worker_template: NoopExecutor) -> Iterator[str]:
    """The URL of a database without any table, in the form that DATABASE_URL has."""
    with _database(admin, f"{worker_template.dbname}_empty", "template0") as name:
        yield pg_server.url(name)


@pytest.fixture(scope="module")
def module_db_url(pg_server: Server, admin: psycopg.Connection, worker_template: NoopExecutor) -> Iterator[str]:
    """The URL of a migrated database that the tests of a module share, for one service that serves them all."""
    with _database(admin, f"{worker_template.dbname}_module", worker_template.template_dbname) as name:
        yield pg_server.url(name)


worker_template = factories.postgresql_noproc(depends_on="pg_server", dbname=RUN)
postgresql = factories.postgresql("worker_template")
"""A psycopg connection to a migrated, empty database of the test's own, for a test that only speaks SQL."""


@pytest.fixture(scope="session")
def find_program(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Finds a program on the PATH; a test that asks for one that is not there fails or is left out."""

    def find(name: str) -> str:
        found = shutil.which(name)
        if found is None:
            reason = f"{name} is not on the PATH"
            if request.config.getoption("programs") == "required":
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)
        return found

    return find


@pytest.fixture(scope="session")
def official_schemas(request: pytest.FixtureRequest) -> Path | None:
    """The folder of the official JSON Schemas, if one was given."""
    folder = request.config.getoption("official_schemas")
    return Path(folder) if folder else None


@pytest.fixture(scope="session", autouse=True)
def _official_schemas_judge_too(official_schemas: Path | None) -> None:
    use_official(official_schemas)


def _servers() -> Path:
    """The folder of the private servers, in memory where there is room: a template is copied there in a tenth of the
    time. Not tmp_path: pytest closes that to the account that the server has when we are root."""
    memory, disk = Path("/dev/shm"), Path(tempfile.gettempdir())  # noqa: S108
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**30  # a container has 64 MB by default
    base = first_reachable(*([memory] if roomy else []), disk, Path("/var/tmp"))  # noqa: S108
    return base / f"perdure-tests-{os.getuid()}"


@contextmanager
def _database(admin: psycopg.Connection, name: str, template: str) -> Iterator[str]:
    """A copy of a template for one test. STRATEGY file_copy, where the server has it (15 and later), takes a third of
    the time; pytest-postgresql cannot ask for it."""
    strategy = sql.SQL("strategy file_copy" if admin.info.server_version >= 150000 else "")
    database = sql.Identifier(name)
    admin.execute(sql.SQL("create database {} template {} {}").format(database, sql.Identifier(template), strategy))
    try:
        yield name
    finally:
        admin.execute(sql.SQL("drop database {} with (force)").format(database))


def _make_template(server: Server) -> None:
    """Migrate the template, once for all workers."""
    template = sql.Identifier(server.template_dbname)
    with psycopg.connect(server.url(server.maintenance_dbname), autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(hashtext(%s))", (server.template_dbname,))
        made = "select from pg_database where datname = %s and datistemplate"
        if connection.execute(made, (server.template_dbname,)).fetchone() is not None:
            return
        connection.execute(sql.SQL("drop database if exists {}").format(template))
        connection.execute(sql.SQL("create database {} template template0").format(template))
        alembic = Config(ROOT / "alembic.ini")
        alembic.attributes["url"] = server.url(server.template_dbname)
        command.upgrade(alembic, "head")
        connection.execute(sql.SQL("alter database {} is_template true").format(template))


def _drop_databases(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        ours = connection.execute("select datname from pg_database where starts_with(datname, %s)", (RUN,)).fetchall()
        for (name,) in ours:
            connection.execute(sql.SQL("alter database {} is_template false").format(sql.Identifier(name)))
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
