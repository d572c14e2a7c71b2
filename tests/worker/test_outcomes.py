"""What a handler comes to is what its task ends with."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import asyncpg
import pytest
from pydantic import BaseModel, field_serializer, field_validator
from structlog.testing import capture_logs

from app.domain.retry import Retry
from app.domain.task import Status, TaskState
from app.errors import ProtocolError, ToolError
from app.tools.registry import Tool, tool
from tests.support.worker import working


async def outcome(db_url: str, subject: Tool, /, **arguments: Any) -> TaskState:
    """Run a tool to its end."""
    async with working(db_url, subject) as (tasks, _):
        task_id = await tasks.start(subject, **arguments)
        return await tasks.reaches(task_id, Status.COMPLETED, Status.FAILED, Status.CANCELLED)


def error_of(state: TaskState) -> dict[str, Any]:
    assert state.task.status is Status.FAILED
    assert state.error is not None
    error: dict[str, Any] = json.loads(state.error)
    return error


async def attempts(db_url: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(db_url)
    try:
        return await connection.fetch("SELECT ended, error FROM perdure.task_attempts")
    finally:
        await connection.close()


async def test_a_returned_value_completes_the_task(db_url: str) -> None:
    @tool
    async def add(a: int, b: int) -> dict[str, int]:
        """Add."""
        return {"sum": a + b}

    state = await outcome(db_url, add, a=2, b=2**70)
    assert state.result is not None
    result = json.loads(state.result)
    assert result["structuredContent"] == {"sum": 2 + 2**70}
    assert (result["isError"], result["resultType"]) == (False, "complete")
    assert await attempts(db_url) == []


@pytest.mark.requirement("R07", "R44", "R45")
async def test_a_tool_error_completes_the_task_with_is_error(db_url: str) -> None:
    @tool
    async def picky() -> str:
        """Refuse."""
        raise ToolError("No such city: \x00 🏙 \u202e")

    state = await outcome(db_url, picky)
    assert state.task.status is Status.COMPLETED
    assert state.result is not None
    result = json.loads(state.result)
    assert result["isError"] is True
    assert result["content"][0]["text"] == "No such city: \x00 🏙 \u202e"


async def test_a_tool_error_out_of_a_task_group_is_one_too(db_url: str) -> None:
    @tool
    async def grouped() -> str:
        """Fail inside a group."""

        async def fail() -> None:
            raise ToolError("inner")

        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
        return "never"

    state = await outcome(db_url, grouped)
    assert state.result is not None
    assert json.loads(state.result)["isError"] is True


@pytest.mark.requirement("R46")
async def test_a_protocol_error_fails_the_task_with_that_error(db_url: str) -> None:
    @tool
    async def limited() -> str:
        """Run into a limit."""
        raise ProtocolError(-31001, "API rate limit exceeded", {"retryAfter": 30})

    state = await outcome(db_url, limited)
    assert error_of(state) == {"code": -31001, "message": "API rate limit exceeded", "data": {"retryAfter": 30}}
    assert state.task.status_message == "API rate limit exceeded"


async def test_an_exception_tells_clients_nothing_and_operators_all(db_url: str) -> None:
    @tool
    async def broken() -> str:
        """Break."""
        raise KeyError("the secret of /etc/passwd")

    state = await outcome(db_url, broken)
    assert error_of(state) == {"code": -32603, "message": "The tool failed with an internal error"}
    assert "secret" not in str(state)
    [attempt] = await attempts(db_url)
    assert attempt["ended"] == "error"
    assert "KeyError: 'the secret of /etc/passwd'" in attempt["error"]


@pytest.mark.parametrize("leave", [sys.exit, asyncio.CancelledError])
async def test_a_handler_that_leaves_by_itself_fails_and_the_worker_goes_on(db_url: str, leave: Any) -> None:
    @tool
    async def leaving(go: bool) -> str:
        """Leave or stay."""
        if go:
            raise leave() if isinstance(leave, type) else leave(3)
        return "stayed"

    async with working(db_url, leaving) as (tasks, _):
        gone, stays = await tasks.start(leaving, go=True), await tasks.start(leaving, go=False)
        assert error_of(await tasks.reaches(gone, Status.FAILED))["code"] == -32603
        await tasks.reaches(stays, Status.COMPLETED)


async def test_a_result_that_breaks_the_promised_schema_fails_with_a_reason(db_url: str) -> None:
    class Weather(BaseModel):
        celsius: float

    @tool
    async def weather() -> Weather:
        """Promise a number."""
        return Weather.model_construct(celsius="warm")  # type: ignore[arg-type]  # the point of it

    state = await outcome(db_url, weather)
    assert error_of(state)["code"] == -32603
    assert state.task.status_message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"deep": float("-inf")}])
async def test_a_result_that_json_cannot_hold_fails_once_and_for_all(db_url: str, value: Any) -> None:
    @tool
    async def unstorable() -> Any:
        """Return what cannot be stored."""
        return value

    state = await outcome(db_url, unstorable)
    assert error_of(state)["code"] == -32603
    assert state.task.epoch == 1


async def test_a_result_beyond_the_cap_fails_with_a_reason(db_url: str) -> None:
    @tool
    async def chatty(size: int) -> str:
        """Return much."""
        return "x" * size

    async with working(db_url, chatty, max_result_bytes=10_000) as (tasks, _):
        small, large = await tasks.start(chatty, size=9_000), await tasks.start(chatty, size=10_001)
        await tasks.reaches(small, Status.COMPLETED)
        failed = await tasks.reaches(large, Status.FAILED)
        assert "10000 bytes" in str(failed.task.status_message)


@pytest.mark.parametrize("how", ["text", "message", "data"])
async def test_an_error_beyond_the_cap_fails_with_a_reason(db_url: str, how: str) -> None:
    @tool
    async def verbose() -> str:
        """Complain at length, in few characters of many bytes."""
        complaint = "\U0001f4a3" * 3_000
        match how:
            case "text":
                raise ToolError(complaint)
            case "message":
                raise ProtocolError(4711, complaint)
            case _:
                raise ProtocolError(4711, "Much", complaint)

    async with working(db_url, verbose, max_result_bytes=10_000) as (tasks, _):
        failed = await tasks.reaches(await tasks.start(verbose), Status.FAILED)
        assert "10000 bytes" in str(failed.task.status_message)
        assert error_of(failed)["code"] == -32603


class Unspeakable:
    """Something that has no text."""

    def __str__(self) -> str:
        raise KeyError("a secret")


@pytest.mark.parametrize(
    ("code", "message"), [("4711", "Out of paper"), (True, "Out of paper"), (4711, 7), (4711, None)]
)
async def test_an_error_that_is_none_of_the_protocol_fails_the_task_once_and_for_all(
    db_url: str, code: Any, message: Any
) -> None:
    @tool
    async def careless() -> str:
        """Raise what the protocol does not have."""
        raise ProtocolError(code, message)

    state = await outcome(db_url, careless)
    assert error_of(state) == {"code": -32603, "message": "The tool failed with an internal error"}
    assert state.task.epoch == 1


async def test_an_error_without_a_text_fails_the_task_once_and_for_all(db_url: str) -> None:
    @tool
    async def speechless() -> str:
        """Fail without words."""
        raise ToolError(Unspeakable())

    state = await outcome(db_url, speechless)
    assert error_of(state) == {"code": -32603, "message": "The tool failed with an internal error"}
    assert "a secret" not in str(state.error)
    assert state.task.epoch == 1


class Unshowable(RuntimeError):
    """An error that breaks whoever asks whether it is there."""

    def __bool__(self) -> bool:
        raise KeyError("a secret")


@pytest.mark.parametrize("times", [0, 1])
async def test_an_error_that_cannot_be_shown_fails_the_task_as_any_other(db_url: str, times: int) -> None:
    @tool(retries=Retry(times, delay="10ms"))
    async def odd() -> str:
        """Fail with an odd error."""
        raise Unshowable

    with capture_logs() as logs:
        state = await outcome(db_url, odd)
    assert error_of(state) == {"code": -32603, "message": "The tool failed with an internal error"}
    assert state.task.epoch == times + 1
    said = "Unshowable was raised, and cannot be shown: KeyError"
    for ended, told in await attempts(db_url):
        assert (ended, told.splitlines()[-1]) == ("error", f"RuntimeError: {said}") or ended == "retried"
        assert "in odd" in told
    assert [str(line["exc_info"]) for line in logs if "exc_info" in line] == [said] * (times + 1)


async def test_arguments_that_no_longer_fit_the_tool_are_an_error_result(db_url: str) -> None:
    @tool
    async def exact(number: int) -> str:
        """Take a number."""
        return str(number)

    state = await outcome(db_url, exact, number="many")
    assert state.result is not None
    result = json.loads(state.result)
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith("Invalid arguments: number: ")


async def test_a_stop_iteration_out_of_a_plain_function_fails_the_task(db_url: str) -> None:
    @tool
    def exhausted() -> str:
        """Take one too many."""
        return str(next(iter(())))

    assert error_of(await outcome(db_url, exhausted))["code"] == -32603


class Odd(BaseModel):
    """A model whose own code breaks on the way in or out."""

    way: str

    @field_validator("way")
    @classmethod
    def _in(cls, way: str) -> str:
        if way == "in":
            raise KeyError("a secret")
        return way

    @field_serializer("way")
    def _out(self, way: str) -> str:
        if way == "out":
            raise KeyError("a secret")
        return way


@pytest.mark.parametrize("way", ["in", "out"])
async def test_a_models_own_code_that_breaks_fails_the_task_once_and_for_all(db_url: str, way: str) -> None:
    @tool
    async def through(odd: Odd) -> Odd:
        """Give back what came."""
        return odd

    state = await outcome(db_url, through, odd={"way": way})
    assert error_of(state)["code"] == -32603
    assert "a secret" not in str(state.error)
    assert state.task.epoch == 1
