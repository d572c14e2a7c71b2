"""How values are written for a reader: times, durations, payloads, and text of others that must not deceive."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from markupsafe import Markup, escape

INDENT = "  "
DEEPEST = 40
"""No deeper level is indented further."""

# Controls but tab and line feed, lone surrogates, what reorders text, and what does not show.
_UNSEEN = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def shown(value: object) -> object:
    """A value as it is put on a page: in text, what is not meant to be seen is escaped."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", value)


def exact(value: str) -> Markup:
    """A text that a form must send back as it is."""
    return escape(value)


def duration(span: timedelta | float | None) -> str:
    """How long, in the two largest units that matter; seconds where it is a number."""
    if span is None:
        return "none"
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    if abs(seconds) < 10:
        return f"{seconds:.1f} s".replace(".0 ", " ")
    left = round(abs(seconds))
    parts: list[str] = []
    for name, size in _UNITS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {name}")
            left %= size
        elif parts:
            break
    return ("−" if seconds < 0 else "") + " ".join(parts)


def ago(moment: datetime | None, now: datetime | None = None) -> Markup:
    """A moment as its distance from now, with the exact one in the title."""
    if moment is None:
        return Markup("—")
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    text = "now" if abs(seconds) < 2 else f"{_coarse(seconds)} ago" if seconds > 0 else f"in {duration(-seconds)}"
    utc = moment.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        utc.isoformat(timespec="milliseconds"), f"{utc:%Y-%m-%d %H:%M:%S} UTC", text
    )


def clock(moment: datetime) -> str:
    """A moment to the millisecond, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"


def pretty(text: str) -> str:
    """JSON text, or its beginning, on lines of its own; nothing of it is read, and so nothing is changed."""
    out: list[str] = []
    depth, opened = 0, False
    for piece in _TOKEN.findall(text):
        if piece in "}]":
            depth = max(0, depth - 1)
            out.append(piece if opened else _line(depth) + piece)
            opened = False
            continue
        if opened:
            out.append(_line(depth))
        opened = piece in "{["
        depth += opened
        out.append(piece)
        if piece == ",":
            out.append(_line(depth))
        elif piece == ":":
            out.append(" ")
    return "".join(out)


def _line(depth: int) -> str:
    return "\n" + INDENT * min(depth, DEEPEST)


def _coarse(seconds: float) -> str:
    name, size = next(((name, size) for name, size in _UNITS if seconds >= size), _UNITS[-1])
    return f"{int(seconds // size)} {name}"
