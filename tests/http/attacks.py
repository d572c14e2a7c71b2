"""Requests that are wrong in ways that nobody thought of: right ones of every method and revision, damaged at random.

Names such as `@asking` stand for tasks, which are put in when an attack is sent.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.support.json_text import Array, Node, Object, containers, tree, write
from tests.support.raw_http import Head
from tests.support.rpc import DRAFT, PUBLISHED, TASKS

Request = tuple[str, dict[str, Any]]

NAMES = {b"@working": "working", b"@asking": "input_required", b"@ended": "completed", b"@state": "input_required"}
"""What stands for the id, or the requestState, of a task in which state."""

ASK_FIRST: dict[str, Any] = {"name": "ask_first", "arguments": {}}
ANSWERS = {"name": {"action": "accept", "content": {"name": "Luca"}}}
REQUESTS: list[Request] = [
    ("tools/list", {}),
    ("tools/call", {"name": "job", "arguments": {"count": 2, "region": "north", "note": {"a": [1, "x", None]}}}),
    ("tools/call", {"name": "greet", "arguments": {"name": "Ada"}}),
    ("tools/call", ASK_FIRST),
]
"""What is served under every revision."""
MODERN: list[Request] = [
    ("server/discover", {}),
    ("tools/call", {"name": "careful_job"}),
    ("tools/call", ASK_FIRST | {"requestState": "@state", "inputResponses": ANSWERS}),
    ("tasks/get", {"taskId": "@working"}),
    ("tasks/get", {"taskId": "@asking"}),
    ("tasks/get", {"taskId": "@ended"}),
    ("tasks/update", {"taskId": "@asking", "inputResponses": ANSWERS}),
    ("tasks/update", {"taskId": "@working", "inputResponses": ANSWERS}),
    ("tasks/cancel", {"taskId": "@working"}),
    ("tasks/cancel", {"taskId": "@ended"}),
]
"""What is served under revisions that are declared with each request."""
OLDER: list[Request] = [
    ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}),
    ("ping", {}),
]
"""What is served under revisions that begin with `initialize`."""
REFUSED: list[Request] = [
    ("tasks/list", {}),
    ("tasks/result", {"taskId": "@ended"}),
    ("resources/read", {"uri": "file:///etc/passwd"}),
    ("notifications/cancelled", {"requestId": 1}),
    ("notifications/progress", {"progressToken": 1, "progress": 0.5}),
]
CAPABLE = TASKS | {"elicitation": {}}
VERSIONS = (None, None, DRAFT, PUBLISHED, PUBLISHED, "2025-06-18")
KEY_HEADER, KEY_MEMBER = b"idempotency-key", b"dev.perdure/idempotencyKey"
_NAMED_BY = {"tools/call": "name"} | dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")
_META = "io.modelcontextprotocol"


@dataclass(frozen=True)
class Attack:
    """A request as it is sent."""

    head: Head
    body: bytes

    @property
    def keyed(self) -> bool:
        """Whether it may carry an idempotency key, and so be a call that was made before."""
        return KEY_MEMBER in self.body or any(name.lower() == KEY_HEADER for name, _ in self.head)


def rightly(request: Request, version: str | None, capabilities: dict[str, Any] | None) -> tuple[Head, dict[str, Any]]:
    """Head and message of a request as a client should send it, with the extension's capabilities where it has any."""
    method, params = request
    meta: dict[str, Any] = {"progressToken": "p", "traceparent": f"00-{'0af76519' * 4}-{'00f067aa' * 2}-01"}
    head = [
        (b"Host", b"localhost"),
        (b"Content-Type", b"application/json"),
        (b"Accept", b"application/json, text/event-stream"),
    ]
    if version is not None:
        head.append((b"MCP-Protocol-Version", version.encode()))
    if version in (None, DRAFT, PUBLISHED) and capabilities is not None:
        meta[f"{_META}/clientCapabilities"] = capabilities
    if version in (DRAFT, PUBLISHED):
        meta[f"{_META}/protocolVersion"] = version
        head += _mirrored(method, params)
    message = {"jsonrpc": "2.0", "id": "request-1", "method": method, "params": params | {"_meta": meta}}
    if method.startswith("notifications/"):
        del message["id"]
    return head, message


def _mirrored(method: str, params: dict[str, Any]) -> Head:
    """The headers that repeat what the body says."""
    name, region = params.get(_NAMED_BY.get(method, "")), params.get("arguments", {}).get("region")
    headers = {b"Mcp-Method": method, b"Mcp-Name": name, b"Mcp-Param-Region": region}
    return [(header, value.encode()) for header, value in headers.items() if value is not None]


# -- what is put in the place of something right ----------------------------------------------------------------------

