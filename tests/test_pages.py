"""Every block of code and every command of the project's pages has a test that runs it."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer.main

from app.cli import cli
from tests.check import CHECKS
from tests.cli.operating import make_each, run
from tests.support.pages import PAGES, ROOT, Block, blocks, spans
from tests.test_security_page import names_in

RUN = {
    "README.md": {
        "command: demo": "tests/test_installs.py::"
        "test_the_first_command_of_the_readme_installs_perdure_and_shows_a_task_survive",
        "command: check": ".ci/run",
        "tool: (shop|test_shop).py": "tests/test_readme.py::test_the_first_tool_and_its_test_work",
        "tool: archive.py": "tests/test_readme.py::test_the_tool_that_asks_before_it_is_a_task_works",
        ".venv/bin/perdure dev --tools shop.py": "tests/test_readme.py::shop_url",
        "command: call": "tests/test_readme.py::test_the_first_tool_asks_in_the_terminal_that_calls_it",
        "command: (curl|listen)": "tests/test_readme.py::test_the_session_with_curl_ends_with_a_receipt",
        "stateDiagram-v2": "tests/domain/test_lifecycle.py::test_the_diagram_in_the_readme_shows_these_edges",
        "SELECT .*": "tests/test_readme.py::test_the_queries_of_the_readme_run",
        "export DATABASE_URL=.*": "tests/test_readme.py::"
        "test_what_is_deployed_as_the_readme_says_answers_a_client_that_has_the_key",
    },
    "docs/auth.md": {
        "command: (new key|use key)": "tests/test_auth_page.py::"
        "test_a_key_that_is_made_opens_the_door_and_no_other_does",
        "command: serve with keys": "tests/test_auth_page.py::"
        "test_the_api_that_is_started_with_the_keys_lets_their_holders_in",
        "settings: oauth": "tests/test_auth_page.py::test_with_the_settings_for_oauth_a_client_is_sent_to_the_issuer",
        "command: roles": "tests/test_auth_page.py::test_the_roles_are_made_as_the_page_says",
    },
    "docs/benchmarks.md": {
        "command: measure what lasts": "tests/benchmarks/test_benchmarks.py::"
        "test_what_lasts_is_measured_as_the_page_asks_for_it",
        "command: measure": "tests/benchmarks/test_benchmarks.py::"
        "test_the_paths_that_the_page_asks_for_are_measured_beside_their_floors",
    },
    "docs/clients.md": {
        "command: service": "tests/test_clients_page.py::service",
        "command: call": "tests/test_clients_page.py::test_the_terminal_asks_shows_and_takes_a_task_up_again",
        "(file|run): .*": "tests/test_clients_page.py::test_a_recipe_says_what_it_should",
        "command: strict": "tests/test_clients_page.py::test_the_strict_request_is_answered_with_a_task",
        "params: again": "tests/test_clients_page.py::test_the_call_that_is_made_again_is_the_same_task",
    },
    "docs/deploy.md": {
        "command: build": "tests/test_docker.py::test_the_image_that_is_built_as_the_page_says_is_what_it_says",
        "file: Dockerfile": "tests/test_docker.py::"
        "test_an_image_of_one_s_own_runs_with_no_more_than_kubernetes_leaves_it",
        "file: compose.yaml": "tests/test_docker.py::"
        "test_compose_brings_up_four_workers_and_an_api_that_answers_who_has_a_key",
        "file: perdure(.yaml|-.*service)": "tests/test_deploy_runs.py::"
        "test_a_process_starts_answers_its_probes_and_stops",
        "query: what waits": "tests/test_deploy_page.py::test_the_queries_run",
        "file: alerts.yaml": "tests/test_alerts.py::"
        "test_each_alert_measures_something_and_none_is_raised_until_something_is_wrong",
        "file: pgbouncer.ini": "tests/test_deploy_runs.py::test_behind_the_page_s_pooler_a_call_is_answered",
        "file: postgresql.conf": "tests/test_deploy_runs.py::test_postgresql_takes_the_settings",
    },
    "docs/sql.md": {
        r"query: [\w ]+, \w+": "tests/test_sql_page.py::test_each_query_finds_what_it_asks_for",
        "commands": "tests/test_sql_page.py::test_each_command_is_understood",
    },
    "docs/ui.md": {"enable": "tests/http/ui/test_process.py::test_what_the_docs_say_turns_the_pages_on"},
}
"""Which test runs a block, by page and the pattern of its name; the test takes its text from the page."""

ALL_BLOCKS = [each for page in PAGES for each in blocks(page)]
MEANT = {"ID": "01920000-0000-7000-8000-000000000000", "OWNER": "somebody", "N": "2", "your.module": "app.examples"}
"""What stands for something else in the commands of sentences."""


def handlers(each: Block) -> list[str]:
    """The tests that handle a block."""
    return [test for pattern, test in RUN.get(each.page, {}).items() if re.fullmatch(pattern, each.name)]


@pytest.mark.parametrize("each", ALL_BLOCKS, ids=lambda each: f"{each.page} {each.name}")
def test_a_block_is_run_by_a_test(each: Block) -> None:
    found = handlers(each)
    assert len(found) == 1, "name it by a comment before it, and write a test that runs it"
    path, _, test = found[0].partition("::")
    assert not test or test in names_in(ROOT / path)
    assert each.page.rpartition("/")[2] in (ROOT / path).read_text(), f"{path} does not look into {each.page}"


def test_each_test_of_a_block_has_one() -> None:
    for page, known in RUN.items():
        names = [each.name for each in blocks(page)]
        assert [pattern for pattern in known if not any(re.fullmatch(pattern, name) for name in names)] == []


@pytest.mark.parametrize("page", PAGES)
def test_all_code_of_a_page_is_in_blocks_that_are_seen(page: str) -> None:
    text = (ROOT / page).read_text()
    assert len(re.findall(r"^\s*(```|~~~)", text, re.MULTILINE)) == 2 * len(blocks(page))
    assert re.findall(r"^(?: {4,}|\t)(?:\$ |\S*\b(?:perdure|python|curl|docker|psql)\b )", text, re.MULTILINE) == []


# -- the commands of sentences ----------------------------------------------------------------------------------------

NAMED = sorted({span for page in PAGES if page != "CHANGELOG.md" for span in spans(page)})
OURS = [span.partition("perdure ")[2] for span in NAMED if re.match(r"(opentelemetry-instrument )?perdure [a-z]", span)]
OPERATE = [words for words in OURS if words.split()[0] in ("tasks", "workers", "tools", "check", "roles", "keys")]
OTHER = re.compile(
    r"(?!perdure )([\w./-]+ (.* )?--?[a-zA-Z]|(alembic|docker|git|kubectl|npm|openssl|opentelemetry-instrument|pg_\w+|"
    r"pip|psql|python|systemctl|SELECT|GRANT|\\\S+) )"
)
OTHERS = {
    r"\d+ perdure.tasks": "tests/test_sql_page.py::test_psql_shows_what_each_column_is",
    "GRANT pg_read_all_stats TO perdure": "tests/test_deploy_runs.py::"
    "test_the_grant_lets_the_service_see_the_sessions_of_others",
    "SELECT coalesce(sum(queued), 0) FROM perdure.queue_health": "tests/test_deploy_page.py::test_the_queries_run",
    "SELECT pg_terminate_backend(pid)": "tests/test_sql_page.py::"
    "test_a_session_that_holds_vacuum_back_is_ended_as_the_page_says",
    "alembic downgrade base": "tests/test_deploy_runs.py::test_alembic_takes_a_scratch_database_up_and_down",
    "alembic upgrade head": "tests/test_deploy_runs.py::test_alembic_takes_a_scratch_database_up_and_down",
    "docker compose up --scale worker=4": "tests/test_docker.py::"
    "test_compose_brings_up_four_workers_and_an_api_that_answers_who_has_a_key",
    "openssl rand -hex 32": "tests/test_docker.py::"
    "test_compose_brings_up_four_workers_and_an_api_that_answers_who_has_a_key",
    "opentelemetry-instrument perdure serve": "tests/test_installs.py::"
    "test_spans_of_the_api_and_of_the_worker_arrive_where_opentelemetry_is_told_to_send_them",
    "opentelemetry-instrument perdure worker --tools your.module": "tests/test_installs.py::"
    "test_spans_of_the_api_and_of_the_worker_arrive_where_opentelemetry_is_told_to_send_them",
    "pip install -e '.[benchmarks]'": "tests/test_installs.py::"
    "test_the_extra_for_benchmarks_brings_what_they_compare_with",
    "pip install opentelemetry-distro opentelemetry-exporter-otlp": "tests/test_installs.py::"
    "test_spans_of_the_api_and_of_the_worker_arrive_where_opentelemetry_is_told_to_send_them",
    "pip install pytest pytest-asyncio": "tests/test_installs.py::"
    "test_the_first_tool_is_tested_by_what_the_readme_installs",
    "pytest -o asyncio_mode=auto test_shop.py": "tests/test_installs.py::"
    "test_the_first_tool_is_tested_by_what_the_readme_installs",
    "python -m tests.faults --minutes 20": "tests/faults/test_faults.py::"
    "test_the_readme_s_long_run_is_run_for_some_seconds",
    "python -m tests.audit": "tests/test_pages.py::test_the_audit_is_one_of_the_checks",
    "ssh -L 8766:127.0.0.1:8766 host": "tests/http/ui/test_from_elsewhere.py::"
    "test_the_pages_are_reached_from_another_machine_by_the_command_that_the_docs_name",
}
"""Which test runs, a command or a statement that is not ours."""


STARTS = {
    "serve|worker|migrate|call": "tests/test_deploy_runs.py::test_the_compose_file_s_services_answer_a_call_with_a_key",
    "dev( --tools shop.py)?": "tests/test_readme.py::shop_url",
    r"serve --processes( \w)?": "tests/test_deploy_runs.py::"
    "test_several_processes_have_a_port_for_operators_each_from_the_first_on",
    "worker --tools your.module": "tests/test_deploy_runs.py::test_a_process_starts_answers_its_probes_and_stops",
}
"""Which test runs a command of ours that is not done at once."""


def parse(words: list[str]) -> None:
    """Read a command of ours as the command line does; a name alone, of a command or a group, is enough."""
    command: Any = typer.main.get_command(cli)
    rest = list(words)
    while hasattr(command, "get_command") and rest:
        name = rest.pop(0)
        command = command.get_command(None, name)
        assert command is not None, f"there is no command {name}"
    command.make_context(words[0], rest, resilient_parsing=not rest)


@pytest.mark.parametrize("written", sorted(set(OURS)))
def test_a_command_of_a_sentence_is_understood(written: str) -> None:
    words = [MEANT.get(word, word) for word in shlex.split(written)]
    if words[-1] == "--processes":  # named without a value
        words.append("2")
    parse(words)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("serve --nonsense", "No such option"),
        ("serve --processes two", "valid integer"),
        ("tasks look", "no command"),
    ],
)
def test_a_wrong_command_would_not_be_understood(wrong: str, says: str) -> None:
    with pytest.raises(Exception, match=says):
        parse(wrong.split())


def test_the_operators_commands_of_sentences_do_something(db_url: str) -> None:
    tasks = make_each(db_url)
    whole = [words for words in OPERATE if re.search(r" (--|ID|OWNER)", words)]
    assert len(whole) >= 6
    for words in [*whole, "check", "tools", "workers", "roles"]:
        given = [str(tasks["failed"]) if word == "ID" else MEANT.get(word, word) for word in words.split()]
        assert run(db_url, *given).code in (0, 1), words  # `check` fails: there is no worker


def test_each_command_that_is_not_done_at_once_has_a_test() -> None:
    for words in set(OURS) - set(OPERATE):
        assert len([pattern for pattern in STARTS if re.fullmatch(pattern, words)]) == 1, words
    for found in STARTS.values():
        path, _, test = found.partition("::")
        assert test in names_in(ROOT / path)


def test_what_is_named_of_other_programs_and_sql_has_a_test_each() -> None:
    named = {span for span in NAMED if OTHER.match(span)}
    assert named == OTHERS.keys()
    for found in OTHERS.values():
        path, _, test = found.partition("::")
        assert test in names_in(ROOT / path)


def test_the_audit_is_one_of_the_checks() -> None:
    assert list(CHECKS["pip-audit"])[1:] == ["-m", "tests.audit"]
