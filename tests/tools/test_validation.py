"""JSON Schemas: dialects, what is never fetched, and messages that name fields and no values."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from app.tools.validation import SchemaValidator


def test_the_dialect_is_2020_12_unless_the_schema_names_another() -> None:
    tuple_of = {"prefixItems": [{"type": "integer"}]}
    assert SchemaValidator(tuple_of).check(["x"]) is not None
    assert SchemaValidator({"$schema": "http://json-schema.org/draft-07/schema#", **tuple_of}).check(["x"]) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "file:///etc/passwd"},
        {"properties": {"a": {"$ref": "https://example.com/a.json"}}},
        {"$ref": "#/$defs/missing"},
        {"$schema": "https://example.com/mine"},
        {"type": "nonsense"},
        {"pattern": "("},
        {"default": float("nan")},
        {"description": "x" * 1_100_000},
    ],
)
def test_a_schema_that_is_wrong_remote_or_beyond_bounds_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"schema|default"):
        SchemaValidator(schema)


def test_a_schema_nested_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(100):
        schema = {"items": schema}
    with pytest.raises(ValueError, match="nested more than"):
        SchemaValidator(schema)


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"type": ["integer", "null"]}, "x", 'the value is not of types "null", "integer"'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", 'the value is not of type "integer" or "null"'),
        (
            {"anyOf": [{"type": "object", "properties": {"n": {"type": "integer"}}}, {"type": "null"}]},
            {"n": "SECRET"},
            'n: the value is not of type "integer"',
        ),
        (
            {
                "oneOf": [
                    {"type": "object", "properties": {"kind": {"const": kind}, "n": {"type": "integer"}}}
                    for kind in ("cat", "dog")
                ]
            },
            {"kind": "cat", "n": "SECRET"},
            'n: the value is not of type "integer"',
        ),
        ({"properties": {}, "additionalProperties": False}, {"stray": "SECRET"}, "'stray' was unexpected"),
        ({"additionalProperties": {"type": "integer"}}, {"a b\n": "x"}, r'["a b\n"]: the value is not'),
        ({"enum": ["a", "b"]}, "SECRET", '"a" or "b"'),
        ({"const": "a"}, "SECRET", '"a" was expected'),
        ({"pattern": r"^\d+$"}, "SECRET", r"^\d+$"),
        ({"not": {"type": "string"}}, "SECRET", "not allowed"),
        ({"items": {"maximum": 3}}, [1, 4], "[1]: the value is greater than"),
        ({"format": "date"}, "SECRET", '"date"'),
    ],
)
def test_messages_name_the_field_and_the_rule_but_no_value(schema: dict[str, Any], value: Any, said: str) -> None:
    reason = SchemaValidator(schema).check(value)
    assert reason is not None
    assert said in reason
    assert "SECRET" not in reason


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", "2026-07-28T10:00:00", "today"),
        ("date-time", "2026-07-28 10:00:00Z", "2026-13-01T00:00:00Z"),
        ("date", "2026-07-28", "28.7.2026"),
        ("time", "10:00", "ten"),
        ("duration", "PT90S", "a while"),
        ("uuid", "9a1f0e1e-6f5d-4a44-9a55-3c1f1c1d2e3f", "9a1f"),
        ("uri", "https://example.com/ü", "example"),
        ("email", "a@example.com", "a"),
        ("of-our-own", "x", None),
    ],
)
def test_formats_are_asserted_as_the_tools_types_read_them(name: str, good: str, bad: str | None) -> None:
    validator = SchemaValidator({"type": "string", "format": name})
    assert validator.check(good) is None
    assert bad is None or validator.check(bad) is not None


def test_a_value_with_a_million_errors_costs_no_more_than_one() -> None:
    validator = SchemaValidator({"items": {"type": "integer"}})
    started = time.monotonic()
    reason = validator.check(["x"] * 1_000_000)
    assert time.monotonic() - started < 5
    assert reason == '[0]: the value is not of type "integer"'


def test_long_names_and_many_errors_make_no_long_message() -> None:
    validator = SchemaValidator({"additionalProperties": {"type": "integer"}})
    reason = validator.check({f"{i}{'x' * 500}": "y" for i in range(15)})
    assert reason is not None
    assert len(reason) < 2_001
    assert reason.count(";") == 4


def test_text_that_looks_like_an_escaped_surrogate_is_just_text() -> None:
    assert SchemaValidator({}).check({"a": "\\ud800", "b": "😀"}) is None


def test_nothing_is_ever_fetched_for_a_schema() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        remote = f"http://127.0.0.1:{listening.getsockname()[1]}/schema"
        for schema in (
            {"$ref": remote},
            {"$dynamicRef": f"{remote}#node"},
            {"$schema": remote},
            {"$id": remote, "$ref": "other"},
            {"properties": {"a": {"items": {"$ref": f"{remote}#/$defs/A"}}}},
        ):
            with pytest.raises(ValueError, match="the schema cannot be used"):
                SchemaValidator(schema)
        listening.settimeout(0.2)
        with pytest.raises(TimeoutError):
            listening.accept()


@pytest.mark.parametrize(
    "pattern",
    [r"^(a+)+$", r"^(a|a)*$", r"^(?=(a+)+$)", r"^(a*)*\1$", r"^(a|a)*\1b$", r"(a{1,99}){1,99}c"],
)
def test_a_pattern_that_would_take_for_ever_is_given_up_on(pattern: str) -> None:
    validator = SchemaValidator({"type": "array", "items": {"type": "string", "pattern": pattern}})
    began = time.monotonic()
    for value in (["a" * 30 + "d"] * 300, ["a" * 2_000 + "d"] * 4, ["a" * 20_000 + "d"]):
        assert validator.check(value) is not None
    assert time.monotonic() - began < 20
