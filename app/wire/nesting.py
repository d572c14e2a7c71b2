"""How deeply JSON text is nested, found without parsing it: a parser that recurses is no judge of its own input.

All of it is a few passes in C over the text, whatever the text is.
"""

from __future__ import annotations

import re
from array import array
from itertools import accumulate

MAX_DEPTH = 64
"""Objects and arrays within each other that a message may have, itself included."""

_STEPS = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_HEAD = re.compile(r'\s*+\{(?:[^"\[{]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)


def too_deep(body: bytes) -> bool:
    """True where brackets outside of strings are open MAX_DEPTH + 1 deep at some point."""
    if body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        return False
    steps = array("b", _outside_strings(body).translate(_STEPS, _NO_BRACKETS))
    return MAX_DEPTH + 1 in accumulate(steps)


def around_nesting(body: bytes) -> str:
    """The document with all between its first and its last nested value replaced by `null`.

    So that the other members of a message that is nested too deeply can be read; "" where that does not work.
    """
    text = body.decode("utf-8", "replace").rstrip()
    head = _HEAD.match(text)
    if head is None:
        return ""
    closed = max(text.rfind("}", head.end(), len(text) - 1), text.rfind("]", head.end(), len(text) - 1))
    return f"{head.group()}null{text[closed + 1 :]}" if closed >= 0 else ""


def _outside_strings(body: bytes) -> bytes:
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(body.split(b'"')[::2])
