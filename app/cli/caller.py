"""A call of a tool from the terminal, from its arguments to its end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from enum import IntEnum
from typing import Any, TypeVar

from app.cli.call_arguments import mirrored, read_arguments
from app.cli.call_client import CallError, ServiceError, Unreachable, connected
from app.cli.call_display import Display, progress_of, questions, show_json
from app.cli.call_forms import Asker
from app.wire.envelope import printable

HERE = "http://127.0.0.1:8765/mcp"
PATIENCE_SECONDS = 30.0
"""How long a service that cannot be reached is tried again, once there is a task."""

_MAX_PAGES = 100
_ENDED = ("completed", "failed", "cancelled")

T = TypeVar("T")
State = dict[str, Any]
"""A task as `tasks/get` shows it; of a call that is no task, a `status` and what belongs to that."""


class Ending(IntEnum):
    """Exit codes; 2 is that of an error."""

    COMPLETED = 0
    FAILED = 1
    CANCELLED = 3
    ASKS = 4
    INTERRUPTED = 130


class Unanswered(Exception):
    """Something is asked that cannot be answered here."""


class Caller:
    """Follows one call. Questions are asked between requests, when nothing else runs.

    Args:
        runner: runs the requests.
        as_json: print the last state instead of the result.

    Raises:
        CallError: the URL or the token is none.
    """

    def __init__(self, runner: asyncio.Runner, url: str, token: str | None, *, as_json: bool) -> None:
        self._runner, self._as_json = runner, as_json
        self._stack = AsyncExitStack()
        self._client = self._run(self._stack.enter_async_context(connected(url, token)))
        self._elsewhere = "" if url == HERE else f" --url {url}"
        self._display = Display()
        self._asker = Asker(self._display, self._client.server)
        self._terminal = sys.stdin.isatty() and sys.stderr.isatty()
        self._state: State = {}
        self._answered: set[str] = set()
        self._cancelling = False

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self._display.rest()
        self._run(self._stack.aclose())

    def call(self, tool: str, given: Sequence[str], whole: str | None) -> Ending:
        """Call a tool and follow the call to its end, with the arguments of `read_arguments`.

        Raises:
            CallError: there is no answer.
            BadParameter: an argument cannot be read.
        """
        return self._told(lambda: self._start(tool, given, whole))

    def take_up(self, task_id: str | None) -> Ending:
        """Follow a task to its end.

        Raises:
            CallError: there is no answer, or no such task.
        """
        return self._told(lambda: self._read({"taskId": task_id}, patience=0))

    def _told(self, start: Callable[[], State]) -> Ending:
        """Start, follow, and print what came of it; also where the service cannot be reached any more."""
        try:
            ending = self._followed(start)
        except CallError as error:
            self._show()
            raise CallError(f"{error}. {self._how_to_go_on()}") if "taskId" in self._state else error from None
        self._show()
        return ending

    def _followed(self, start: Callable[[], State]) -> Ending:
        while True:
            try:
                self._state = self._state or start()
                return self._follow()
            except Unanswered:
                self._display.say(self._how_to_answer())
                return Ending.ASKS
            except (KeyboardInterrupt, EOFError):
                if not self._is_cancelled():
                    self._display.say(self._how_to_go_on())
                    return Ending.INTERRUPTED

    # -- the call ----------------------------------------------------------------------------------------------------

    def _start(self, tool: str, given: Sequence[str], whole: str | None) -> State:
        """Call a tool, answer what it asks before there is a task, and return what became of the call."""
        schema = self._schema(tool)
        arguments = read_arguments(given, whole, schema)
        headers = mirrored(arguments, schema)
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        while True:
            self._display.progress(f"{tool} is called")
            try:
                result = self._send(params, headers)
            except ServiceError as failed:
                return {"status": "failed", "error": failed.error}
            match result.pop("resultType", "complete"):
                case "task":
                    return self._created(result)
                case "input_required":
                    params = {"name": tool, "arguments": arguments} | self._answered_at_once(result)
                case _:
                    return {"status": "completed", "result": result}

    def _created(self, handle: dict[str, Any]) -> State:
        """The task of a handle, which tells neither questions nor outcome: the first poll does."""
        self._display.say(f"Task {handle.get('taskId')}")
        return _task(handle | {"status": "working"})

    def _schema(self, tool: str) -> dict[str, Any]:
        """The input schema of a tool that the service offers."""
        cursor: dict[str, Any] = {}
        names: list[str] = []
        for _ in range(_MAX_PAGES):
            page = self._run(self._client.request("tools/list", cursor))
            for listed in page.get("tools", []):
                if listed["name"] == tool:
                    schema: dict[str, Any] = listed.get("inputSchema", {})
                    return schema
                names.append(listed["name"])
            if page.get("nextCursor") is None:
                break
            cursor = {"cursor": page["nextCursor"]}
        offered = ", ".join(printable(name) for name in names)
        raise CallError(f"There is no tool {printable(tool)}; there are: {offered or 'none'}")

    def _answered_at_once(self, result: dict[str, Any]) -> dict[str, Any]:
        """What a call is sent again with: responses, and the state as it came (core, "Multi Round-Trip Requests")."""
        self._state = {"status": "input_required"} | result
        echoed = {key: result[key] for key in ("requestState",) if key in result}
        if result.get("inputRequests"):
            echoed["inputResponses"] = self._responses(result["inputRequests"])
        else:
            self._wait(1)
        self._state = {}
        return echoed

    # -- the task ----------------------------------------------------------------------------------------------------

    def _follow(self) -> Ending:
        """Poll the task, answering what it asks, until it has ended."""
        while self._state["status"] not in _ENDED:
            requests = self._state.get("inputRequests", {})
            asked = {key: request for key, request in requests.items() if key not in self._answered}
            if asked and not self._cancelling:
                responses = self._responses(asked)
                self._patiently("tasks/update", self._named() | {"inputResponses": responses})
                self._answered |= responses.keys()
            else:
                self._display.progress(progress_of(self._state))
                self._wait(self._state.get("pollIntervalMs", 1000) / 1000)
            self._state = self._read(self._named())
        if self._state["status"] == "completed":
            return Ending.FAILED if self._state["result"].get("isError") else Ending.COMPLETED
        return Ending.FAILED if self._state["status"] == "failed" else Ending.CANCELLED

    def _read(self, named: dict[str, Any], patience: float | None = None) -> State:
        return _task(self._patiently("tasks/get", named, patience))

    def _responses(self, requests: dict[str, Any]) -> dict[str, Any]:
        """What the user answers to those questions that a user can be asked.

        Raises:
            Unanswered: there is none, or no user.
        """
        if not self._terminal:
            raise Unanswered
        answers = {key: self._asker.ask(request) for key, request in requests.items()}
        responses = {key: response for key, response in answers.items() if response is not None}
        if not responses:
            raise Unanswered
        return responses

    def _is_cancelled(self) -> bool:
        """Ask, after Ctrl-C, whether the task is to be cancelled, and if so do it."""
        self._display.rest()
        if "taskId" not in self._state or not self._terminal or self._as_json or self._cancelling:
            return False
        try:
            choices = {"no": ", it goes on without me", "yes": ""}
            self._cancelling = self._asker.choose("\nCancel the task?", choices) == "yes"
        except (KeyboardInterrupt, EOFError):
            return False
        if self._cancelling:
            self._patiently("tasks/cancel", self._named())
        return self._cancelling

    def _named(self) -> dict[str, Any]:
        return {"taskId": self._state["taskId"]}

    # -- requests ----------------------------------------------------------------------------------------------------

    def _patiently(self, method: str, params: dict[str, Any], patience: float | None = None) -> dict[str, Any]:
        """A request that does no harm if it is sent twice, sent again for a while where nothing can be reached."""
        patience = PATIENCE_SECONDS if patience is None else patience
        wait, end = 0.25, 0.0
        while True:
            try:
                result = self._run(self._client.request(method, params))
            except Unreachable as fault:
                end = end or time.monotonic() + patience
                if time.monotonic() + wait > end:
                    raise
                self._display.progress(f"{fault}: it is tried again for {patience:g} seconds")
                self._wait(wait)
                wait = min(wait * 2, 4)
            else:
                return result

    def _send(self, params: dict[str, Any], mirrored: dict[str, str]) -> dict[str, Any]:
        call = self._client.request("tools/call", params, mirrored=mirrored, on_progress=self._progress)
        return self._run(call)

    def _wait(self, seconds: float) -> None:
        self._run(asyncio.sleep(min(max(seconds, 0.02), 60)))

    def _run(self, request: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(request)

    # -- what is shown -----------------------------------------------------------------------------------------------

    def _progress(self, params: dict[str, Any]) -> None:
        of = f" of {params['total']}" if "total" in params else ""
        self._display.progress(f"working: {params.get('message') or str(params.get('progress')) + of}")

    def _show(self) -> None:
        self._display.rest()
        if not self._as_json:
            self._display.ending(self._state)
        elif self._state:
            show_json(self._state)

    def _how_to_go_on(self) -> str:
        if "taskId" not in self._state:
            return "The call is given up."
        return f"The task goes on; to take it up again: perdure call --task {self._state['taskId']}{self._elsewhere}"

    def _how_to_answer(self) -> str:
        asks = f"It asks:\n{questions(self._state['inputRequests'])}"
        if "taskId" in self._state:
            command = f"perdure call --task {self._state['taskId']}{self._elsewhere}"
            return f"{asks}\nAnswer in a terminal, with {command}, or by tasks/update."
        return f"{asks}\nCall it in a terminal, or send the call again with inputResponses and requestState."


def _task(result: dict[str, Any]) -> State:
    """The task of a result, in which there is all that is relied on.

    Raises:
        CallError: there is none.
    """
    needs = {"completed": "result", "failed": "error", "input_required": "inputRequests"}
    status = result.get("status")
    if status not in (*_ENDED, "working", "input_required") or not {"taskId", needs.get(status, "taskId")} <= set(
        result
    ):
        raise CallError("The answer is no task")
    return {key: value for key, value in result.items() if key not in ("resultType", "_meta")}
