"""JSON-RPC messages (core, "Messages"): where bytes become values and values become bytes.

What is read is kept exactly or refused: nothing is rounded to infinity or to zero, dropped as a duplicate, or
replaced. Nobody's text is echoed in a message except through `printable`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, NoReturn

from app.domain.fixed import fixed
from app.domain.task import Json
from app.errors import ErrorKind, Refusal
from app.wire.nesting import MAX_DEPTH, around_nesting, too_deep

RequestId = str | int


@fixed
class Message:
    """A request, or a notification when `id` is None. `params` is `{}` where the message has none."""

    id: RequestId | None
    method: str
    params: dict[str, Any]


class Unreadable(Refusal):
    """A body that is no message which can be served; `kind` is PARSE or INVALID_REQUEST.

    Attributes:
        request_id: the id that the answer carries; None where none could be read.
    """

    def __init__(self, kind: ErrorKind, message: str, request_id: RequestId | None = None) -> None:
        super().__init__(kind, message)
        self.request_id = request_id


def read_message(body: bytes) -> Message:
    """Read one request or notification.

    Raises:
        Unreadable: PARSE for what is not JSON in UTF-8, INVALID_REQUEST for JSON that is no single message, or that
            cannot be kept exactly: a member that appears twice, a number beyond a double, nesting beyond MAX_DEPTH.
    """
    try:
        if too_deep(body):
            raise RecursionError
        value = _strict.decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise _flaw(body, error) from None
    return _message(value)


def dumps(value: Any) -> Json:
    """Write compact JSON: integers of any size exactly, lone surrogates as `\\ud8xx`, so that it is always UTF-8.

    Raises:
        ValueError: for NaN, an infinity, a cycle, or nesting that the interpreter cannot follow.
        TypeError: for a type that JSON does not have.
    """
    try:
        text = "".join(_chunks(value, 0))
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        text = _ascii_writer.encode(value)
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None
    return Json(text)


def result_body(request_id: RequestId, result: Json) -> bytes:
    """The response to a request; `result` is spliced in unparsed."""
    shown = request_id if type(request_id) is int else dumps(request_id)
    return f'{{"jsonrpc":"2.0","id":{shown},"result":{result}}}'.encode()


def error_body(request_id: RequestId | None, code: int, message: str, data: Any = None) -> bytes:
    """The error response; without an id it has no `id` member (core, "Error Responses"), and no `data` for None."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    head = "" if request_id is None else f'"id":{dumps(request_id)},'
    return f'{{"jsonrpc":"2.0",{head}"error":{dumps(error)}}}'.encode()


def printable(text: str, limit: int = 100) -> str:
    """Someone else's text for a message of ours: cut to `limit` characters, what does not print escaped."""
    shown = repr(text[:limit])[1:-1]
    return shown if len(text) <= limit and len(shown) <= limit else shown[:limit] + "…"


def _message(value: Any) -> Message:
    if type(value) is not dict:
        batch = type(value) is list
        _refuse("Send each message in a request of its own: batches are not served" if batch else "Send a JSON object")
    request_id = _id(value)
    if request_id is None and "id" in value:
        _refuse("id must be a string or an integer")
    if value.get("jsonrpc") != "2.0":
        _refuse('jsonrpc must be "2.0"', request_id)
    method = value.get("method")
    if type(method) is not str:
        response = "result" in value or "error" in value
        _refuse("Responses are not accepted here" if response else "method must be a string", request_id)
    params = value.get("params")
    if type(params) is not dict:
        if "params" in value:
            _refuse("params must be an object", request_id)
        params = {}
    return Message(request_id, method, params)


def _refuse(message: str, request_id: RequestId | None = None) -> NoReturn:
    raise Unreadable(ErrorKind.INVALID_REQUEST, f"Invalid request: {message}", request_id)


def _id(value: Any) -> RequestId | None:
    """The id of a message, where it has one that can be sent back."""
    request_id = value.get("id") if type(value) is dict else None
    return request_id if type(request_id) in (str, int) else None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member appears twice")
    return members


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or (number == 0 and text.lower().partition("e")[0].strip("-0.")):
        raise ValueError("beyond a double")
    return number


