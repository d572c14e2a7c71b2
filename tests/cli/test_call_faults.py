"""`perdure call` against a service that does what ours does not: it fails, lies, or asks for what nobody can give."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import text

from app.cli import caller
from app.cli.call_client import encode_header
from app.wire.headers import decode_header
from tests.cli.calling import call

TOKEN = "s3cret.of-the/user="
WORKING = {"taskId": "t-1", "status": "working", "createdAt": "2026-01-01T00:00:00Z", "pollIntervalMs": 20}
LISTED = {"tools": [{"name": "job", "inputSchema": {"type": "object"}}]}

REFUSED = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "not now\x1b"}})


@dataclass
class Stub:
    """A service that replies with what a test has written down for a method, one after the other.

    A reply is the result of a request, or the status and the text of an HTTP response; the last one stays.
    """

    replies: dict[str, list[Any]] = field(default_factory=dict)
    seen: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    url: str = ""

    def reply(self, request: dict[str, Any]) -> tuple[int, str, bytes]:
        """Status, content type and body."""
        script = self.replies.get(request["method"], [LISTED])
        reply = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(reply, tuple):
            return reply[0], "application/json" if reply[1] == REFUSED else "text/html", reply[1].encode()
        if isinstance(reply, str):
            return 200, "text/event-stream", reply.replace("ID", str(request["id"])).encode()
        message = {"jsonrpc": "2.0", "id": request["id"]} | (reply if "error" in reply else {"result": reply})
        return 200, "application/json", json.dumps(message).encode()

    def sent(self, method: str) -> list[dict[str, Any]]:
        """The params of the requests of this method."""
        return [request["params"] for _, request in self.seen if request["method"] == method]


@pytest.fixture
def stub() -> Iterator[Stub]:
    """A stub that listens."""
    scripted = Stub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            scripted.seen.append((dict(self.headers), request))
            status, kind, body = scripted.reply(request)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        scripted.url = f"http://127.0.0.1:{server.server_port}/mcp"
        yield scripted
        server.shutdown()
        serving.join()


def test_a_request_says_all_that_the_revision_asks_for(stub: Stub) -> None:
    stub.replies = {"tools/call": [{"content": []}]}
    assert call("job", "--url", stub.url).code == 0
    headers, request = stub.seen[-1]
    meta = request["params"]["_meta"]
    assert headers["MCP-Protocol-Version"] == meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert (headers["Mcp-Method"], headers["Mcp-Name"]) == ("tools/call", "job")
    assert headers["Accept"] == "application/json, text/event-stream"
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {
        "extensions": {"io.modelcontextprotocol/tasks": {}},
        "elicitation": {"form": {}, "url": {}},
    }


@pytest.mark.parametrize("replies", [[{"content": []}], [(401, "who are you?")], [{"error": {"code": 1}}], [(503, "")]])
def test_the_token_goes_into_its_header_and_nowhere_else(stub: Stub, replies: list[Any]) -> None:
    stub.replies = {"tools/list": [*replies, LISTED], "tools/call": replies}
    called = call("job", "--token", TOKEN, "--url", stub.url)
    assert TOKEN not in called.out + called.err
    for headers, request in stub.seen:
        assert headers.pop("Authorization") == f"Bearer {TOKEN}"
        assert TOKEN not in json.dumps([headers, request])


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "ü"])
def test_what_is_no_token_is_refused_unshown(stub: Stub, token: str) -> None:
    called = call("job", "--url", stub.url, PERDURE_TOKEN=token)
    assert (called.code, stub.seen) == (2, [])
    assert token not in called.err


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        ((401, "no"), "refuses the request (HTTP 401): --token, or PERDURE_TOKEN, says who is calling"),
        ((401, REFUSED), "(HTTP 401), not now\\x1b: --token, or PERDURE_TOKEN, says who is calling"),
        ((503, REFUSED), "cannot answer now (HTTP 503), not now\\x1b"),
        ((404, "<html>"), "is not one of the protocol: --url takes the address that ends in /mcp"),
        ((307, ""), "is not one of the protocol"),
        ((503, ""), "cannot answer now (HTTP 503)"),
        ({"error": {"code": -32022, "message": "Unsupported\x1b[2J"}}, "error -32022: Unsupported\\x1b[2J"),
    ],
)
def test_an_answer_that_is_none_is_told_with_exit_code_2(stub: Stub, reply: Any, complaint: str) -> None:
    stub.replies = {"tools/list": [reply]}
    called = call("job", "--json", "--url", stub.url)
    assert (called.code, called.out) == (2, "")
    assert complaint in called.err


@pytest.mark.parametrize("url", ["127.0.0.1:1/mcp", "http://me:hush@127.0.0.1:1/mcp", "http://127.0.0.1:1/mcp"])
def test_an_address_where_nothing_is_is_told_at_once(url: str) -> None:
    called = call("job", "--url", url)
    assert called.code == 2
    assert "hush" not in called.err


def test_polls_follow_the_interval_and_pass_over_faults_that_pass(stub: Stub) -> None:
    done = WORKING | {"status": "completed", "result": {"content": [{"type": "text", "text": "made"}]}}
    stub.replies = {
        "tools/call": [WORKING | {"resultType": "task"}],
        "tasks/get": [(503, ""), (429, ""), WORKING, done],
    }
    called = call("job", "--url", stub.url)
    assert (called.code, called.out) == (0, "made\n")
    assert "cannot answer now (HTTP 503): it is tried again for 30 seconds" in called.err


def test_a_service_that_stays_away_is_given_up_but_not_its_task(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "PATIENCE_SECONDS", 0.3)
    stub.replies = {"tools/call": [WORKING | {"resultType": "task"}], "tasks/get": [(503, "")]}
    called = call("job", "--json", "--url", stub.url)
    assert (called.code, called.document["taskId"]) == (2, "t-1")
    assert called.err.endswith(f"to take it up again: perdure call --task t-1 --url {stub.url}\n")


def test_what_no_user_can_answer_is_said_and_left_open(stub: Stub) -> None:
    asks = WORKING | {"status": "input_required", "inputRequests": {"q": {"method": "sampling/createMessage"}}}
    stub.replies = {"tools/call": [WORKING | {"resultType": "task"}], "tasks/get": [asks]}
    called = call("job", "--url", stub.url)
    assert called.code == 4
    assert "q: sampling/createMessage, which this client cannot answer" in called.err


def test_a_call_that_only_has_to_be_sent_again_is_sent_with_its_state(stub: Stub) -> None:
    again = {"resultType": "input_required", "requestState": "opaque"}
    stub.replies = {"tools/call": [again, {"content": []}]}
    assert call("job", "--url", stub.url).code == 0
    first, second = stub.sent("tools/call")
    assert "requestState" not in first
    assert second["requestState"] == "opaque"


def test_progress_on_the_request_is_shown_before_its_result(stub: Stub) -> None:
    progress = {"method": "notifications/progress", "params": {"progress": 1, "total": 2}}
    result = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"streamed"}]}}'
    stub.replies = {"tools/call": [f": alive\n\nevent: message\ndata: {json.dumps(progress)}\n\ndata: {result}\n\n"]}
    called = call("job", "--url", stub.url)
    assert (called.code, called.out) == (0, "streamed\n")
    assert "working: 1 of 2\n" in called.err
    assert "progressToken" in stub.sent("tools/call")[0]["_meta"]


def test_a_stream_that_ends_before_the_result_is_no_answer(stub: Stub) -> None:
    stub.replies = {"tools/call": [": alive\n\n"]}
    called = call("job", "--url", stub.url)
    assert called.code == 2
    assert "ended its answer before the result came" in called.err


@pytest.mark.parametrize("state", [{"status": "working"}, WORKING | {"status": "done"}, WORKING | {"status": "failed"}])
def test_a_task_that_is_none_is_not_followed(stub: Stub, state: dict[str, Any]) -> None:
    stub.replies = {"tasks/get": [state]}
    called = call("--task", "t-1", "--url", stub.url)
    assert called.code == 2
    assert "The answer is no task" in called.err


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"content": [{"type": "text", "text": '{"a": 1}'}], "structuredContent": {"a": 1}}, '{\n  "a": 1\n}\n'),
        ({"content": [{"type": "text", "text": "one"}], "structuredContent": {"a": 1}}, 'one\n{\n  "a": 1\n}\n'),
        (
            {"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]},
            "[image: image/png, 4 characters of Base64]\n",
        ),
        ({"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]}, "[resource_link: file:///a]\n"),
        ({"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}]}, "inside\n"),
    ],
)
def test_every_kind_of_content_is_shown(stub: Stub, result: dict[str, Any], shown: str) -> None:
    stub.replies = {"tools/call": [result]}
    assert call("job", "--url", stub.url).out == shown


@given(text())
def test_every_text_can_be_a_header(value: str) -> None:
    written = encode_header(value)
    assert written.isascii()
    assert "\n" not in written
    assert decode_header(written.strip(" \t")) == value
