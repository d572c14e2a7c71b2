"""The headers that mirror a message's body, and how their values are written (core, "Request Metadata")."""

from __future__ import annotations

import binascii
from collections.abc import Iterable
from typing import Any, NoReturn

from app.errors import ErrorKind, Refusal
from app.wire.envelope import Message, printable

VERSION_HEADER = "MCP-Protocol-Version"
METHOD_HEADER = "Mcp-Method"
NAME_HEADER = "Mcp-Name"
PARAMETER_PREFIX = "Mcp-Param-"

_VERSION, _METHOD, _NAME = VERSION_HEADER.lower(), METHOD_HEADER.lower(), NAME_HEADER.lower()
_PREFIX = PARAMETER_PREFIX.lower()

_NAMED_BY = {"tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}
_SENTINEL, _END = "=?base64?", "?="


class Head(dict[str, str]):
    """The headers of a request by their names in lower case, read once; repeated ones are joined as HTTP joins them,
    so that none can hide behind another."""

    def __init__(self, headers: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__()
        for given, value in headers:
            name, value = given.lower(), value.strip(" \t")
            self[name] = f"{self[name]}, {value}" if name in self else value

    @property
    def version(self) -> str | None:
        """The protocol version that it declares."""
        return self.get(_VERSION)

    def parameters(self) -> dict[str, str]:
        """The `Mcp-Param-*` headers, not decoded, by the rest of their names."""
        return {name[len(_PREFIX) :]: value for name, value in self.items() if name.startswith(_PREFIX)}


def decode_header(value: str) -> str:
    """The text that a header's value stands for (core, "Value Encoding").

    Raises:
        ValueError: for characters that a header may not hold, and for a sentinel around what is not Base64 of UTF-8.
    """
    if not value.isascii() or not value.replace("\t", "").isprintable():
        raise ValueError("which holds characters that a header may not hold")
    if not (value.startswith(_SENTINEL) and value.endswith(_END) and len(value) >= len(_SENTINEL + _END)):
        return value
    try:
        return binascii.a2b_base64(value[len(_SENTINEL) : -len(_END)], strict_mode=True).decode()
    except ValueError:
        raise ValueError("which is not the Base64 of UTF-8 text") from None


def check_routing(message: Message, head: Head, *, strict: bool, lenient_task_names: bool) -> None:
    """Compare `Mcp-Method` and `Mcp-Name` with the body (core, "Server Validation"; Tasks, "Routing Headers").

    Args:
        strict: refuse a message without them too.
        lenient_task_names: except for `Mcp-Name` on `tasks/*`.

    Raises:
        Refusal: HEADER_MISMATCH.
    """
    method = head.get(_METHOD)
    if method is None and strict:
        mismatch(f"the header {METHOD_HEADER} is required")
    if method is not None and method != message.method:
        mismatch(f"{METHOD_HEADER} is '{printable(method)}', but the method is '{printable(message.method)}'")
    member = _NAMED_BY.get(message.method)
    if member is not None:
        required = strict and not (lenient_task_names and member == "taskId")
        _check_name(head.get(_NAME), member, message.params.get(member), required)


def mismatch(says: str) -> NoReturn:
    """Refuse a request for its headers."""
    raise Refusal(ErrorKind.HEADER_MISMATCH, f"Header mismatch: {says}")


def _check_name(value: str | None, member: str, expected: Any, required: bool) -> None:
    if value is None:
        # A client cannot send what its body lacks: the method then says what is wrong with the body.
        if required and isinstance(expected, str):
            mismatch(f"the header {NAME_HEADER} is required")
        return
    try:
        name = decode_header(value)
    except ValueError as error:
        mismatch(f"{NAME_HEADER} is '{printable(value)}', {error}")
    if name != expected:
        body = f"'{printable(expected)}'" if isinstance(expected, str) else "no string"
        mismatch(f"{NAME_HEADER} is '{printable(name)}', but params.{member} is {body}")
