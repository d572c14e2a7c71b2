"""What docs/deploy.md starts, started: the commands and settings of its files, without an engine around them."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from app.embedded_pg import EmbeddedPostgres
from tests.cli.test_cli import reachable_folder
from tests.faults.postgres import free_port
from tests.support.command import STATE_KEY, Command, perdure, run_perdure
from tests.support.deploy_page import (
    IMAGE,
    Documented,
    compose,
    image_environment,
    of_compose,
    of_objects,
    of_units,
    sections,
)
from tests.support.dev import running_dev
from tests.support.pages import ROOT, run_shell, span
from tests.support.scraped import is_ready, ops_url, probe

__all__ = ["reachable_folder"]

PAGE = "docs/deploy.md"
NOTHING = {"PERDURE_REQUEST_STATE_KEY": ""}
"""What the tests would give otherwise and the page has to."""
FREE = {"PERDURE_PORT": "0", "PERDURE_OPS_PORT": "0"}
TOOLS = '''
from app import tool

@tool
async def work() -> None:
    """Do nothing."""
'''


def new_key(folder: Path) -> tuple[str, str]:
    """A caller's key and its line, made as the page says."""
    key, line = run_shell(folder, span(PAGE, "perdure keys new").replace("OWNER", "somebody")).splitlines()
    return key, line


def operators(process: Command) -> str:
    """Where a process answers operators; one that listens everywhere is asked on this machine."""
    return ops_url(process).replace("0.0.0.0", "127.0.0.1")  # noqa: S104


def with_secrets(documented: Documented, db_url: str, line: str) -> dict[str, str]:
    """The settings of a process, with values for those that the page only names."""
    values = {
        "DATABASE_URL": db_url,
        "PERDURE_REQUEST_STATE_KEY": STATE_KEY,
        "PERDURE_AUTH": "keys",
        "PERDURE_API_KEYS": line,
    }
    given = {name: value or values[name] for name, value in documented.environment.items()}
    return NOTHING | given | FREE


@pytest.mark.parametrize("documented", [*of_units(), *of_objects("Deployment")], ids=lambda each: each.name)
async def test_a_process_starts_answers_its_probes_and_stops(
    documented: Documented, db_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "your").mkdir()
    (tmp_path / "your/module.py").write_text(TOOLS)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")
    settings = with_secrets(documented, db_url, new_key(tmp_path)[1])
    with perdure(tmp_path / "run", *documented.words, **settings) as process:
        url = await asyncio.to_thread(operators, process)
        await is_ready(url)
        assert [(await probe(f"{url}{path}"))[0] for path in documented.probes] == [200] * len(documented.probes)
        assert await asyncio.to_thread(process.stop) == 0


