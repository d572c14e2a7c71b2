"""Which of the two forms of a reply a client takes (core, "Sending Messages"; RFC 9110, "Accept").

The protocol asks clients to name both. Those that name one get that one, and those that name none get either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

JSON = "application/json"
SSE = "text/event-stream"

# A quoted string may hold the commas and semicolons that separate.
_RANGE = re.compile(r'(?:[^,"]|"(?:\\.|[^"\\])*"?)+')
_PARAMETER = re.compile(r'(?:[^;"]|"(?:\\.|[^"\\])*"?)+')
_QUALITY = re.compile(r"q\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Accept:
    """What a client takes: one JSON object, a stream of events, or either."""

    json: bool
    sse: bool


@lru_cache(maxsize=16)  # few, for each may be as large as a head: up to 1 MB
def read_accept(value: str | None) -> Accept:
    """Read a request's `Accept` headers, joined; without any, or with none but empty ones, all is accepted.

    What is malformed matches nothing.
    """
    if value is None or not value.strip(" \t,"):
        return Accept(json=True, sse=True)
    ranges = [found for part in _RANGE.findall(value) if (found := _range(part))]
    return Accept(json=_takes(ranges, JSON), sse=_takes(ranges, SSE))


def _range(part: str) -> tuple[str, bool] | None:
    """A media range, and whether it is one that is accepted; None for what is none."""
    name, *parameters = (piece.strip() for piece in _PARAMETER.findall(part))
    for parameter in parameters:
        if parameter[:1].lower() == "q" and parameter[1:].lstrip().startswith("="):
            quality = _QUALITY.fullmatch(parameter)
            return (name.lower(), float(quality[1]) > 0) if quality else None
    return name.lower(), True


def _takes(ranges: list[tuple[str, bool]], kind: str) -> bool:
    """Whether a media type is accepted: the ranges that match it most closely decide."""
    for name in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
        if said := [accepted for found, accepted in ranges if found == name]:
            return any(said)
    return False
