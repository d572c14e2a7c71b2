"""The fields of a form: what they show, and the value of what was typed."""

from __future__ import annotations

from typing import Any

import pytest

from app.http.ui.fields import MISSING, Field, fields_of

TITLED = [{"const": "eu", "title": "Europe"}, {"const": "us", "title": "United States"}]


def field(required: bool = False, **schema: Any) -> Field:
    return Field(0, "it", schema, required)


@pytest.mark.parametrize(
    ("schema", "kind", "sent", "value"),
    [
        ({"type": "string"}, "text", "a ☃ <b>", "a ☃ <b>"),
        ({"type": "string", "maxLength": 500}, "lines", "a\nb", "a\nb"),
        ({"type": "string", "format": "email"}, "text", "a@example.com", "a@example.com"),
        ({"type": "string", "format": "uri"}, "text", "https://example.com", "https://example.com"),
        ({"type": "string", "format": "date"}, "text", "2026-12-31", "2026-12-31"),
        ({"type": "string", "format": "date-time"}, "text", "2026-12-31T18:00", "2026-12-31T18:00:00Z"),
        ({"type": "string", "format": "date-time"}, "text", "2026-12-31T18:00:05", "2026-12-31T18:00:05Z"),
        ({"type": "string", "format": "date-time"}, "text", "2026-12-31T18:00:00+02:00", "2026-12-31T18:00:00+02:00"),
        ({"type": "integer"}, "text", " 123456789012345678901 ", 123456789012345678901),
        ({"type": "number"}, "text", "2", 2),
        ({"type": "number"}, "text", "-2.5e3", -2500.0),
        ({"type": "boolean"}, "boolean", "yes", True),
        ({"type": "boolean"}, "boolean", "no", False),
        ({"type": "string", "enum": ["a", "b"]}, "one", "1", "b"),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}, "one", "0", "a"),
        ({"type": "string", "oneOf": TITLED}, "one", "1", "us"),
        ({"type": "array", "items": {"anyOf": TITLED}}, "several", ["0", "1"], ["eu", "us"]),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, "several", ["1"], ["b"]),
        ({"type": "null"}, "json", "null", None),
        ({}, "json", '{"a":[1]}', {"a": [1]}),
    ],
)
def test_what_is_typed_becomes_a_value_of_the_fields_type(
    schema: dict[str, Any], kind: str, sent: str | list[str], value: Any
) -> None:
    made = field(**schema)
    assert made.kind == kind
    read = made.read([sent] if isinstance(sent, str) else sent)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "sent", "says"),
    [
        ({"type": "string", "minLength": 3}, "ab", "fit"),
        ({"type": "string", "format": "email"}, "nobody", "fit"),
        ({"type": "string", "format": "date"}, "31.12.2026", "fit"),
        ({"type": "string", "format": "date-time"}, "soon", "fit"),
        ({"type": "integer"}, "2.5", "whole number"),
        ({"type": "integer", "maximum": 9}, "10", "fit"),
        ({"type": "number"}, "nan", "finite"),
        ({"type": "number"}, "1e999", "finite"),
        ({"type": "number"}, "two", "not a number"),
        ({"type": "string", "enum": ["a"]}, "1", "Choose"),
        ({"type": "string", "enum": ["a"]}, "²", "Choose"),
        ({"type": "string", "enum": ["a"]}, "-1", "Choose"),
        ({"type": "array", "minItems": 2, "items": {"type": "string", "enum": ["a"]}}, "0", "fit"),
        ({}, "{", "not JSON"),
        ({}, "[" * 100_000, "not JSON"),
        ({}, '"\\ud800"', "surrogate"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(schema: dict[str, Any], sent: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        field(**schema).read([sent])


@pytest.mark.parametrize("kind", ["string", "integer", "number", "boolean", "null"])
def test_what_is_left_out_is_missing_unless_it_is_needed(kind: str) -> None:
    assert field(type=kind).read([""]) is MISSING
    assert field(type=kind).read([]) is MISSING
    with pytest.raises(ValueError, match="needed"):
        field(True, type=kind).read([""])


def test_nothing_where_there_was_a_default_is_an_answer() -> None:
    several = field(type="array", items={"enum": ["a", "b"]}, default=["b"])
    assert (several.first(), several.read([])) == (["1"], [])
    assert field(True, type="array", items={"enum": ["a"]}).read([]) == []
    assert field(type="string", default="x").read([""]) == ""
    assert field(type="string", format="date", default="2026-01-01").read([""]) is MISSING
    assert field(type="string", default="xxx", minLength=2).read([""]) is MISSING


@pytest.mark.parametrize(
    ("schema", "first"),
    [
        ({"type": "string", "default": " a "}, [" a "]),
        ({"type": "integer", "default": 0}, ["0"]),
        ({"type": "number", "default": 2.5}, ["2.5"]),
        ({"type": "boolean", "default": False}, ["no"]),
        ({"type": "boolean"}, []),
        ({"type": "string", "oneOf": TITLED, "default": "us"}, ["1"]),
        ({"type": "string", "format": "date-time", "default": "2026-01-01T02:00:00+02:00"}, ["2026-01-01T00:00:00"]),
        ({"type": "string", "format": "date-time", "default": "soon"}, ["soon"]),
        ({"default": {"a": 1}}, ['{"a": 1}']),
    ],
)
def test_a_form_begins_with_its_defaults(schema: dict[str, Any], first: list[str]) -> None:
    assert field(**schema).first() == first


def test_a_field_says_what_it_takes() -> None:
    assert field(type="integer", minimum=0, maximum=9).hint == "A whole number, at least 0, at most 9"
    assert field(type="string", minLength=2).hint == "At least 2 characters"
    assert field(type="string", format="date-time").hint == "In UTC"
    assert field(type="string").hint == ""
    assert field(title="Colour").label == "Colour"
    assert field(title=7, description=7).label == "it"
    assert field(description=7).about is None
    assert field(type="string", enum=list("abcdefgh")).rolled
    assert field(type="string", enum=["a", "b"], enumNames=["A"]).choices == [("a", "A"), ("b", "b")]


@pytest.mark.parametrize("schema", [None, [], {}, {"properties": []}, {"properties": {}}, "text"])
def test_what_is_no_form_has_no_fields(schema: Any) -> None:
    assert fields_of(schema) == ()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": [1]},
        {"type": ["integer"]},
        {"type": "string", "enum": 3},
        {"type": "string", "pattern": "("},
    ],
)
def test_no_schema_is_a_fault(schema: dict[str, Any]) -> None:
    (made,) = fields_of({"properties": {"a": schema}, "required": 3})
    assert made.first() == []
    assert made.read(["1"]) is not MISSING
