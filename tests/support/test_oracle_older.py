"""The oracle accepts what clients of the older revisions may be sent, and nothing that is wrong in one point."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from tests.support.oracle import Unexpected, check_reply
from tests.support.test_oracle import IO, META, TASK_ID, VERSIONS, Message, drop, encode, error, put, request

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": META[f"{IO}/serverInfo"]}
TOOLS = [{"name": "a", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}]
GOOD: dict[str, tuple[Message, Message]] = {
    "initialize": ({"protocolVersion": "2025-06-18", "capabilities": {}}, HELLO),
    "ping": ({}, {}),
    "tools/list": ({}, {"tools": TOOLS}),
    "tools/call": ({"name": "greet"}, {"content": [], "structuredContent": {}}),
}


def sent(method: str) -> Message:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": GOOD[method][0]}


def judge(method: str, reply: Message, status: int = 200, version: str | None = "2025-06-18") -> None:
    headers = {} if version is None else {"MCP-Protocol-Version": version}
    check_reply(sent(method), status, encode({"jsonrpc": "2.0", "id": 7, **reply}), headers)


@pytest.mark.parametrize("method", GOOD)
@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26"])
def test_accepts_what_they_may_be_sent(method: str, version: str) -> None:
    judge(method, {"result": GOOD[method][1]}, version=version)


def test_initialize_names_no_version_in_a_header() -> None:
    judge("initialize", {"result": HELLO}, version=None)
    for version in ("2025-11-25", "2024-11-05"):
        with pytest.raises(Unexpected):
            judge("initialize", {"result": HELLO | {"protocolVersion": version}}, version=None)


@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("initialize", put("capabilities", "tasks", value={})),
        ("initialize", put("capabilities", "tools", "listChanged", value=True)),
        ("initialize", drop("serverInfo")),
        ("ping", put("resultType", value="complete")),
        ("tools/list", put("tools", 0, "outputSchema", value={"type": "array"})),
        ("tools/list", put("tools", 0, "execution", value={"taskSupport": "optional"})),
        ("tools/call", put("structuredContent", value=[])),
        ("tools/call", put("resultType", value="task")),
        ("tools/call", put("resultType", value="input_required")),
        ("tools/call", put("taskId", value=TASK_ID)),
        ("tools/call", drop("content")),
    ],
)
def test_rejects_what_they_may_not(method: str, change: Callable[[Message], None]) -> None:
    value = copy.deepcopy(GOOD[method][1])
    change(value)
    with pytest.raises(Unexpected):
        judge(method, {"result": value})


def test_errors_come_with_the_status_of_success() -> None:
    wrong: Message = {"error": {"code": -32602, "message": "It is wrong"}}
    judge("tools/call", wrong)
    with pytest.raises(Unexpected):
        judge("tools/call", wrong, status=400)
    check_reply(b"{", 400, encode({"jsonrpc": "2.0", **wrong}), {"MCP-Protocol-Version": "2025-06-18"})


def test_a_version_in_the_body_is_none_of_theirs() -> None:
    sent = request("tools/call", "2025-06-18", name="greet")
    check_reply(sent, 400, encode(error(-32022, data=VERSIONS)))
    with pytest.raises(Unexpected):
        check_reply(sent, 200, encode(error(-32022, data=VERSIONS)))
