"""Which protocol revision a request speaks, what it says about its client, and which numbers its errors carry.

Two revisions are offered (core, "Protocol Version Negotiation"). A request that declares 2026-07-28 is held to it
strictly; one that declares the draft, or nothing, may leave headers and `_meta` out, but what is there must be right.
Clients that open with `initialize` declare an older revision, in the header alone, and say nothing of themselves.
"""

from __future__ import annotations

from dataclasses import field
from enum import Flag, StrEnum, auto
from typing import Any, NoReturn, TypeVar

from app.domain.fixed import fixed
from app.errors import ErrorKind, Refusal
from app.wire.envelope import Message, printable
from app.wire.headers import VERSION_HEADER, Head, check_routing, mismatch

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"

_VERSION = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
_IDEMPOTENCY = "dev.perdure/idempotencyKey"
_IDEMPOTENCY_HEADER = "idempotency-key"
_KEY_CHARACTERS = 255
_TRACE = {"traceparent": 256, "tracestate": 512, "baggage": 8192}
"""W3C trace context, and how many characters of each are carried on."""

_OBJECTS = ("extensions", "elicitation", "sampling", "roots")

T = TypeVar("T")


class Era(Flag):
    """How a request declares its version (core, "Versioning and Compatibility", "Terminology")."""

    MODERN = auto()
    """With every request."""
    LEGACY = auto()
    """Once, with `initialize`; afterwards in the header."""
    UNDECLARED = auto()
    """Not at all, which a client of either era may do."""


class Revision(StrEnum):
    """A revision that is served. A request that declares none is served as the draft."""

    V2026_07_28 = "2026-07-28"
    DRAFT = "DRAFT-2026-v1"
    V2025_11_25 = "2025-11-25"
    V2025_06_18 = "2025-06-18"
    V2025_03_26 = "2025-03-26"


SUPPORTED: tuple[str, ...] = ("2026-07-28", "DRAFT-2026-v1")
"""What server/discover and the unsupported-version error list, the preferred one first."""

LEGACY: tuple[str, ...] = ("2025-11-25", "2025-06-18", "2025-03-26")
"""Revisions that a client opens with `initialize`, the newest first."""

_REVISIONS = {revision.value: revision for revision in Revision}
_CODES = {
    ErrorKind.PARSE: -32700,
    ErrorKind.INVALID_REQUEST: -32600,
    ErrorKind.METHOD_NOT_FOUND: -32601,
    ErrorKind.INVALID_PARAMS: -32602,
    ErrorKind.INTERNAL: -32603,
    ErrorKind.UNAVAILABLE: -32603,
    ErrorKind.LIMIT: -32603,
    ErrorKind.NOT_ACCEPTABLE: -32600,
    ErrorKind.HEADER_MISMATCH: -32020,
    ErrorKind.MISSING_CAPABILITY: -32021,
    ErrorKind.UNSUPPORTED_VERSION: -32022,
}
_DRAFT_CODES = _CODES | {
    ErrorKind.HEADER_MISMATCH: -32001,
    ErrorKind.MISSING_CAPABILITY: -32003,
    ErrorKind.UNSUPPORTED_VERSION: -32004,
}
_STATUSES = {
    ErrorKind.METHOD_NOT_FOUND: 404,
    ErrorKind.NOT_ACCEPTABLE: 406,
    ErrorKind.LIMIT: 429,
    ErrorKind.INTERNAL: 500,
    ErrorKind.UNAVAILABLE: 503,
}


