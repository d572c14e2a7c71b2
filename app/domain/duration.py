"""Durations as people write them: `"90s"`, `"24h"` or a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LONGEST = "3650d"
_TEXT = re.compile(r"(-?)([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h|d)")


def parse_duration(value: str | timedelta, *, zero: bool = False, longest: str = LONGEST) -> int:
    """Return a duration in milliseconds.

    Args:
        value: a number and a unit (ms, s, m, h, d), or a timedelta.
        zero: whether no time at all makes sense here.
        longest: the longest duration that makes sense here.

    Raises:
        ValueError: with one sentence that says what is wrong and what to write.
    """
    length = _milliseconds(value)
    if length < 0:
        raise ValueError(f"{_shown(value)} is negative")
    if length == 0 and not zero:
        raise ValueError(f"{_shown(value)} is no time at all")
    if length > _milliseconds(longest):
        raise ValueError(f"{_shown(value)} is longer than {longest}")
    if length != int(length):
        raise ValueError(f"{_shown(value)} is finer than a millisecond")
    return int(length)


def _milliseconds(value: object) -> Decimal:
    if isinstance(value, timedelta):
        return Decimal(value // timedelta(microseconds=1)) / 1000
    if isinstance(value, str) and (match := _TEXT.fullmatch(value.strip())):
        sign, number, unit = match.groups()
        return Decimal(sign + number) * UNITS[unit]
    raise ValueError(
        f'{_shown(value)} is not a duration: write a number and one of {", ".join(UNITS)}, for example "90s" or "24h"'
    )


def _shown(value: object) -> str:
    return repr(value)[:40]