_TEXTS = [
    b'""', b'"x"', b'"\\u0000"', b'"a\\u0000b"', b'"\\ud800"', b'"\\udfff\\ud800"', b'"\xed\xa0\x80"', b'"\xff"',
    b'"\xc3"', '"\U0001f680"'.encode(), '"\u202e\u200f"'.encode(), b'"\x7f\xc2\x9b"', b'"\\u001b[31m"', b'"\n"',
    b'"' + b"x" * 200_000 + b'"', b'"=?base64?eA==?="', b'"2026-07-28"', b'"DRAFT-2026-v1"', b'"1900-01-01"',
    b'"@working"', b'"@asking"', b'"@ended"', b'"@state"', b'"job"', b'"tasks/get"', b'"tasks/cancel"',
    b'"notifications/x"', b'"server/discover"', b'"2.0"', b'"%s"' % (b"\\u202e" * 1000), b"\"'; DROP TABLE tasks; --\"",
]  # fmt: skip
_NUMBERS = [
    b"0", b"-0", b"-1", b"1.0", b"-0.0", b"0.5", b"1e400", b"-1e400", b"1e-400", b"1E2", b"NaN", b"Infinity",
    b"-Infinity", b"9007199254740993", b"9223372036854775808", b"18446744073709551616", b"-9223372036854775809",
    b"9" * 400, b"9" * 5000, b"01", b"+1", b".5", b"1.", b"0x10", b"1_0",
]  # fmt: skip
_OTHERS = [
    b"null", b"true", b"false", b"{}", b"[]", b"[[]]", b'{"":{"":null}}', b'{"a":1,"a":2}', b'{"x":{"x":NaN}}',
    b"[null,null]", b'{"action":"accept"}', b"{", b"]", b"", b" ", b"undefined", b"None", b"//", b"'x'",
    b"[" * 60 + b"]" * 60, b"[" * 100 + b"]" * 100, b'{"a":' * 100 + b"1" + b"}" * 100, b"[" * 20_000 + b"]" * 20_000,
    b"[" * 20_000, b"[" + b"0," * 20_000 + b"0]", b"{" + b",".join(b'"%d":0' % n for n in range(5_000)) + b"}",
]  # fmt: skip
_KEPT = [
    b'""', b'"x"', b'"\\u0000"', b'"\\ud800"', '"\U0001f680"'.encode(), b"null", b"true", b"0", b"-1", b"0.5",
    b"18446744073709551616", b"9" * 400, b"{}", b"[]", b'{"":{"":null}}', b'["x"]', b"[" * 50 + b"]" * 50,
]  # fmt: skip
KEPT = st.sampled_from(_KEPT)
"""Odd values that a message may hold."""
ODD = st.sampled_from([*_TEXTS, *_NUMBERS, *_OTHERS])
"""Odd values, and what is no value."""

KEYS = [
    b'"id"', b'"jsonrpc"', b'"method"', b'"params"', b'"result"', b'"error"', b'"_meta"', b'"name"', b'"arguments"',
    b'"taskId"', b'"inputResponses"', b'"requestState"', b'"task"', b'"cursor"', b'"progressToken"', b'"tracestate"',
    b'"io.modelcontextprotocol/protocolVersion"', b'"io.modelcontextprotocol/clientCapabilities"',
    b'"io.modelcontextprotocol/clientInfo"', b'"io.modelcontextprotocol/logLevel"', b'"io.modelcontextprotocol/tasks"',
    b'"extensions"', b'"elicitation"', b'"sampling"', b'"roots"', b'"action"', b'"content"', b'"__proto__"',
    b'"%s"' % KEY_MEMBER,
    b'"\\u0069d"', b'"ID"', b"1", b"id", *_TEXTS,
]  # fmt: skip
_HEADERS = st.sampled_from(
    [b"MCP-Protocol-Version", b"Mcp-Method", b"Mcp-Name", b"Mcp-Param-Region", b"mcp-param-region", b"Mcp-Param-"]
) | st.sampled_from([
    b"Content-Type", b"Accept", b"Content-Encoding", b"Origin", b"Host", b"Mcp-Session-Id", b"Last-Event-ID",
    b"Authorization", b"Traceparent", b"Idempotency-Key", b"X-Forwarded-For", b"Accept-Encoding", b"Cookie", b"Expect",
    b"Upgrade", b"User-Agent", b"If-None-Match", b"Range", b"X-HTTP-Method-Override",
])  # fmt: skip
_UNREADABLE = [
    "é".encode(), b"\xe9", b"\xff\xfe", "\U0001f680".encode(), b"a\x80b", b"=?base64??=", b"=?base64?!!!?=",
    b"=?base64?/w==?=", b"=?base64?eA?=", b"=?base64?eA==", b"=?BASE64?eA==?=", b"=?base64?7aCA?=",
]  # fmt: skip
_READABLE = [
    b"", b" ", b"\t", b"x", b"x" * 5_000, b"=?base64?" + base64.b64encode(b"tools/call") + b"?=",
    b"=?base64?" + base64.b64encode(b"job") + b"?=", b"2026-07-28", b"DRAFT-2026-v1", b"2025-11-25", b"1900-01-01",
    b"2026-07-28, DRAFT-2026-v1", b"null", b"[1]", b'"job"', b"job", b"north", b"greet", b"@working", b"@state",
    b"tools/call",
    b"tasks/get", b"server/discover", b"application/json", b"application/json; charset=utf-16", b"application/json;",
    b"text/plain", b"*/*", b"text/event-stream", b"application/json;q=0", b"identity", b"gzip", b"https://evil.example",
    b"http://localhost", b"null, x", b"'; DROP TABLE tasks; --", b"100-continue", b"h2c", b"websocket", b"Bearer x",
]  # fmt: skip
_VALUES = st.sampled_from(_UNREADABLE) | st.sampled_from([*_READABLE, b"\x0b", b"a\x00b", b"\x7f", b"x" * 100_000])
_AFTER = [b" ", b"\n\n", b"\x00", b"}", b"x", b",", b'{"jsonrpc":"2.0"}', b"\xff", b"\xef\xbb\xbf", b"]" * 1000]
_ENCODINGS = ("utf-16", "utf-32", "utf-8-sig", "utf-16-be", "utf-7")


