"""`perdure call` at a terminal: its questions, and Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.support.cable import cable_to
from tests.support.dev import running_dev
from tests.support.terminal import Terminal, at_terminal

TOOLS = Path(__file__).with_name("call_tools.py")


@pytest.fixture(scope="module")
def url(module_db_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with the tools of call_tools.py."""
    with running_dev(tmp_path_factory.mktemp("dev"), module_db_url, TOOLS) as url:
        yield url


def task_of(terminal: Terminal) -> str:
    """The id of the task that a command has told of."""
    found = re.search(r"Task ([0-9a-f-]{36})", terminal.shown)
    assert found is not None, terminal.shown
    return found[1]


def test_a_form_is_asked_field_by_field_until_each_fits(url: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with at_terminal("call", "profile", "--json", "--url", url, out=out) as terminal:
        terminal.expect(f"{url.split('/')[2]} asks:\nWho are you?")
        terminal.answers(
            ("Answer? [y]es, [d]ecline, [c]ancel", "perhaps"),
            ("Type one of y, d, c.", ""),
            ("Your name: ", ""),
            ("cannot be left out", "L"),
            ("shorter than 2", "Luca"),
            ("age (a whole number): ", "4.5"),
            ("whole number.", "151"),
            ("maximum of 150", "42"),
            ("height (a number): ", "tall"),
            ("Type a number.", "1.8"),
            ("2 green\ncolour: ", "3"),
            ("from 1 to 2", "2"),
            ("3 l\nsizes (some of them, with commas between, optional) [m]: ", "s, 3"),
            ("sure (yes or no, optional) [yes]: ", "maybe"),
            ("yes or no.", ""),
            ("mail (an e-mail address, optional): ", "luca"),
            ("does not fit", "luca@example.com"),
            ("born (such as 2026-12-31, optional): ", "2026-02-30"),
            ("does not fit", ""),
        )
        terminal.answers(("mail: luca@example.com\nSend it? [s]end, [e]dit, [d]ecline, [c]ancel: ", "e"))
        terminal.answers(("Your name [Luca]: ", "Lucia"), *((f"{field} ", "") for field in ("age", "height", "colour")))
        terminal.answers(*((f"{field} ", "") for field in ("sizes", "sure", "mail", "born")), ("Send it?", ""))
        assert terminal.ends() == 0
    assert json.loads(out.read_text())["result"]["structuredContent"] == {
        "name": "Lucia",
        "age": 42,
        "height": 1.8,
        "colour": "green",
        "sizes": ["s", "l"],
        "sure": True,
        "mail": "luca@example.com",
        "born": None,
    }


def test_a_question_that_is_declined_is_declined(url: str) -> None:
    with at_terminal("call", "profile", "--url", url) as terminal:
        terminal.answers(("Answer?", "d"))
        terminal.expect('"said": "no"')
        assert terminal.ends() == 0


def test_a_page_is_shown_with_its_host_and_opened_by_the_user(url: str) -> None:
    with at_terminal("call", "visit", "--url", url) as terminal:
        terminal.expect("a page of accounts.example.com:\nhttps://accounts.example.com/in?id=1")
        terminal.answers(("Do you?", "y"))
        terminal.expect("Accepted")
        assert terminal.ends() == 0


def test_a_task_that_was_left_asking_is_taken_up_and_its_question_dismissed(url: str) -> None:
    task_id = call("visit", "--json", "--url", url).document["taskId"]
    with at_terminal("call", "--task", task_id, "--url", url) as terminal:
        terminal.answers(("Do you?", "c"))
        terminal.expect("Dismissed")
        assert terminal.ends() == 0


def test_a_question_before_the_task_is_answered_and_the_task_followed(url: str) -> None:
    with at_terminal("call", "confirm_first", "--url", url) as terminal:
        terminal.answers(("Answer?", "y"), ("sure (yes or no, optional): ", "y"), ("Send it?", "s"))
        terminal.expect("Task ")
        terminal.answers(("Still?\nAnswer?", "d"))
        terminal.expect("True, False")
        assert terminal.ends() == 0


def test_what_tools_say_cannot_steer_the_terminal(url: str) -> None:
    with at_terminal("call", "fail", "--arg", "how=tool", "--url", url) as terminal:
        terminal.expect("Out of \\x1b[31mpaper.")
        assert terminal.ends() == 1


def test_ctrl_c_asks_and_cancels_the_task(url: str) -> None:
    with at_terminal("call", "work", "--url", url) as terminal:
        terminal.expect("working: Working hard")
        terminal.interrupt()
        terminal.answers(("Cancel the task? [n]o, it goes on without me, [y]es: ", "y"))
        assert terminal.ends() == 3
    assert call("--task", task_of(terminal), "--json", "--url", url).document["status"] == "cancelled"


def test_ctrl_c_can_leave_the_task_to_be_taken_up_again(url: str) -> None:
    with at_terminal("call", "profile", "--url", url) as terminal:
        terminal.expect("Answer?")
        terminal.interrupt()
        terminal.answers(("Cancel the task?", ""))
        terminal.expect(f"perdure call --task {task_of(terminal)} --url {url}")
        assert terminal.ends() == 130
    assert call("--task", task_of(terminal), "--json", "--url", url).document["status"] == "input_required"


def test_with_json_ctrl_c_leaves_the_task_and_says_where_it_is(url: str, tmp_path: Path) -> None:
    with at_terminal("call", "work", "--json", "--url", url, out=tmp_path / "out") as terminal:
        terminal.expect("working: Working hard")
        terminal.interrupt()
        terminal.expect("perdure call --task")
        assert terminal.ends() == 130
    left = json.loads((tmp_path / "out").read_text())
    assert (left["status"], left["taskId"]) == ("working", task_of(terminal))


async def test_a_connection_that_fails_for_a_while_is_told_and_does_no_harm(url: str) -> None:
    async with cable_to(url) as cable:
        with at_terminal("call", "work", "--arg", "seconds=2", "--url", f"{cable.url}") as terminal:
            await asyncio.to_thread(terminal.expect, "working: Working hard")
            await cable.pull_out()
            await asyncio.to_thread(terminal.expect, "cannot be reached")
            await cable.plug_in()
            await asyncio.to_thread(terminal.expect, "done")
            assert await asyncio.to_thread(terminal.ends) == 0