@fixed
class Context:
    """What a request says about itself (core, "Per-request protocol fields").

    Attributes:
        declared: the version that the request names; None where it names none.
        capabilities: the client's, `{}` where it declares none.
        client_info: name and version of the client software: for display, never for a decision.
        progress_token: what progress notifications of this request must carry; None where none are wanted.
        trace: the W3C trace context, those of traceparent, tracestate and baggage that were sent.
        idempotency_key: what makes a call that is repeated the same call; None where none was given.
        parameters: the `Mcp-Param-*` headers as they were sent, by the rest of their names in lower case.
    """

    revision: Revision
    declared: str | None
    capabilities: dict[str, Any]
    client_info: dict[str, Any] | None
    progress_token: str | int | None
    trace: dict[str, str]
    idempotency_key: str | None = None
    parameters: dict[str, str] = field(default_factory=dict)

    @property
    def legacy(self) -> bool:
        """True where the request declares a revision that is opened with `initialize`."""
        return self.revision in LEGACY

    @property
    def era(self) -> Era:
        """How this request declares its version."""
        if self.declared is None:
            return Era.UNDECLARED
        return Era.LEGACY if self.legacy else Era.MODERN

    @property
    def declares_tasks(self) -> bool:
        """True where this request itself declares the Tasks extension (Tasks, "Capability Negotiation")."""
        return TASKS_EXTENSION in self.capabilities.get("extensions", ())


def read_context(message: Message, head: Head, *, lenient_task_names: bool = True) -> Context:
    """Read and check a message's `_meta` and headers (core, "Request Metadata").

    What only requests must have is not asked of a notification. Of a request that declares an older revision, what
    the newer ones put into `_meta` is passed over: it declares no capabilities, whatever it sends.

    Args:
        lenient_task_names: accept `tasks/*` without `Mcp-Name` under 2026-07-28 too.

    Raises:
        Refusal: HEADER_MISMATCH, UNSUPPORTED_VERSION, or INVALID_PARAMS naming the field.
    """
    meta = _meta(message.params)
    in_header, in_body = head.version, _field(meta, _VERSION, str, "a string")
    revision = _revision(in_header, in_body)
    about = {} if revision in LEGACY else meta
    strict = revision is Revision.V2026_07_28 and message.id is not None
    if strict and in_header is None:
        mismatch(f"the header {VERSION_HEADER} is required")
    if strict and in_body is None:
        _invalid(_VERSION, "is required")
    check_routing(message, head, strict=strict, lenient_task_names=lenient_task_names)
    return Context(
        revision=revision,
        declared=in_header if in_body is None else in_body,
        capabilities=_capabilities(about, strict),
        client_info=_client_info(about),
        progress_token=_progress_token(meta),
        trace=_trace(meta, head),
        idempotency_key=_idempotency_key(meta, head),
        parameters=head.parameters(),
    )


def revision_of(message: Message | None, head: Head) -> Revision | None:
    """The revision whose numbers the error of a refused request carries; None for one that is not served.

    2026-07-28 named in either place decides, a request that names nothing is the draft's. Never raises.
    """
    meta = message.params.get("_meta") if message is not None else None
    in_header, in_body = head.version, meta.get(_VERSION) if isinstance(meta, dict) else None
    named = [name for name in (in_header, in_body) if isinstance(name, str)]
    if not named:
        return Revision.DRAFT
    served = (*SUPPORTED, in_header)
    return next((revision for revision in Revision if revision in named and revision in served), None)


def code(kind: ErrorKind, revision: Revision | None) -> int:
    """The JSON-RPC error code. Only the draft has numbers of its own; None is a version that is not served."""
    return (_DRAFT_CODES if revision is Revision.DRAFT else _CODES)[kind]


def http_status(kind: ErrorKind) -> int:
    """The HTTP status that an error of this kind is sent with (core, "Streamable HTTP")."""
    return _STATUSES.get(kind, 400)


def error_status(number: int, revision: Revision | None) -> int:
    """The HTTP status for an error that a tool raised with this number: 200 where it is none of the protocol's own."""
    return next((http_status(kind) for kind in ErrorKind if code(kind, revision) == number), 200)


def missing_capability(required: dict[str, Any]) -> Refusal:
    """The refusal of a request whose client lacks these capabilities, written as a ClientCapabilities object."""
    names = ", ".join(" ".join((name, *members)) for name, members in required.items())
    data = {"requiredCapabilities": required}
    return Refusal(ErrorKind.MISSING_CAPABILITY, f"Missing required client capability: {names}", data)


def missing_tasks_capability() -> Refusal:
    """The refusal of a request that does not declare the Tasks extension and must (Tasks, "Capability Negotiation")."""
    return missing_capability({"extensions": {TASKS_EXTENSION: {}}})


