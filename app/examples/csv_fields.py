"""Fields of a CSV file as values: what each kind of column takes. An empty field is NULL, or empty text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Literal

Kind = Literal["text", "integer", "number", "date"]

_INTEGERS = range(-(2**63), 2**63)
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?\s*", re.ASCII)


def _text(field: str) -> str:
    if "\x00" in field:
        raise ValueError("a text cannot hold NUL")
    if not field.isascii():
        field.encode()  # fails where the file was not UTF-8
    return field


def _integer(field: str) -> int | None:
    if not field:
        return None
    value = int(field)
    if value not in _INTEGERS or "_" in field:
        raise ValueError("not an integer of 64 bits")
    return value


def _number(field: str) -> Decimal | None:
    if not field:
        return None
    if len(field) > 100 or not _NUMBER.fullmatch(field):
        raise ValueError("not a number")
    return Decimal(field)


def _date(field: str) -> date | None:
    return date.fromisoformat(field.strip()) if field else None


PARSERS: dict[Kind, Callable[[str], Any]] = {"text": _text, "integer": _integer, "number": _number, "date": _date}
"""Each makes a field into a value, None for NULL, or raises ValueError."""


def parsed(record: list[str] | None, parsers: Sequence[Callable[[str], Any]]) -> list[Any] | None:
    """A record as values, None where it is none or a field does not parse."""
    if record is None:
        return None
    try:
        return [parse(field) for parse, field in zip(parsers, record, strict=True)]
    except ValueError:
        return None


def parses(kind: Kind, field: str) -> bool:
    """Whether a field holds a value of this kind."""
    return parsed([field], [PARSERS[kind]]) is not None
