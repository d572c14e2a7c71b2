"""JSON as it is written: trees that can hold what no value can, and a reading of a message's id that trusts nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_DIGITS = 4300
"""Of an integer that Python still reads."""


@dataclass
class Object:
    """An object: keys, as they are written, and values; a key may be there twice."""

    members: list[tuple[bytes, Node]]


@dataclass
class Array:
    """An array."""

    items: list[Node]


Node = Object | Array | bytes
"""Bytes stand for themselves, be they JSON or not."""


def tree(value: Any) -> Node:
    """A JSON value as a tree."""
    match value:
        case dict():
            return Object([(json.dumps(key).encode(), tree(inner)) for key, inner in value.items()])
        case list():
            return Array([tree(inner) for inner in value])
        case _:
            return json.dumps(value).encode()


def write(node: Node) -> bytes:
    """The text of a tree."""
    match node:
        case Object(members):
            return b"{" + b",".join(key + b":" + write(value) for key, value in members) + b"}"
        case Array(items):
            return b"[" + b",".join(map(write, items)) + b"]"
        case _:
            return node


def containers(node: Node) -> Iterator[Object | Array]:
    """All objects and arrays of a tree, itself included, from the outside in."""
    if isinstance(node, Object | Array):
        yield node
        for inner in [value for _, value in node.members] if isinstance(node, Object) else node.items:
            yield from containers(inner)


_TOKEN = re.compile(
    r'[ \t\n\r]*+(?:([{}\[\],:])|("(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")'
    r"|(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null|NaN|-?Infinity))"
)
_CLOSES = {"{": "}", "[": "]"}


def read_ids(body: bytes) -> tuple[list[str | int | None], bool]:
    """The ids of a message, None for one that is no id, and whether its body is JSON at all.

    Read leniently: numbers of any size, members that are there twice, depth without end, NaN, and bytes that are not
    UTF-8 are passed over.
    """
    text = body.decode("utf-8", "replace")
    members, whole = _members(text)
    damaged = text.encode() != body
    return [_id(value, damaged) for key, value in members if key == "id"], whole


def _id(written: str | None, damaged: bool) -> str | int | None:
    if written is not None and written.startswith('"'):
        return None if damaged and "\ufffd" in written else str(json.loads(written))
    if written is not None and re.fullmatch(r"-?[0-9]+", written) and len(written.lstrip("-")) <= MAX_DIGITS:
        return int(written)
    return None


def _members(text: str) -> tuple[list[tuple[str, str | None]], bool]:
    """The members of the outermost object, None for the value of one that is nested, and whether all of it is JSON."""
    members: list[tuple[str, str | None]] = []
    opened: list[str] = []
    key, expected, at = "", "value", 0
    while expected != "end" and (token := _TOKEN.match(text, at)):
        at = token.end()
        mark, string, plain = token.groups()
        if mark and opened and mark == _CLOSES[opened[-1]] and expected in ("first", "comma"):
            opened.pop()
            expected = "comma" if opened else "end"
        elif expected == "comma" and mark == ",":
            expected = "key" if opened[-1] == "{" else "value"
        elif expected == "colon" and mark == ":":
            expected = "value"
        elif (expected == "key" or (expected == "first" and opened[-1] == "{")) and string:
            key = json.loads(string) if len(opened) == 1 else ""
            expected = "colon"
        elif (expected == "value" or (expected == "first" and opened[-1] == "[")) and (not mark or mark in "{["):
            if opened == ["{"]:
                members.append((key, None if mark else string or plain))
            if mark:
                opened.append(mark)
            expected = "first" if mark else "comma" if opened else "end"
        else:
            return members, False
    return members, expected == "end" and not text[at:].strip(" \t\n\r")
