"""JSON values and JSON Schemas (core, "JSON Schema Usage"): whether a value fits, told without repeating the value.

Draft 2020-12 unless a schema's `$schema` names 2019-09, 7, 6 or 4. Nothing is ever fetched: a schema with a remote
`$ref` is refused. Formats are asserted as the tool's own types read them, so that a date that the tool could not take
is refused before there is a task.
"""

from __future__ import annotations

import datetime
import ipaddress
import math
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind as Kind
from pydantic import AnyUrl, TypeAdapter, ValidationError

from app.domain.task import Json
from app.wire.envelope import dumps, printable
from app.wire.nesting import MAX_DEPTH, too_deep

MAX_SCHEMA = 1_000_000
"""Characters of a schema: what one that people wrote never reaches."""
_LISTED = 5
_LIST_BELOW = 10_000  # characters; a validation that lists its errors builds all of them, and each costs memory
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def written(value: Any) -> Json:
    """Write a value as compact JSON that every reader takes, and takes unchanged.

    Raises:
        ValueError: it is not such a value; the message names the first place where it is not.
    """
    text: Json | None = None
    try:
        text = dumps(value)
        if "\\ud" not in text and not too_deep(text.encode()):
            return text
    except (TypeError, ValueError):
        pass
    flaw = _find_flaw(value)
    if flaw is None and text is not None:
        return text
    raise ValueError(flaw or "the value cannot be written as JSON")


def _find_flaw(value: Any) -> str | None:
    pending: list[tuple[Any, tuple[Any, ...]]] = [(value, ())]
    while pending:
        item, path = pending.pop()
        flaw = _flaw(item, len(path))
        if flaw is not None:
            return located(path, flaw)
        if isinstance(item, dict):
            pending.extend((inner, (*path, key)) for key, inner in item.items())
        elif isinstance(item, list | tuple):
            pending.extend((inner, (*path, index)) for index, inner in enumerate(item))
    return None


def _flaw(item: Any, depth: int) -> str | None:
    if isinstance(item, dict | list | tuple):
        if depth >= MAX_DEPTH:
            return f"nested more than {MAX_DEPTH} levels deep"
        keys = item if isinstance(item, dict) else ()
        return next(filter(None, map(_text_flaw, keys)), None)
    if isinstance(item, float):
        return None if math.isfinite(item) else "a number that is not finite, which JSON does not have"
    return None if item is None or isinstance(item, int) else _text_flaw(item)


def _text_flaw(text: Any) -> str | None:
    if not isinstance(text, str):
        return "of a type that JSON does not have"
    return "text with a lone surrogate, which is no Unicode" if _SURROGATE.search(text) else None


def located(path: Iterable[Any], reason: str) -> str:
    """A reason after the place it is about, such as `rows[2].name: …`; the reason alone for the whole value."""
    where = "".join(_step(step) for step in path).removeprefix(".")
    return f"{where[:200]}: {reason}" if where else reason


def _step(step: Any) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _NAME.fullmatch(str(step)) else f'["{printable(str(step), 64)}"]'


class SchemaValidator:
    """A JSON Schema, compiled once.

    Raises:
        ValueError: the schema is no valid one, refers to something outside of itself, or is beyond all bounds.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        if len(written(schema)) > MAX_SCHEMA:
            raise ValueError(f"the schema is longer than {MAX_SCHEMA} characters")
        try:
            self._validator = jsonschema_rs.validator_for(
                schema,
                mask="the value",
                offline=True,
                validate_formats=True,
                formats=_FORMATS,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000),
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            raise ValueError(f"the schema cannot be used: {error.message}") from error

    def check(self, value: Any) -> str | None:
        """Say which fields of a JSON value do not fit and why, None where it fits. Never repeats a value."""
        try:
            self.fitting(value)
        except ValueError as misfit:
            return str(misfit)
        return None

    def fitting(self, value: Any) -> Json:
        """Write a value that fits as compact JSON.

        Raises:
            ValueError: it does not; the message is as `check` says it.
        """
        text = written(value)
        if self._validator.is_valid(value):
            return text
        raise ValueError(self._misfit(value, text))

    def _misfit(self, value: Any, text: Json) -> str:
        errors = self._validator.iter_errors(value) if len(text) < _LIST_BELOW else self._first(value)
        reasons = dict.fromkeys(reason for error in errors for reason in _reasons(error))
        return "; ".join(islice(reasons, _LISTED))[:2_000] or "the value does not fit"

    def _first(self, value: Any) -> Iterator[jsonschema_rs.ValidationError]:
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            yield error


def _reasons(error: jsonschema_rs.ValidationError) -> Iterator[str]:
    """What is wrong; of alternatives, what is wrong with the only one of the value's own type and tag."""
    kind = error.kind
    if isinstance(kind, Kind.AnyOf | Kind.OneOfNotValid):
        branches = [(branch, _expected(branch, error.instance_path)) for branch in kind.context]
        fitting = [branch for branch, other_types in branches if not other_types]
        tagged = [branch for branch in fitting if not any(isinstance(inner.kind, Kind.Constant) for inner in branch)]
        fitting = tagged or fitting
        if len(fitting) == 1:
            for inner in fitting[0]:
                yield from _reasons(inner)
            return
        if not fitting:
            types = dict.fromkeys(name for _, other_types in branches for name in other_types)
            yield located(error.instance_path, f"the value is not of type {' or '.join(map(dumps, types))}")
            return
    yield located(error.instance_path, error.message[:500])


def _expected(branch: list[jsonschema_rs.ValidationError], path: list[str | int]) -> list[str]:
    """The types that an alternative takes, where the value itself is of none of them."""
    return [name for error in branch if error.instance_path == path for name in getattr(error.kind, "types", ())]


def _reads(kind: Any) -> Callable[[str], bool]:
    adapter = TypeAdapter[Any](kind)

    def reads(text: str) -> bool:
        try:
            adapter.validate_json(dumps(text), strict=True)
        except ValidationError:
            return False
        return True

    return reads


_FORMATS = {
    "date": _reads(datetime.date),
    "date-time": _reads(datetime.datetime),
    "time": _reads(datetime.time),
    "duration": _reads(datetime.timedelta),
    "ipv4": _reads(ipaddress.IPv4Address),
    "ipv6": _reads(ipaddress.IPv6Address),
    "uri": _reads(AnyUrl),
    "uuid": _reads(uuid.UUID),
}
