"""The log: one line an event, which nothing from outside can forge, and no secrets."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest
import stamina
import stamina.instrumentation
import structlog

from app.telemetry import logs

NASTY = "a\x1b[2J\nforged \u202e\x9b"


def written(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    out, err = capsys.readouterr()
    assert out == ""
    return [json.loads(line) for line in err.splitlines()]


def test_our_lines_and_those_of_libraries_look_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json")
    structlog.get_logger("app.worker").info("claimed", tasks=3)
    logging.getLogger("some.library").warning("odd: %s", "thing")
    ours, theirs = written(capsys)
    assert (ours["event"], ours["tasks"], ours["level"], ours["logger"]) == ("claimed", 3, "info", "app.worker")
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("odd: thing", "warning", "some.library")
    assert ours.keys() - {"tasks"} == theirs.keys()


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_line_that_is_written_often_looks_like_any_other(style: Any, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(style)
    fields: dict[str, Any] = {"method": f"tools/{NASTY}", "status": 200, "ms": 1.5}
    with structlog.contextvars.bound_contextvars(trace_id="4bf92f35"):
        logs.line("app.http", "request", **fields)
        structlog.get_logger("app.http").info("request", **fields)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    if style == "json":
        often, other = ({**json.loads(text), "timestamp": ""} for text in lines)
        assert often == other
    else:
        assert re.sub(r"^\S+ \S+", "", lines[0]) == re.sub(r"^\S+ \S+", "", lines[1])


def test_its_time_is_written_as_that_of_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json")
    logs.line("app.http", "request")
    structlog.get_logger("app.http").info("request")
    often, other = (line["timestamp"] for line in written(capsys))
    assert len(often) == len(other) == 27
    assert often <= other


async def test_lines_of_one_round_of_the_loop_are_written_together_and_before_what_is_logged_later(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("json")
    for number in range(3):
        logs.line("app.http", "request", number=number)
    assert capsys.readouterr().err == ""
    await asyncio.sleep(0)
    assert [line["number"] for line in written(capsys)] == [0, 1, 2]
    logs.line("app.http", "request")
    structlog.get_logger("app").info("later")
    assert [line["event"] for line in written(capsys)] == ["request", "later"]


LEAVING = {
    "returns": ("return", 0),
    "fails": ("raise OSError('broken')", 1),
    "exits": ("raise SystemExit(3)", 3),
    "leaves handlers behind": ("from app.process import leave; leave(3)", 3),
    "gets a second signal": (
        "from app.process import Signals; Signals().__enter__(); "
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM); os.kill(os.getpid(), signal.SIGTERM)",
        128 + 15,
    ),
}
PROCESS = """
import asyncio
from app.telemetry import logs

async def main():
    logs.line("app.http", "request")
    {}
    await asyncio.Event().wait()

logs.configure("json")
asyncio.run(main())"""


@pytest.mark.parametrize("how", LEAVING)
def test_a_line_that_waits_is_written_before_the_process_ends(how: str) -> None:
    leave, code = LEAVING[how]
    command = [sys.executable, "-W", "error", "-c", PROCESS.format(leave)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, json.loads(ended.stderr.splitlines()[0])["event"]) == (code, "request")


async def test_a_process_that_leaves_at_once_waits_for_no_thread_that_writes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("json")
    lock, held, go_on = logging.root.handlers[0].lock, threading.Event(), threading.Event()
    assert lock is not None

    def write() -> None:
        with lock:
            held.set()
            go_on.wait(20)

    logs.line("app.http", "request")
    writing = threading.Thread(target=write)
    writing.start()
    held.wait(20)
    logs.flush()
    assert writing.is_alive()
    assert capsys.readouterr().err == ""
    go_on.set()
    writing.join()
    logs.flush()
    assert [line["event"] for line in written(capsys)] == ["request"]


def test_a_line_below_the_level_or_for_a_log_that_is_gone_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "warning")
    logs.line("app.http", "request")
    assert written(capsys) == []
    logs.configure("json")
    broken = io.StringIO()
    logging.root.handlers[0].setStream(broken)  # type: ignore[attr-defined]
    broken.close()
    logs.line("app.http", "request")


def test_json_is_written_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    structlog.get_logger().info("hello")
    assert [line["event"] for line in written(capsys)] == ["hello"]


def test_what_is_below_the_level_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "warning")
    structlog.get_logger("app").info("quiet")
    logging.getLogger("library").info("quiet")
    structlog.get_logger("app").warning("loud")
    assert [line["event"] for line in written(capsys)] == ["loud"]


def test_configuring_again_replaces_what_was(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "debug")
    logs.configure("json", "debug")
    structlog.get_logger("app").debug("once")
    assert len(written(capsys)) == 1


@pytest.mark.parametrize("style", ["console", "json"])
def test_text_from_outside_stays_on_its_line(style: Any, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(style)
    structlog.get_logger("app").info(NASTY, tool=NASTY, nested=[NASTY])
    logging.getLogger("library").info("%s", NASTY)
    text = capsys.readouterr().err
    assert len(text.splitlines()) == 2
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("style", ["console", "json"])
def test_a_traceback_is_written_but_moves_no_cursor(style: Any, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(style)
    try:
        raise ValueError(NASTY)
    except ValueError:
        structlog.get_logger("app").exception("failed")
    text = capsys.readouterr().err
    assert "test_a_traceback_is_written" in text
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("style", ["console", "json"])
def test_passwords_and_tokens_are_struck_out_wherever_they_are(style: Any, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(style)
    secret = "postgresql://me:hu@sh/1@there/tasks"
    log = structlog.get_logger("app")
    log.info(f"at {secret}", url=secret, headers={"Authorization": "Bearer hush.hu-sh"})
    log.info(
        "a key perdure_XoiG9-j_ZMsW3PFgHjhush_lcdbITsIwd4_zMU8P53E alone", token="eyJhbGciOiJIhush.eyJpc3Mihush.hush"
    )
    try:
        raise OSError("no postgresql+asyncpg://me:hush@there/tasks")
    except OSError:
        log.exception("failed")
    text = capsys.readouterr().err
    assert not re.search("hu|sh/1", text.replace("failed", ""))
    assert text.count("me:***@there/tasks") >= 3


def test_a_retry_is_told_without_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json")
    for attempt in stamina.retry_context(on=OSError, attempts=2, wait_initial=0, wait_max=0):
        with attempt:
            if attempt.num == 1:
                raise ConnectionRefusedError("secret")
    (line,) = written(capsys)
    assert (line["event"], line["fault"]) == ("trying again", "ConnectionRefusedError")
    assert "secret" not in str(line)


def test_a_warning_is_a_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("old habits", stacklevel=1)
    (line,) = written(capsys)
    assert line["logger"] == "py.warnings"
    assert "old habits" in line["event"]


@pytest.mark.parametrize("style", ["console", "json"])
def test_a_traceback_shows_no_variables(style: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(argument: str) -> None:
        raise ValueError("broken")

    logs.configure(style)
    try:
        fail("hunter" + "2")
    except ValueError:
        structlog.get_logger("app").exception("failed")
    err = capsys.readouterr().err
    assert "ValueError" in err
    assert "hunter2" not in err