async def test_several_processes_have_a_port_for_operators_each_from_the_first_on(db_url: str, tmp_path: Path) -> None:
    _, *words = span(PAGE, "perdure serve --processes").split()
    first = free_ports(int(words[-1]))
    settings = {"DATABASE_URL": db_url, "PERDURE_PORT": str(free_port()), "PERDURE_OPS_PORT": str(first)}
    with perdure(tmp_path / "serve", *words, **settings) as serve:
        for port in range(first, first + int(words[-1])):
            await asyncio.to_thread(serve.says, rf"http://127\.0\.0\.1:{port}\b.*answering operators")
            await is_ready(f"http://127.0.0.1:{port}")
        assert await asyncio.to_thread(serve.stop) == 0


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on."""
    while True:
        first = free_port()
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except (OSError, OverflowError):
                continue
            return first


def test_the_job_makes_the_tables(empty_url: str, tmp_path: Path) -> None:
    [job] = of_objects("Job")
    code, _, err = run_perdure(tmp_path / "run", *job.words, **with_secrets(job, empty_url, "somebody sha256:0"))
    assert code == 0, err
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("SELECT count(*) FROM perdure.tasks").fetchone() == (0,)


async def test_the_compose_file_s_services_answer_a_call_with_a_key(empty_url: str, tmp_path: Path) -> None:
    key, line = new_key(tmp_path)
    secret = run_shell(tmp_path, span(PAGE, "openssl")).strip()
    services = of_compose({"POSTGRES_PASSWORD": "hush", "PERDURE_REQUEST_STATE_KEY": secret, "PERDURE_API_KEYS": line})
    assert list(services) == ["migrate", "serve", "worker"]
    given = {name: service.environment | FREE | {"DATABASE_URL": empty_url} for name, service in services.items()}
    assert run_perdure(tmp_path / "migrate", *services["migrate"].words, **given["migrate"])[0] == 0
    with (
        perdure(tmp_path / "serve", *services["serve"].words, **given["serve"]) as serve,
        perdure(tmp_path / "worker", *services["worker"].words, **given["worker"]) as worker,
    ):
        port = serve.says(r'"url": "http://0\.0\.0\.0:(\d+)/mcp"')
        worker.says("worker started")
        call = ["call", "slow_compute", "--arg", "seconds=0", "--url", f"http://127.0.0.1:{port}/mcp"]
        assert run_perdure(tmp_path / "stranger", *call)[0] == 2
        assert "done after" in run_perdure(tmp_path / "caller", *call, PERDURE_TOKEN=key)[1]
        for name, process in (("serve", serve), ("worker", worker)):
            await is_ready(operators(process))
            scraped_as(name, operators(process))
            healthy(tmp_path / f"healthy {name}", operators(process))


def scraped_as(name: str, url: str) -> None:
    """Prometheus may ask by the name and port that the page says."""
    [target] = re.findall(rf"`({name}:\d+)`", (ROOT / PAGE).read_text())
    request = urllib.request.Request(f"{url}/metrics", headers={"Host": target})  # noqa: S310
    with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310
        assert b"perdure_build_info" in response.read()


def healthy(folder: Path, url: str) -> None:
    """The image's own health check finds the process well."""
    [check] = re.findall(r'^HEALTHCHECK .* CMD \["perdure", "(\w+)"\]', (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    settings = image_environment() | {"PERDURE_OPS_PORT": url.rpartition(":")[2]}
    assert run_perdure(folder, check, **settings) == (0, "", "")


def test_the_compose_file_s_database_is_the_one_that_the_others_are_given(db_url: str, tmp_path: Path) -> None:
    database = compose()["services"]["database"]
    kind, *check = database["healthcheck"]["test"]
    server = psycopg.conninfo.conninfo_to_dict(db_url)
    address = {"PGHOST": str(server["host"]), "PGPORT": str(server["port"])}
    assert "accepting connections" in run_shell(tmp_path, shlex.join(check), **address)
    user, password = database["environment"]["POSTGRES_USER"], database["environment"]["POSTGRES_PASSWORD"]
    assert (kind, check[-1]) == ("CMD", user)
    for service in compose()["services"].values():
        if service["image"] == IMAGE:
            assert service["environment"]["DATABASE_URL"] == f"postgresql://{user}:{password}@database:5432/{user}"


def test_postgresql_takes_the_settings(reachable_folder: Path) -> None:
    settings = dict(sections("postgresql.conf")["top"])
    assert len(settings) >= 6
    with (
        EmbeddedPostgres(reachable_folder / "server", throwaway=True, settings=settings) as server,
        psycopg.connect(server.url()) as connection,
    ):
        taken = connection.execute("SELECT name FROM pg_settings WHERE source = 'command line'").fetchall()
    assert settings.keys() <= {name for (name,) in taken}


def test_the_grant_lets_the_service_see_the_sessions_of_others(db_url: str) -> None:
    grant = span(PAGE, "GRANT ")
    assert grant.endswith(" TO perdure")
    with psycopg.connect(db_url) as connection:
        connection.execute("CREATE ROLE perdure_of_the_page")
        connection.execute(f"{grant}_of_the_page".encode())
        granted = "SELECT pg_has_role('perdure_of_the_page', 'pg_read_all_stats', 'USAGE')"
        assert connection.execute(granted).fetchone() == (True,)
        connection.rollback()


def test_alembic_takes_a_scratch_database_up_and_down(empty_url: str, tmp_path: Path) -> None:
    tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'perdure' AND table_name = 'tasks'"
    for command, count in ((span("README.md", "alembic "), 1), (span(PAGE, "alembic "), 0)):
        run_shell(tmp_path, f"cd {shlex.quote(str(ROOT))}\n{command}", DATABASE_URL=empty_url)
        with psycopg.connect(empty_url) as connection:
            assert connection.execute(tables).fetchone() == (count,)


async def test_behind_the_page_s_pooler_a_call_is_answered(
    db_url: str, reachable_folder: Path, tmp_path: Path, find_program: Callable[[str], str]
) -> None:
    pooled, program = {"PERDURE_POOLED": "true", "PERDURE_DIRECT_URL": db_url}, find_program("pgbouncer")
    with (
        pooling(program, reachable_folder, db_url) as url,
        running_dev(tmp_path / "dev", url, "app.examples", **pooled) as dev,
    ):
        call = ["call", "slow_compute", "--arg", "seconds=0", "--url", dev]
        assert "done after" in run_perdure(tmp_path / "call", *call)[1]


@contextmanager
def pooling(program: str, folder: Path, db_url: str) -> Iterator[str]:
    """PgBouncer with the page's settings before a database of the tests; where it is."""
    server = psycopg.conninfo.conninfo_to_dict(db_url)
    port, file = free_port(), sections("pgbouncer.ini")
    [name] = file["databases"]
    assert file["databases"][name] == "host=database port=5432 dbname=perdure"
    file["databases"][name] = " ".join(f"{key}={server[key]}" for key in ("host", "port", "dbname", "user", "password"))
    file["pgbouncer"].update({"listen_addr": "127.0.0.1", "listen_port": str(port), "auth_type": "any"})
    file.remove_section("top")
    with (folder / "pgbouncer.ini").open("w") as written:
        file.write(written)
    user = ["-u", "nobody"] if os.getuid() == 0 else []
    command = [program, *user, str(folder / "pgbouncer.ini")]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        pooler = subprocess.Popen(command, stdout=out, stderr=err)
    try:
        Command(pooler, folder).says("process up")
        yield f"postgresql://anybody@127.0.0.1:{port}/{name}"
    finally:
        pooler.kill()
        pooler.wait()
