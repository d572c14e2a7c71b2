"""The service, as real processes, before the protocol's official conformance suite: one test a scenario."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from tests.conformance.suite import INSTALL_SECONDS, SCENARIO_SECONDS, Case, Suite
from tests.support.command import perdure

pytestmark = pytest.mark.timeout(INSTALL_SECONDS + 2 * SCENARIO_SECONDS)

TOOLS = sorted(Path(__file__).parent.glob("tools_*.py"))

TASKS = [
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
]
QUESTIONS = [
    "input-required-result-basic-elicitation",
    "input-required-result-basic-sampling",
    "input-required-result-basic-list-roots",
    "input-required-result-request-state",
    "input-required-result-multiple-input-requests",
    "input-required-result-multi-round",
    "input-required-result-missing-input-response",
    "input-required-result-result-type",
    "input-required-result-unsupported-methods",
    "input-required-result-tampered-state",
    "input-required-result-capability-check",
    "input-required-result-ignore-extra-params",
    "input-required-result-validate-input",
]
ON_PROMPTS = {"input-required-result-non-tool-request"}
HTTP = ["server-stateless", "http-header-validation", "http-custom-header-server-validation"]
OLDER_TOO = [
    "dns-rebinding-protection",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "server-sse-multiple-streams",
    "json-schema-2020-12",
]
"""Scenarios that the suite speaks as an older client unless it is told otherwise; both must do."""

CASES = [
    *(Case(scenario) for scenario in TASKS + QUESTIONS + HTTP + OLDER_TOO),
    *(Case(scenario, "2026-07-28") for scenario in OLDER_TOO),
]

SHORTFALLS: dict[Case, set[tuple[str, str]]] = {
    # The suite has no test of notifications yet: this scenario is nothing but a skipped check.
    Case("tasks-status-notifications"): {("tasks-status-notifications", "SKIPPED")},
    # There are no prompts; and the suite would have a tool change the list of tools, and wait for 1.5 s to be told.
    Case("server-stateless"): {
        ("sep-2575-server-sends-prompts-list-changed-on-subscription", "SKIPPED"),
        ("sep-2575-server-sends-tools-list-changed-on-subscription", "WARNING"),
    },
    # Older clients are served without sessions, and without one the suite tests nothing more here.
    Case("server-sse-multiple-streams"): {("server-sse-multiple-streams-session", "WARNING")},
    # Said of replies as JSON: a server may choose them.
    Case("server-sse-multiple-streams", "2026-07-28"): {("server-sse-streams-functional", "INFO")},
}
"""The checks of a scenario that are known not to succeed, with what becomes of them; all others must."""


@pytest.fixture(scope="session")
def suite(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """The suite, installed once for all runs of pytest in this checkout, where pytest keeps a cache."""
    npm = shutil.which("npm")
    if npm is None:
        reason = "the official conformance suite needs npm, which is not on the PATH"
        if request.config.getoption("conformance") == "required":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    cache = getattr(request.config, "cache", None)
    return Suite.install(npm, cache.mkdir("conformance") if cache else tmp_path_factory.mktemp("conformance"))


@pytest.fixture(scope="session")
def url(suite: Suite, shared_db_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An API and a worker with the tools that the suite calls; the suite comes first, because it may be left out."""
    folder = tmp_path_factory.mktemp("conformance")
    tools = [argument for path in TOOLS for argument in ("--tools", path)]
    settings = {"DATABASE_URL": shared_db_url, "PERDURE_REQUEST_STATE_KEY": token_hex()}
    with (
        perdure(folder / "worker", "worker", *tools, **settings) as worker,
        perdure(folder / "api", "serve", "--port", "0", *tools, **settings) as api,
    ):
        worker.says("worker started")
        yield api.says(r'"url": "(http://127\.0\.0\.1:\d+/mcp)"')


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(filter(None, case)))
def test_a_scenario_is_passed(case: Case, suite: Suite, url: str, tmp_path: Path) -> None:
    run = suite.run(case, url, tmp_path)
    assert run.checks, run.report
    assert run.shortfalls == SHORTFALLS.get(case, set()), run.report
    assert run.code == 0, run.output


def test_no_scenario_on_tasks_or_questions_is_left_out(suite: Suite) -> None:
    asked = {name for name in suite.scenarios() if name.startswith(("tasks-", "input-required-result-"))}
    assert {case.scenario for case in CASES} & asked == asked - ON_PROMPTS
    assert asked >= ON_PROMPTS | {*TASKS, *QUESTIONS}
