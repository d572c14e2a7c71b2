"""What is put in the place of something right: odd values, keys, headers, and what no JSON and no header may hold."""

from __future__ import annotations

import base64

from hypothesis import strategies as st

KEY_MEMBER = b"dev.perdure/idempotencyKey"
"""What makes a call that is repeated the same call."""

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
    b'"notifications"', b'"taskIds"', b'"toolsListChanged"', b'"promptsListChanged"', b'"resourceSubscriptions"',
    b'"%s"' % KEY_MEMBER,
    b'"\\u0069d"', b'"ID"', b"1", b"id", *_TEXTS,
]  # fmt: skip
HEADERS = st.sampled_from(
    [b"MCP-Protocol-Version", b"Mcp-Method", b"Mcp-Name", b"Mcp-Param-Region", b"mcp-param-region", b"Mcp-Param-"]
) | st.sampled_from([
    b"Content-Type", b"Accept", b"Content-Encoding", b"Origin", b"Host", b"Mcp-Session-Id", b"Last-Event-ID",
    b"Authorization", b"Traceparent", b"Idempotency-Key", b"X-Forwarded-For", b"Accept-Encoding", b"Cookie", b"Expect",
    b"Upgrade", b"User-Agent", b"If-None-Match", b"Range", b"X-HTTP-Method-Override",
])  # fmt: skip
UNREADABLE = [
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
VALUES = st.sampled_from(UNREADABLE) | st.sampled_from([*_READABLE, b"\x0b", b"a\x00b", b"\x7f", b"x" * 100_000])
AFTER = [b" ", b"\n\n", b"\x00", b"}", b"x", b",", b'{"jsonrpc":"2.0"}', b"\xff", b"\xef\xbb\xbf", b"]" * 1000]
ENCODINGS = ("utf-16", "utf-32", "utf-8-sig", "utf-16-be", "utf-7")
