"""Requests that are wrong in ways that nobody thought of: right ones of every method and revision, damaged at random.

Names such as `@asking` stand for tasks, which are put in when an attack is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.http.odd_parts import AFTER, ENCODINGS, HEADERS, KEPT, KEY_MEMBER, KEYS, ODD, UNREADABLE, VALUES
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
    ("tools/call", ASK_FIRST | {"inputResponses": ANSWERS}),
    ("tasks/get", {"taskId": "@working"}),
    ("tasks/get", {"taskId": "@asking"}),
    ("tasks/get", {"taskId": "@ended"}),
    ("tasks/update", {"taskId": "@asking", "inputResponses": ANSWERS}),
    ("tasks/update", {"taskId": "@working", "inputResponses": ANSWERS}),
    ("tasks/cancel", {"taskId": "@working"}),
    ("tasks/cancel", {"taskId": "@ended"}),
    ("subscriptions/listen", {"notifications": {"taskIds": ["@working", "@asking"], "toolsListChanged": True}}),
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
KEY_HEADER = b"idempotency-key"
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


# -- the ways to damage ------------------------------------------------------------------------------------------------

_starts = st.tuples(
    st.sampled_from([*REQUESTS, *MODERN, *REQUESTS, *MODERN, *OLDER, *REFUSED]),
    st.sampled_from(VERSIONS),
    st.sampled_from([CAPABLE, CAPABLE, TASKS, {"elicitation": {}}, {}]),
)


_WRONG: list[Any] = [None, 7, "x", [], {}]


def mislabelled() -> Iterator[Attack]:
    """A call that declares its version, each of its headers gone, empty or unreadable, one at a time."""
    right, message = rightly(REQUESTS[1], PUBLISHED, CAPABLE)
    body = write(tree(message))
    for at, (name, _) in enumerate(right):
        yield Attack([*right[:at], *right[at + 1 :]], body)
        for value in (b"", *UNREADABLE):
            yield Attack([*right[:at], (name, value), *right[at + 1 :]], body)


def retyped() -> Iterator[Attack]:
    """All that there is in the params of the requests is of another type, one at a time."""
    for request in [*REQUESTS, *MODERN, *OLDER]:
        head, message = rightly(request, None, CAPABLE)
        for container, key in list(_members(message["params"], request == REQUESTS[1])):
            right = container[key]
            for wrong in _WRONG:
                container[key] = wrong
                yield Attack(head, write(tree(message)))
            container[key] = right


def _members(value: Any, with_meta: bool) -> Iterator[tuple[Any, Any]]:
    """Where there is something in a value, at any depth: what it is in, and under which key or index."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        if with_meta or key != "_meta":
            yield value, key
            yield from _members(value[key], with_meta)


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
            body = text + draw(st.sampled_from(AFTER))
        case "before":
            body = draw(st.sampled_from(AFTER)) + text
        case "encode":
            body = text.decode().encode(draw(st.sampled_from(ENCODINGS)))
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
                head[at] = (name, draw(VALUES))
            case "twice":
                head.append((name, draw(st.just(value) | VALUES)))
            case "add":
                head.append((draw(HEADERS), draw(VALUES)))
            case _:
                head[at] = (name.swapcase(), value)
    return Attack(head, write(tree(message)))
