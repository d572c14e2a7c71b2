"""`perdure call` in a pipe, against a service and a worker that run: what it prints where, and its exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.calling import Called, call
from tests.support.dev import running_dev

TOOLS = Path(__file__).with_name("call_tools.py")


@pytest.fixture(scope="module")
def url(module_db_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with the tools of call_tools.py."""
    with running_dev(tmp_path_factory.mktemp("dev"), module_db_url, TOOLS) as url:
        yield url


def task_of(called: Called) -> str:
    """The id of the task that a command has told of."""
    found = re.search(r"^Task (\S+)$", called.err, re.MULTILINE)
    assert found is not None, called
    return found[1]


def test_only_the_result_is_on_stdout_and_how_it_went_is_on_stderr(url: str) -> None:
    called = call("work", "--arg", "seconds=1", "--url", url)
    assert (called.code, called.out) == (0, "done\n")
    assert called.err.splitlines()[-2:] == ["working", "working: Working hard"]


def test_arguments_are_json_where_the_tool_takes_no_text(url: str) -> None:
    given = ["text=3", "count=3", "ratio=2.5", "on=true", 'tags=["a"]', 'more={"k": null}', "maybe=null"]
    called = call("echo", *(word for pair in given for word in ("--arg", pair)), "--url", url)
    assert called.code == 0
    assert json.loads(called.out) == {
        "text": "3",
        "count": 3,
        "ratio": 2.5,
        "on": True,
        "tags": ["a"],
        "more": {"k": None},
        "maybe": None,
    }


def test_single_arguments_go_before_those_of_the_whole_object(url: str) -> None:
    called = call("echo", "--args", '{"text": "a", "count": 1}', "--arg", "text=b=c", "--json", "--url", url)
    assert called.document["result"]["structuredContent"] | {} == {
        "text": "b=c",
        "count": 1,
        "ratio": 0,
        "on": False,
        "tags": [],
        "more": {},
        "maybe": None,
    }


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["echo", "--arg", "count=many"], "--arg count takes JSON, since the tool wants integer"),
        (["echo", "--arg", "count=NaN"], "--arg count takes JSON"),
        (["echo", "--arg", "text"], "--arg takes NAME=VALUE"),
        (["echo", "--args", "[1]"], "--args takes a JSON object"),
        (["eco"], "There is no tool eco; there are: confirm_first, echo, fail, profile, region, visit, work"),
        ([], "give the name of a tool, or --task"),
        (["echo", "--task", "1"], "give the name of a tool, or --task"),
        (["--task", "1", "--arg", "a=1"], "--task takes no arguments"),
        (["--task", "01a22b94-cd5f-70d1-a545-c24a72abffbd"], "Task not found"),
    ],
)
def test_what_cannot_be_called_is_told_with_exit_code_2(url: str, arguments: list[str], complaint: str) -> None:
    called = call(*arguments, "--url", url)
    assert (called.code, called.out) == (2, "")
    assert complaint in " ".join(re.sub(r"[│\s]+", " ", called.err).split())


def test_a_tool_that_fails_exits_with_1_and_says_why_on_stderr(url: str) -> None:
    called = call("fail", "--arg", "how=tool", "--url", url)
    assert (called.code, called.out) == (1, "")
    assert called.err.endswith("Out of \x1b[31mpaper.\n")  # as it came: this is no terminal


def test_a_task_that_failed_exits_with_1_and_its_error(url: str) -> None:
    called = call("fail", "--arg", "how=protocol", "--url", url)
    assert (called.code, called.out) == (1, "")
    assert called.err.endswith("It failed: No printer (4711)\n")


def test_arguments_that_do_not_fit_are_the_tool_s_failure(url: str) -> None:
    called = call("echo", "--args", '{"text": 1}', "--url", url)
    assert called.code == 1
    assert "Invalid arguments" in called.err


def test_json_is_the_task_s_last_state_and_nothing_else(url: str) -> None:
    called = call("fail", "--arg", "how=protocol", "--json", "--url", url)
    assert called.code == 1
    assert called.document["taskId"] == task_of(called)
    assert called.document["status"] == "failed"
    assert called.document["error"] == {"code": 4711, "message": "No printer"}
    assert "resultType" not in called.document


def test_a_question_that_nobody_can_answer_exits_with_4_and_how_to_answer_it(url: str) -> None:
    called = call("visit", "--url", url)
    assert (called.code, called.out) == (4, "")
    assert "page: Sign in, please. https://accounts.example.com/in?id=1" in called.err
    assert f"perdure call --task {task_of(called)} --url {url}" in called.err


def test_with_json_an_open_question_is_in_the_document(url: str) -> None:
    called = call("profile", "--json", "--url", url)
    assert (called.code, called.document["status"]) == (4, "input_required")
    [(key, question)] = called.document["inputRequests"].items()
    assert (key, question["params"]["message"]) == ("profile", "Who are you?")


def test_a_question_before_the_task_is_in_the_document_with_its_state(url: str) -> None:
    called = call("confirm_first", "--json", "--url", url)
    assert (called.code, called.document["status"]) == (4, "input_required")
    assert "taskId" not in called.document
    assert called.document["inputRequests"].keys() == {"before"}
    assert called.document["requestState"]
    assert "send the call again with inputResponses and requestState" in called.err


def test_a_task_that_has_ended_can_be_taken_up(url: str) -> None:
    task_id = task_of(call("work", "--arg", "seconds=0", "--url", url))
    called = call("--task", task_id, PERDURE_URL=url)
    assert (called.code, called.out, called.err) == (0, "done\n", "")


def test_what_is_answered_at_once_is_a_document_too(url: str) -> None:
    called = call("region", "--arg", "place=Zürich", "--json", "--url", url)
    assert called.code == 0
    assert called.document["status"] == "completed"
    assert called.document["result"]["content"] == [{"type": "text", "text": "in Zürich"}]
