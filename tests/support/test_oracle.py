"""The oracle accepts what the server is to send, and nothing that is wrong in one point."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import judges
from tests.support.oracle import Unexpected, check_notification, check_reply, use_official

TASK_ID = "01970c3e-5b1a-7c3d-9e2f-0123456789ab"
IO = "io.modelcontextprotocol"
META = {f"{IO}/serverInfo": {"name": "perdure", "version": "0.1.0"}}
TASK = {
    "taskId": TASK_ID,
    "status": "working",
    "createdAt": "2026-08-01T10:30:00.000000Z",
    "lastUpdatedAt": "2026-08-01T10:30:00.000001Z",
    "ttlMs": None,
    "pollIntervalMs": 1000,
}
TOOL_RESULT = {"content": [{"type": "text", "text": "Hello, Luca!"}], "resultType": "complete"}
QUESTION = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Your name?", "requestedSchema": {"type": "object", "properties": {}}},
}
FAILURE = {"code": -32603, "message": "The tool failed"}
CACHED = {"ttlMs": 0, "cacheScope": "private"}

Message = dict[str, Any]


def request(method: str, version: str | None = "2026-07-28", tasks: bool = True, **params: Any) -> Message:
    capabilities: Message = {"extensions": {"io.modelcontextprotocol/tasks": {}}} if tasks else {}
    meta: Message = {"io.modelcontextprotocol/clientCapabilities": capabilities}
    if version is not None:
        meta["io.modelcontextprotocol/protocolVersion"] = version
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": meta}}


def result(**members: Any) -> Message:
    return {"jsonrpc": "2.0", "id": 7, "result": {"resultType": "complete", "_meta": META, **members}}


def error(code: int, message: str = "It is wrong", **members: Any) -> Message:
    return {"jsonrpc": "2.0", "id": 7, "error": {"code": code, "message": message, **members}}


def declaring(**capabilities: Any) -> Message:
    message = request("tools/call", name="greet", arguments={})
    message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] |= capabilities
    return message


GET = request("tasks/get", taskId=TASK_ID)
CALL = declaring()
ASKABLE = declaring(elicitation={}, sampling={}, roots={})
MISSING: Message = {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
VERSIONS = {"supported": ["2026-07-28"], "requested": "1999-01-01"}

GOOD: dict[str, tuple[Message, int, Message]] = {
    "discover": (
        request("server/discover"),
        200,
        result(
            supportedVersions=["2026-07-28"],
            capabilities={"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
            **CACHED,
        ),
    ),
    "list": (
        request("tools/list"),
        200,
        result(tools=[{"name": name, "inputSchema": {"type": "object"}} for name in ("a", "b")], **CACHED),
    ),
    "call, complete": (CALL, 200, result(**TOOL_RESULT)),
    "call, task": (CALL, 200, result(**TASK | {"resultType": "task"})),
    "call, question": (
        ASKABLE,
        200,
        result(resultType="input_required", inputRequests={"a": QUESTION}, requestState="s"),
    ),
    "get, working": (GET, 200, result(**TASK, statusMessage="Step 1")),
    "get, asking": (GET, 200, result(**TASK | {"status": "input_required"}, inputRequests={"name": QUESTION})),
    "get, completed": (GET, 200, result(**TASK | {"status": "completed"}, result=TOOL_RESULT)),
    "get, failed": (GET, 200, result(**TASK | {"status": "failed"}, statusMessage="No", error=FAILURE)),
    "get, cancelled": (GET, 200, result(**TASK | {"status": "cancelled"})),
    "update": (request("tasks/update", taskId=TASK_ID, inputResponses={}), 200, result()),
    "cancel": (request("tasks/cancel", taskId=TASK_ID), 200, result()),
    "missing capability": (request("tasks/get", tasks=False, taskId=TASK_ID), 400, error(-32021, data=MISSING)),
    "missing capability, draft": (
        request("tasks/get", "DRAFT-2026-v1", tasks=False, taskId=TASK_ID),
        400,
        error(-32003, data=MISSING),
    ),
    "missing capability, undeclared": (
        request("tools/call", None, tasks=False, name="slow"),
        400,
        error(-32003, data=MISSING),
    ),
    "version": (request("tools/list", "1999-01-01"), 400, error(-32022, data=VERSIONS)),
    "header": (CALL, 400, error(-32020)),
    "header, draft": (request("tools/call", "DRAFT-2026-v1", name="greet"), 400, error(-32001)),
    "not found": (GET, 400, error(-32602, "Failed to retrieve task: Task not found")),
    "no method": (request("ping"), 404, error(-32601)),
    "broken": (CALL, 500, error(-32603)),
}


@pytest.mark.parametrize("name", GOOD)
def test_accepts_what_the_server_is_to_send(name: str) -> None:
    sent, status, reply = GOOD[name]
    assert check_reply(sent, status, encode(reply)) == reply
    assert check_reply(encode(sent), status, encode(reply)) == reply


def put(*path: str | int, value: Any) -> Callable[[Message], None]:
    """A change that sets the member at the path."""

    def change(reply: Any) -> None:
        for step in path[:-1]:
            reply = reply[step]
        reply[path[-1]] = value

    return change


def drop(*path: str | int) -> Callable[[Message], None]:
    """A change that takes the member at the path away."""

    def change(reply: Any) -> None:
        for step in path[:-1]:
            reply = reply[step]
        del reply[path[-1]]

    return change


def wrap(reply: Message) -> None:
    reply["result"] = {"resultType": "task", "_meta": META, "task": TASK}


ANY_RESULT = [name for name, (_, status, _) in GOOD.items() if status == 200]
ANY_ERROR = [name for name, (_, status, _) in GOOD.items() if status != 200]
ANY_TASK = ["call, task", *(name for name in GOOD if name.startswith("get"))]
NOT_COMPLETED = ["call, task", "get, working", "get, asking", "get, failed", "get, cancelled"]
NOT_FAILED = ["call, task", "get, working", "get, asking", "get, completed", "get, cancelled"]
NOT_ASKING = ["call, task", "get, working", "get, completed", "get, failed", "get, cancelled"]

BAD: list[tuple[str, list[str], Callable[[Message], None]]] = [
    ("jsonrpc missing", list(GOOD), drop("jsonrpc")),
    ("another jsonrpc", list(GOOD), put("jsonrpc", value="1.0")),
    ("another id", list(GOOD), put("id", value=8)),
    ("the id as text", list(GOOD), put("id", value="7")),
    ("the id as true", list(GOOD), put("id", value=True)),
    ("the id null", list(GOOD), put("id", value=None)),
    ("no id", list(GOOD), drop("id")),
    ("another top member", list(GOOD), put("extra", value=1)),
    ("result and error", ANY_RESULT, put("error", value=FAILURE)),
    ("neither result nor error", ANY_RESULT, drop("result")),
    ("resultType missing", ANY_RESULT, drop("result", "resultType")),
    ("resultType unknown", ANY_RESULT, put("result", "resultType", value="done")),
    (
        "resultType task",
        [name for name in ANY_RESULT if name != "call, task"],
        put("result", "resultType", value="task"),
    ),
    ("resultType complete", ["call, task", "call, question"], put("result", "resultType", value="complete")),
    ("another member", ANY_RESULT, put("result", "extra", value=1)),
    ("no server name", ANY_RESULT, drop("result", "_meta")),
    ("another server name", ANY_RESULT, put("result", "_meta", value={})),
    ("a task wrapper", ["call, task", "get, working"], wrap),
    ("no task id", ANY_TASK, drop("result", "taskId")),
    ("another task id", ["get, working"], put("result", "taskId", value=TASK_ID.replace("ab", "ac"))),
    ("no UUID", ANY_TASK, put("result", "taskId", value="1")),
    ("an unknown status", ANY_TASK, put("result", "status", value="queued")),
    ("no status", ANY_TASK, drop("result", "status")),
    ("no ttlMs", ANY_TASK, drop("result", "ttlMs")),
    ("ttlMs as text", ANY_TASK, put("result", "ttlMs", value="1")),
    ("no pollIntervalMs", ANY_TASK, drop("result", "pollIntervalMs")),
    ("a broken pollIntervalMs", ANY_TASK, put("result", "pollIntervalMs", value=1.5)),
    ("no createdAt", ANY_TASK, drop("result", "createdAt")),
    ("no lastUpdatedAt", ANY_TASK, drop("result", "lastUpdatedAt")),
    ("another time zone", ANY_TASK, put("result", "lastUpdatedAt", value="2026-08-01T12:30:00.000000+02:00")),
    ("updated before created", ANY_TASK, put("result", "lastUpdatedAt", value="2026-07-01T10:30:00.000000Z")),
    ("statusMessage null", ANY_TASK, put("result", "statusMessage", value=None)),
    ("requestState", ANY_TASK, put("result", "requestState", value="s")),
    ("a result before its time", NOT_COMPLETED, put("result", "result", value=TOOL_RESULT)),
    ("an error without failure", NOT_FAILED, put("result", "error", value=FAILURE)),
    ("questions of no use", NOT_ASKING, put("result", "inputRequests", value={"name": QUESTION})),
    ("completed without result", ["get, completed"], drop("result", "result")),
    ("an inner result without type", ["get, completed"], drop("result", "result", "resultType")),
    ("an inner result without content", ["get, completed"], drop("result", "result", "content")),
    ("failed without error", ["get, failed"], drop("result", "error")),
    ("failed without reason", ["get, failed"], drop("result", "statusMessage")),
    ("an inner error without code", ["get, failed"], drop("result", "error", "code")),
    ("asking nothing", ["get, asking"], put("result", "inputRequests", value={})),
    ("asking without questions", ["get, asking"], drop("result", "inputRequests")),
    ("an unknown question", ["get, asking"], put("result", "inputRequests", "name", "method", value="tools/call")),
    ("a broken question", ["get, asking"], drop("result", "inputRequests", "name", "params", "message")),
    ("an acknowledgement with a task", ["update", "cancel"], put("result", "taskId", value=TASK_ID)),
    ("no content", ["call, complete"], drop("result", "content")),
    ("unknown content", ["call, complete"], put("result", "content", value=[{"type": "smell"}])),
    ("isError as text", ["call, complete"], put("result", "isError", value="yes")),
    ("a question on the request without state", ["call, question"], drop("result", "requestState")),
    (
        "a question on the request with a state that is no text",
        ["call, question"],
        put("result", "requestState", value=7),
    ),
    ("a question on the request without both", ["call, question"], put("result", "inputRequests", value={})),
    ("no versions", ["discover"], drop("result", "supportedVersions")),
    ("the extension with a setting", ["discover"], put("result", "capabilities", "extensions", value={"x": 1})),
    ("the older capability", ["discover"], put("result", "capabilities", "tasks", value={})),
    ("no cacheScope", ["discover", "list"], drop("result", "cacheScope")),
    ("no cache time", ["discover", "list"], drop("result", "ttlMs")),
    ("a tool without schema", ["list"], put("result", "tools", value=[{"name": "a"}])),
    ("an error without code", ANY_ERROR, drop("error", "code")),
    ("an error without message", ANY_ERROR, drop("error", "message")),
    ("an error code as text", ANY_ERROR, put("error", "code", value="-32603")),
    ("another error member", ANY_ERROR, put("error", "extra", value=1)),
    ("an endless message", ANY_ERROR, put("error", "message", value="x" * 2000)),
    ("a message with control characters", ANY_ERROR, put("error", "message", value="a\x1bb")),
    ("a message from the inside", ANY_ERROR, put("error", "message", value="asyncpg: SELECT * failed")),
    ("no required capabilities", ["missing capability"], drop("error", "data")),
    ("capabilities as a list", ["missing capability"], put("error", "data", "requiredCapabilities", value=["tasks"])),
    ("another capability", ["missing capability"], put("error", "data", "requiredCapabilities", value={"roots": {}})),
    ("the draft's number", ["missing capability"], put("error", "code", value=-32003)),
    ("the published number", ["missing capability, draft"], put("error", "code", value=-32021)),
    ("the published number, undeclared", ["missing capability, undeclared"], put("error", "code", value=-32021)),
    ("no supported versions", ["version"], drop("error", "data", "supported")),
    ("no requested version", ["version"], drop("error", "data", "requested")),
]


@pytest.mark.parametrize(
    ("name", "change"),
    [(n, c) for _, names, c in BAD for n in names],
    ids=[f"{w}: {n}" for w, names, _ in BAD for n in names],
)
def test_rejects_what_is_wrong_in_one_point(name: str, change: Callable[[Message], None]) -> None:
    sent, status, reply = copy.deepcopy(GOOD[name])
    change(reply)
    with pytest.raises(Unexpected):
        check_reply(sent, status, encode(reply))


@pytest.mark.parametrize("name", GOOD)
def test_rejects_another_status(name: str) -> None:
    sent, status, reply = GOOD[name]
    for wrong in {200, 202, 204, 400, 404, 500} - {status}:
        with pytest.raises(Unexpected):
            check_reply(sent, wrong, encode(reply))


@pytest.mark.parametrize("name", ["call, task", "get, working", "update", "cancel"])
def test_rejects_a_tasks_result_for_a_client_that_does_not_declare_the_extension(name: str) -> None:
    sent, status, reply = copy.deepcopy(GOOD[name])
    sent["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {"tasks": {}}
    with pytest.raises(Unexpected):
        check_reply(sent, status, encode(reply))


def test_rejects_tools_out_of_order() -> None:
    sent, status, reply = copy.deepcopy(GOOD["list"])
    reply["result"]["tools"].reverse()
    with pytest.raises(Unexpected):
        check_reply(sent, status, encode(reply))


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"jsonrpc":"2.0","id":7,"id":7,"result":{}}', b'{"id":7,"result":NaN}'],
)
def test_rejects_what_is_no_json_object(body: bytes) -> None:
    with pytest.raises(Unexpected):
        check_reply(CALL, 200, body)


def test_rejects_a_result_for_an_unknown_method() -> None:
    with pytest.raises(Unexpected):
        check_reply(request("tasks/list"), 200, encode(result()))


def test_takes_the_version_from_a_header_too() -> None:
    sent = request("tools/call", None, name="greet")
    check_reply(sent, 400, encode(error(-32020)), {"mcp-protocol-version": "2026-07-28"})
    with pytest.raises(Unexpected):
        check_reply(sent, 400, encode(error(-32020)))


def test_a_notification_is_accepted_without_a_body() -> None:
    sent = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    assert check_reply(sent, 202, b"") == {}
    check_reply(sent, 400, encode({"jsonrpc": "2.0", "error": {"code": -32600, "message": "No"}}))
    for status, body in ((200, b""), (400, encode(error(-32600))), (200, encode(result()))):
        with pytest.raises(Unexpected):
            check_reply(sent, status, body)


@pytest.mark.parametrize("sent", [b"{", b"[]", b"\xff", b'{"id":1,"id":1}'])
def test_an_unreadable_message_is_answered_with_an_error_without_id(sent: bytes) -> None:
    check_reply(sent, 400, encode({"jsonrpc": "2.0", "error": {"code": -32700, "message": "No"}}))
    with pytest.raises(Unexpected):
        check_reply(sent, 200, encode(result()))


def test_an_id_that_cannot_be_one_is_not_sent_back() -> None:
    with pytest.raises(Unexpected):
        check_reply(CALL | {"id": 1.5}, 400, encode(error(-32600)))


def test_lone_surrogates_and_large_numbers_are_judged_like_other_values() -> None:
    content = [{"type": "text", "text": "\ud800"}]
    check_reply(CALL, 200, encode(result(content=content, structuredContent=10**400)))


URL_QUESTION = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Sign in", "url": "https://example.com", "elicitationId": "1"},
}
SAMPLING: Message = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 10}}
SAMPLING_WITH_TOOLS = {"method": "sampling/createMessage", "params": SAMPLING["params"] | {"tools": []}}
ROOTS = {"method": "roots/list"}


@pytest.mark.parametrize(
    ("question", "enough", "lacking"),
    [
        (QUESTION, [{"elicitation": {}}, {"elicitation": {"form": {}}}], [{}, {"elicitation": {"url": {}}}]),
        (
            URL_QUESTION,
            [{"elicitation": {"form": {}, "url": {}}}],
            [{"elicitation": {}}, {"elicitation": {"form": {}}}],
        ),
        (SAMPLING, [{"sampling": {}}], [{}, {"elicitation": {}, "roots": {}}]),
        (SAMPLING_WITH_TOOLS, [{"sampling": {"tools": {}}}], [{"sampling": {}}]),
        (ROOTS, [{"roots": {}}], [{}]),
    ],
)
def test_a_question_on_the_request_is_of_a_kind_that_the_request_declares(
    question: Message, enough: list[Message], lacking: list[Message]
) -> None:
    reply = encode(result(resultType="input_required", inputRequests={"a": question}, requestState="s"))
    for capabilities in enough:
        check_reply(declaring(**capabilities), 200, reply)
    for capabilities in lacking:
        with pytest.raises(Unexpected):
            check_reply(declaring(**capabilities), 200, reply)


class TestNotifications:
    """What comes on a stream."""

    GET_RESULT = GOOD["get, completed"][2]["result"]

    def task(self, **changes: Any) -> Message:
        task = {key: value for key, value in self.GET_RESULT.items() if key not in ("resultType", "_meta")}
        meta = {"io.modelcontextprotocol/subscriptionId": "s"}
        return {"jsonrpc": "2.0", "method": "notifications/tasks", "params": task | {"_meta": meta} | changes}

    def test_accepts_the_task_that_tasks_get_shows(self) -> None:
        message = self.task()
        assert check_notification(encode(message), subscription="s", task=self.GET_RESULT) == message
        assert check_notification(json.dumps(message), subscription="s") == message

    @pytest.mark.parametrize(
        "change",
        [
            put("params", "resultType", value="complete"),
            put("params", "statusMessage", value="another"),
            put("params", "status", value="working"),
            put("params", "_meta", value={}),
            put("params", "_meta", "io.modelcontextprotocol/subscriptionId", value="t"),
            put("params", "extra", value=1),
            drop("params", "result"),
            drop("params", "_meta"),
            drop("params"),
            put("id", value=1),
            put("method", value="notifications/tasks/status"),
            put("method", value="tasks/get"),
        ],
    )
    def test_rejects_another(self, change: Callable[[Message], None]) -> None:
        message = self.task()
        change(message)
        with pytest.raises(Unexpected):
            check_notification(encode(message), subscription="s", task=self.GET_RESULT)

    def test_progress_belongs_to_a_request_and_never_to_a_subscription(self) -> None:
        params: Message = {"progressToken": 1, "progress": 0.5}
        message: Message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        check_notification(encode(message))
        params["_meta"] = {"io.modelcontextprotocol/subscriptionId": "s"}
        with pytest.raises(Unexpected):
            check_notification(encode(message), subscription="s")

    def test_the_models_of_the_core_judge_the_others(self) -> None:
        with pytest.raises(Unexpected):
            check_notification(
                encode({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}})
            )


class TestOfficialSchemas:
    """Where a folder is given, its schemas judge too."""

    @pytest.fixture(autouse=True)
    def restored(self) -> Iterator[None]:
        before = use_official(None)
        yield
        use_official(before)

    @pytest.mark.parametrize("name", GOOD)
    def test_a_folder_that_refuses_everything_refuses_every_reply(self, name: str, tmp_path: Path) -> None:
        names = {
            "DiscoverResult", "ListToolsResult", "CallToolResult", "InputRequiredResult", "CreateTaskResult",
            "GetTaskResult", "UpdateTaskResult", "CancelTaskResult", "JSONRPCErrorResponse", "HeaderMismatchError",
            "MissingRequiredClientCapabilityError", "UnsupportedProtocolVersionError",
        }  # fmt: skip
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": dict.fromkeys(names, False)}
        for file in judges.OFFICIAL.values():
            (tmp_path / file).write_text(json.dumps(schema))
        use_official(tmp_path)
        sent, status, reply = GOOD[name]
        with pytest.raises(Unexpected):
            check_reply(sent, status, encode(reply))

    def test_a_folder_without_them_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            use_official(tmp_path)

    def test_they_agree_with_ours_on_what_the_server_is_to_send(self, official_schemas: Path | None) -> None:
        if official_schemas is None:
            pytest.skip("no --official-schemas")
        use_official(official_schemas)
        for sent, status, reply in GOOD.values():
            check_reply(sent, status, encode(reply))
        check_notification(encode(TestNotifications().task()), subscription="s")


def encode(message: Message) -> bytes:
    return json.dumps(message).encode()