def _constant(_name: str) -> NoReturn:
    raise ValueError("no JSON")


def _prepared(make: Callable[..., Callable[[Any, int], Iterable[str]]] | None) -> Callable[[Any, int], Iterable[str]]:
    """What the encoder makes anew for each value: half of the time that a small one takes. A cycle is nesting to it."""
    if make is None:  # an interpreter without it
        return lambda value, _: _writer.iterencode(value)
    separators = _writer.key_separator, _writer.item_separator
    return make(None, _writer.default, encode_basestring, None, *separators, False, False, False)


_strict = json.JSONDecoder(object_pairs_hook=_members, parse_float=_number, parse_constant=_constant)
_writer = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_chunks = _prepared(getattr(json.encoder, "c_make_encoder", None))
_ascii_writer = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class _Flaw:
    """Stands in a value read leniently for what made the strict reading fail."""

    says: str
    kind: ErrorKind = ErrorKind.INVALID_REQUEST


def _flaw(body: bytes, error: Exception) -> Unreadable:
    """What is wrong with a body that cannot be read: a second, lenient reading that names the member."""
    if isinstance(error, RecursionError):
        says = f"Invalid request: the message is nested more than {MAX_DEPTH} levels deep"
        return Unreadable(ErrorKind.INVALID_REQUEST, says, _id(_leniently(around_nesting(body))))
    value = _leniently(body.decode("utf-8", "replace"))
    request_id = _id(value)
    if isinstance(error, UnicodeDecodeError):
        intact = not (isinstance(request_id, str) and "\ufffd" in request_id)
        says = f"Parse error: the body is not UTF-8 at byte {error.start}"
        return Unreadable(ErrorKind.PARSE, says, request_id if intact else None)
    if isinstance(error, json.JSONDecodeError):
        says = f"Parse error: the body is not JSON at character {error.pos}: {printable(error.msg)}"
        return Unreadable(ErrorKind.PARSE, says)
    path, flaw = _find(value, "") or ("the body", _Flaw("cannot be read"))
    label = "Parse error" if flaw.kind is ErrorKind.PARSE else "Invalid request"
    return Unreadable(flaw.kind, f"{label}: {printable(path)} {flaw.says}", request_id)


def _leniently(text: str) -> Any:
    try:
        return _lenient.decode(text)
    except (ValueError, RecursionError):
        return None


def _find(value: Any, path: str) -> tuple[str, _Flaw] | None:
    """The first flaw in a value, with the path to it."""
    if isinstance(value, _Flaw):
        return path or "the body", value
    inside: Any = ()
    if isinstance(value, dict):
        inside = ((f"{path}.{key}" if path else key, item) for key, item in value.items())
    elif isinstance(value, list):
        inside = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    return next((found for step, item in inside if (found := _find(item, step))), None)


# Each flaw is one shared value: a body may hold millions.
_TWICE = _Flaw("appears twice")
_TOO_LARGE = _Flaw("is a number too large to be kept as it is")
_TOO_SMALL = _Flaw("is a number too small to be kept as it is")
_TOO_LONG = _Flaw("is an integer with too many digits")
_CONSTANTS = {
    name: _Flaw(f"is {name}, which JSON does not have", ErrorKind.PARSE) for name in ("NaN", "Infinity", "-Infinity")
}


def _marked_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        members = {}
        for key, value in pairs:
            members[key] = _TWICE if key in members else value
    return members


def _marked_number(text: str) -> float | _Flaw:
    try:
        return _number(text)
    except ValueError:
        return _TOO_SMALL if math.isfinite(float(text)) else _TOO_LARGE


def _marked_integer(text: str) -> int | _Flaw:
    try:
        return int(text)
    except ValueError:
        return _TOO_LONG


_lenient = json.JSONDecoder(
    object_pairs_hook=_marked_members,
    parse_float=_marked_number,
    parse_int=_marked_integer,
    parse_constant=_CONSTANTS.__getitem__,
)