# -- the ways to damage ------------------------------------------------------------------------------------------------

_starts = st.tuples(
    st.sampled_from([*REQUESTS, *MODERN, *REQUESTS, *MODERN, *OLDER, *REFUSED]),
    st.sampled_from(VERSIONS),
    st.sampled_from([CAPABLE, CAPABLE, TASKS, {"elicitation": {}}, {}]),
)


@st.composite
def messages(draw: st.DrawFn) -> Attack:
    """The message is wrong: members are gone, there twice, renamed, of another type, nested without end."""
    head, message = rightly(*draw(_starts))
    whole, odd = tree(message), draw(st.sampled_from([KEPT, ODD]))
    for _ in range(draw(st.integers(1, 3))):
        _damage(draw, draw(st.sampled_from(list(containers(whole)))), odd)
    return Attack(head, write(whole))


def _damage(draw: st.DrawFn, place: Object | Array, odd: st.SearchStrategy[bytes]) -> None:
    inside: list[Any] = place.members if isinstance(place, Object) else place.items
    if not inside or draw(st.integers(0, 5)) == 0:
        inside.append(_inside(place, draw(st.sampled_from(KEYS)), draw(odd)))
        return
    at = draw(st.integers(0, len(inside) - 1))
    key, value = inside[at] if isinstance(place, Object) else (b"", inside[at])
    match draw(st.sampled_from(["drop", "retype", "retype", "twice", "rename", "nest", "wrap"])):
        case "drop":
            del inside[at]
        case "retype":
            inside[at] = _inside(place, key, draw(odd))
        case "twice":
            inside.append(_inside(place, key, draw(st.just(value) | odd)))
        case "rename":
            inside[at] = _inside(place, draw(st.sampled_from(KEYS)), value)
        case "nest":
            depth = draw(st.sampled_from([1, 2, 50, 64, 200]))
            inside[at] = _inside(place, key, b"[" * depth + write(value) + b"]" * depth)
        case _:
            inside[at] = _inside(place, key, Object([(draw(st.sampled_from(KEYS)), value)]))


def _inside(place: Object | Array, key: bytes, value: Node) -> Any:
    return (key, value) if isinstance(place, Object) else value


@st.composite
def bodies(draw: st.DrawFn) -> Attack:
    """The body is no message at all: cut, followed by rubbish, in another encoding, in a batch, with bytes changed."""
    head, message = rightly(*draw(_starts))
    text = write(tree(message))
    at = draw(st.integers(0, len(text)))
    match draw(st.sampled_from(["cut", "insert", "change", "after", "before", "encode", "batch", "any"])):
        case "cut":
            body = text[:at]
        case "insert":
            body = text[:at] + draw(ODD | st.binary(max_size=4)) + text[at:]
        case "change":
            body = text[:at] + draw(st.binary(max_size=3)) + text[at + draw(st.integers(1, 20)) :]
        case "after":
            body = text + draw(st.sampled_from(_AFTER))
        case "before":
            body = draw(st.sampled_from(_AFTER)) + text
        case "encode":
            body = text.decode().encode(draw(st.sampled_from(_ENCODINGS)))
        case "batch":
            body = b"[" + b",".join([text] * draw(st.integers(0, 3))) + b"]"
        case _:
            body = draw(st.binary(max_size=100) | ODD)
    return Attack(head, body)


@st.composite
def heads(draw: st.DrawFn) -> Attack:
    """The headers are wrong: gone, there twice, of another value, of values that no header may have."""
    right, message = rightly(*draw(_starts))
    head = list(right)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(head) - 1))
        name, value = head[at]
        match draw(st.sampled_from(["drop", "change", "change", "twice", "add", "add", "case"])):
            case "drop" if len(head) > 1:
                del head[at]
            case "change":
                head[at] = (name, draw(_VALUES))
            case "twice":
                head.append((name, draw(st.just(value) | _VALUES)))
            case "add":
                head.append((draw(_HEADERS), draw(_VALUES)))
            case _:
                head[at] = (name.swapcase(), value)
    return Attack(head, write(tree(message)))
