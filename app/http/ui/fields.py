"""The fields of a form (core, "Requested Schema"): how each is shown, and how what was typed becomes its value.

A field has a number, and each choice too: names and choices are any text, and browsers do not send any text unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from app.tools.validation import SchemaValidator, written

FEW = 7
"""So many choices are shown at once; more are in a list to open."""

LONG = 120
"""Text that may be longer gets more lines, where its schema says how long it may be."""

MISSING = object()
"""The value of a field that is left out."""

_INPUTS = {"email": "email", "uri": "url", "date": "date", "date-time": "datetime-local"}
_HINTS = {
    "integer": "A whole number",
    "number": "A number",
    "date-time": "In UTC",
    "uri": "An address with its scheme, such as https://example.com",
    "json": "A JSON value",
}


@dataclass(frozen=True, slots=True)
class Field:
    """A property of a form.

    Attributes:
        number: its place in the form.
    """

    number: int
    name: str
    schema: Mapping[str, Any]
    required: bool

    @property
    def id(self) -> str:
        """What it is called in the page."""
        return f"f{self.number}"

    @property
    def label(self) -> str:
        """What stands before it."""
        title = self.schema.get("title")
        return title if isinstance(title, str) and title else self.name

    @property
    def kind(self) -> str:
        """text, lines, one, several, boolean or json."""
        match self.schema.get("type"):
            case "array" if self.choices:
                return "several"
            case "boolean":
                return "boolean"
            case "string" | "integer" | "number" if self.choices:
                return "one"
            case "integer" | "number":
                return "text"
            case "string":
                longest = self._limit("maxLength")
                return "lines" if longest is not None and longest > LONG else "text"
            case _:
                return "json"

    @property
    def input(self) -> str:
        """The browser's own kind of a text."""
        return _INPUTS.get(str(self.schema.get("format")), "text")

    @property
    def mode(self) -> str | None:
        """Which keys a phone shows."""
        return {"integer": "numeric", "number": "decimal"}.get(str(self.schema.get("type")))

    @property
    def rolled(self) -> bool:
        """Whether its choices are in a list to open."""
        return len(self.choices) > FEW

    @property
    def choices(self) -> list[tuple[Any, str]]:
        """Values, and what they are called."""
        items = self.schema.get("items")
        schema = items if isinstance(items, Mapping) else self.schema
        listed = [*_list(schema.get("oneOf")), *_list(schema.get("anyOf"))]
        titled = [each for each in listed if isinstance(each, Mapping) and "const" in each]
        if titled:
            return [(each["const"], str(each.get("title", each["const"]))) for each in titled]
        values = _list(schema.get("enum"))
        names = [*_list(schema.get("enumNames")), *values[len(_list(schema.get("enumNames"))) :]]
        return list(zip(values, map(str, names), strict=False))

    @property
    def hint(self) -> str:
        """What it takes, in words."""
        kind = self.kind
        words = [
            _HINTS.get(str(self.schema.get("format") or (kind if kind == "json" else self.schema.get("type"))), "")
        ]
        limits = {"minimum": "at least {}", "maximum": "at most {}"}
        if kind in ("text", "lines"):
            limits |= {"minLength": "at least {} characters", "maxLength": "at most {} characters"}
        if kind == "several":
            limits |= {"minItems": "choose at least {}", "maxItems": "choose at most {}"}
        words += [say.format(self.schema[key]) for key, say in limits.items() if self._limit(key) is not None]
        said = ", ".join(filter(None, words))
        return said[:1].upper() + said[1:]

    @property
    def about(self) -> str | None:
        """What its schema says of it."""
        text = self.schema.get("description")
        return text if isinstance(text, str) else None

    def first(self) -> list[str]:
        """What the form holds before anything was typed: the schema's default."""
        default = self.schema.get("default")
        if default is None:
            return []
        match self.kind:
            case "one" | "several":
                wanted = default if isinstance(default, list) else [default]
                return [str(number) for number, (value, _) in enumerate(self.choices) if value in wanted]
            case "boolean":
                return ["yes" if default is True else "no"]
            case "text" | "lines" if isinstance(default, str):
                return [_local(default) if self.input == "datetime-local" else default]
            case _:
                return [json.dumps(default, ensure_ascii=False)]

    def read(self, sent: Sequence[str]) -> Any:
        """The value of what was sent, or `MISSING`.

        Raises:
            ValueError: it is none that the field takes; the message says why.
        """
        value = self._value(sent)
        if value is MISSING:
            if self.required:
                raise ValueError("This is needed.")
            return value
        if flaw := _flaw(self.schema, value):
            raise ValueError(f"This does not fit: {flaw}.")
        return value

    def _value(self, sent: Sequence[str]) -> Any:
        text = sent[0] if sent else ""
        match self.kind:
            case "several":
                chosen = [self._chosen(each) for each in sent]
                # Nothing chosen is an answer too, where silence would mean the default.
                return chosen if chosen or self.required or self.schema.get("default") else MISSING
            case "one":
                return self._chosen(text) if text else MISSING
            case "boolean":
                return text == "yes" if text else MISSING
            case "json":
                return _json(text) if text.strip() else MISSING
        if self.schema.get("type") in ("integer", "number"):
            return _number(text.strip(), str(self.schema["type"])) if text.strip() else MISSING
        if text or (self.schema.get("default") and self.input == "text" and not self._limit("minLength")):
            return _moment(text) if self.input == "datetime-local" else text
        return MISSING

    def _chosen(self, text: str) -> Any:
        if not (text.isascii() and text.isdigit() and int(text) < len(self.choices)):
            raise ValueError("Choose one of these.")
        return self.choices[int(text)][0]

    def _limit(self, name: str) -> int | float | None:
        value = self.schema.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def fields_of(schema: Any) -> tuple[Field, ...]:
    """The fields of a form, in its order; none where it is no form."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return ()
    required = _list(schema.get("required"))
    return tuple(
        Field(number, name, each if isinstance(each, Mapping) else {}, name in required)
        for number, (name, each) in enumerate(properties.items())
    )


def _flaw(schema: Mapping[str, Any], value: Any) -> str | None:
    try:
        written(value)
    except ValueError as flaw:
        return str(flaw)
    try:
        return SchemaValidator(dict(schema)).check(value)
    except ValueError:  # the schema itself cannot be used; the tool judges the value
        return None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("This is not JSON.") from None


def _number(text: str, kind: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        if kind == "integer":
            raise ValueError("This is not a whole number.") from None
    try:
        return float(text)
    except ValueError:
        raise ValueError("This is not a number.") from None


def _moment(text: str) -> str:
    """What a browser sends for a time, which has no zone, as a date-time of UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return text if moment.tzinfo else f"{moment.isoformat()}Z"


def _local(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{moment.astimezone(UTC) if moment.tzinfo else moment:%Y-%m-%dT%H:%M:%S}"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