def _revision(in_header: str | None, in_body: str | None) -> Revision:
    if in_header is not None and in_body is not None and in_header != in_body:
        mismatch(f"{VERSION_HEADER} is '{printable(in_header)}', but the body declares '{printable(in_body)}'")
    declared = in_header if in_body is None else in_body
    if declared is None:
        return Revision.DRAFT
    if declared not in SUPPORTED and not (declared in LEGACY and declared == in_header):
        data = {"supported": list(SUPPORTED), "requested": printable(declared)}
        raise Refusal(ErrorKind.UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    return _REVISIONS[declared]


def _meta(params: dict[str, Any]) -> dict[str, Any]:
    meta = params.get("_meta")
    if type(meta) is dict:
        return meta
    if "_meta" in params:
        raise Refusal(ErrorKind.INVALID_PARAMS, "Invalid params: params._meta must be an object")
    return {}


def _field(meta: dict[str, Any], key: str, kind: type[T], what: str) -> T | None:
    """A member of `_meta`, which must be of one type where it is there."""
    value = meta.get(key)
    if type(value) is kind:
        return value
    if key in meta:
        _invalid(key, f"must be {what}")
    return None


def _capabilities(meta: dict[str, Any], required: bool) -> dict[str, Any]:
    capabilities: dict[str, Any] | None = _field(meta, _CAPABILITIES, dict, "an object")
    if capabilities is None:
        if required:
            _invalid(_CAPABILITIES, "is required")
        return {}
    for name in _OBJECTS:
        if name in capabilities and type(capabilities[name]) is not dict:
            _invalid(_CAPABILITIES, f"has a member {name} that must be an object")
    if type(capabilities.get("extensions", {}).get(TASKS_EXTENSION, {})) is not dict:
        _invalid(_CAPABILITIES, f"declares the extension {TASKS_EXTENSION}, which must be an object")
    return capabilities


def _client_info(meta: dict[str, Any]) -> dict[str, Any] | None:
    info: dict[str, Any] | None = _field(meta, _CLIENT_INFO, dict, "an object")
    if info is not None and not (isinstance(info.get("name"), str) and isinstance(info.get("version"), str)):
        _invalid(_CLIENT_INFO, "must have a name and a version, both strings")
    return info


def _progress_token(meta: dict[str, Any]) -> str | int | None:
    token: str | int | None = meta.get("progressToken")
    if "progressToken" in meta and type(token) not in (str, int):
        _invalid("progressToken", "must be a string or an integer")
    return token


def _trace(meta: dict[str, Any], head: Head) -> dict[str, str]:
    """The trace context of `_meta`, or that of the headers where it has none. What is longer than W3C asks anybody to
    carry is left out."""
    if _TRACE.keys().isdisjoint(meta) and _TRACE.keys().isdisjoint(head):
        return {}  # as mostly
    in_body = {key: value for key in _TRACE if (value := _field(meta, key, str, "a string"))}
    sent = in_body or {key: value for key in _TRACE if (value := head.get(key))}
    return {key: value for key, value in sent.items() if len(value) <= _TRACE[key]}


def _idempotency_key(meta: dict[str, Any], head: Head) -> str | None:
    in_header, in_body = head.get(_IDEMPOTENCY_HEADER), _field(meta, _IDEMPOTENCY, str, "a string")
    if in_header is not None and in_body is not None and in_header != in_body:
        mismatch("Idempotency-Key is not the key that the body has")
    key = in_header if in_body is None else in_body
    if key is not None and not 0 < len(key) <= _KEY_CHARACTERS:
        says = f"must have 1 to {_KEY_CHARACTERS} characters"
        if in_body is None:
            raise Refusal(ErrorKind.INVALID_PARAMS, f"Invalid params: the header Idempotency-Key {says}")
        _invalid(_IDEMPOTENCY, says)
    return key


def _invalid(field: str, says: str) -> NoReturn:
    raise Refusal(ErrorKind.INVALID_PARAMS, f"Invalid params: params._meta['{field}'] {says}")
