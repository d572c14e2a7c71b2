"""What a tool returns, as a CallToolResult: exactly, or not at all."""

from __future__ import annotations

import datetime
import enum
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from mcp_types import AudioContent, CallToolResult, ImageContent, ResourceLink, TextContent
from pydantic import BaseModel, Field, computed_field, field_serializer
from typing_extensions import TypedDict

from app.errors import UnusableResult
from app.tools.results import Outputs, error_result


class Weather(BaseModel):
    """The weather at a place."""

    degrees: float
    sky: str | None = None
    station_id: str = Field("a", alias="stationId")
    extra: Any = 0

    @computed_field
    def warm(self) -> bool:
        return self.degrees > 20


class Row(TypedDict):
    id: int


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int


def read(returns: Any, value: Any) -> dict[str, Any]:
    result = json.loads(Outputs(returns).result(value))
    CallToolResult.model_validate(result)
    assert result["resultType"] == "complete"
    return dict(result)


def refused(returns: Any, value: Any) -> str:
    with pytest.raises(UnusableResult) as unusable:
        Outputs(returns).result(value)
    return str(unusable.value)


IMAGE = ImageContent(type="image", data="aGk=", mime_type="image/png")
LINK = ResourceLink(type="resource_link", uri="file:///a", name="a")


@pytest.mark.parametrize(
    "returns",
    [
        str,
        str | None,
        None,
        Any,
        TextContent,
        TextContent | ImageContent,
        list[TextContent | ImageContent],
        tuple[AudioContent, ...],
        str | list[ImageContent],
        CallToolResult,
        CallToolResult | str,
    ],
)
def test_text_content_and_nothing_have_no_schema(returns: Any) -> None:
    assert Outputs(returns).schema is None


@pytest.mark.parametrize(
    ("returns", "value", "content"),
    [
        (str, "Grüße\n\x00", [{"type": "text", "text": "Grüße\n\x00"}]),
        (None, None, []),
        (ImageContent, IMAGE, [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]),
        (list[ResourceLink], [LINK], [{"type": "resource_link", "uri": "file:///a", "name": "a"}]),
        (list[ImageContent], [], []),
        (Any, "x", [{"type": "text", "text": "x"}]),
    ],
)
def test_text_and_blocks_go_to_content_as_they_are(returns: Any, value: Any, content: list[Any]) -> None:
    assert read(returns, value) == {"content": content, "isError": False, "resultType": "complete"}


@pytest.mark.parametrize(
    ("returns", "value", "data"),
    [
        (Weather, Weather(degrees=21), {"degrees": 21.0, "sky": None, "stationId": "a", "extra": 0, "warm": True}),
        (Point, Point(1), {"x": 1}),
        (Row, Row(id=1), {"id": 1}),
        (list[Row], [], []),
        (dict[str, int], {"a": 10**40}, {"a": 10**40}),
        (dict, {"a": [None, 1.5, "ü"]}, {"a": [None, 1.5, "ü"]}),
        (int, -(2**70), -(2**70)),
        (bool, True, True),
        (float, 0.1, 0.1),
        (Decimal, Decimal("0.10"), "0.10"),
        (Colour, Colour.RED, "red"),
        (datetime.date, datetime.date(2026, 7, 28), "2026-07-28"),
        (datetime.datetime, datetime.datetime(2026, 7, 28), "2026-07-28T00:00:00"),
        (Point | None, None, None),
        (Any, {"a": Point(1)}, {"a": {"x": 1}}),
        (Any, [], []),
    ],
)
def test_other_values_are_structured_and_repeated_as_compact_json(returns: Any, value: Any, data: Any) -> None:
    result = read(returns, value)
    assert result.pop("structuredContent") == data
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    assert result == {"content": [{"type": "text", "text": text}], "isError": False, "resultType": "complete"}


def test_the_output_schema_is_that_of_what_is_written() -> None:
    assert Outputs(Weather).schema == {
        "type": "object",
        "description": "The weather at a place.",
        "required": ["degrees", "warm"],
        "properties": {
            "degrees": {"type": "number"},
            "sky": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "stationId": {"type": "string", "default": "a"},
            "extra": {"default": 0},
            "warm": {"type": "boolean", "readOnly": True},
        },
    }
    assert Outputs(list[int] | CallToolResult).schema == {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize(
    ("returns", "value", "where"),
    [
        (Weather, Weather(degrees=math.nan), "degrees: a number that is not finite"),
        (Weather, Weather(degrees=1, extra=[math.inf]), "extra[0]: a number that is not finite"),
        (dict, {"a": math.inf}, "a: a number that is not finite"),
        (Any, Weather(degrees=1, extra=math.nan), "extra: a number that is not finite"),
        (float, -math.inf, "a number that is not finite"),
        (list[Row], [{"id": 1}, {"id": "SECRET"}], "[1].id"),
        (Row, {"SECRET": 1}, '"id" is a required property'),
        (int, "SECRET", "integer"),
        (Weather, None, "object"),
        (datetime.date, "SECRET", "date"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_field_and_without_its_value(
    returns: Any, value: Any, where: str
) -> None:
    said = refused(returns, value)
    assert where in said
    assert "SECRET" not in said


def _cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


def _deep() -> Any:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    return deep


@pytest.mark.parametrize(
    "value",
    [
        _cycle(),
        _deep(),
        object(),
        {"a": {object()}},
        b"\xff",
        "\ud800",
        {"a": "\ud800"},
        {"\ud800": 1},
        TextContent(type="text", text="\ud800"),
        CallToolResult(content=[], structured_content={"a": math.nan}),
        CallToolResult(content=[], structured_content=_cycle()),
        10**5000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_hold_is_refused_whatever_it_is(value: Any) -> None:
    assert "cannot be written as JSON" in refused(Any, value)


def test_an_authors_serializer_that_fails_is_an_unusable_result_that_keeps_its_cause() -> None:
    class Broken(BaseModel):
        x: int = 1

        @field_serializer("x")
        def write(self, x: int) -> int:
            raise KeyError("SECRET")

    with pytest.raises(UnusableResult) as unusable:
        Outputs(Broken).result(Broken())
    assert "SECRET" not in str(unusable.value)
    assert unusable.value.__cause__ is not None


def test_a_whole_result_passes_through_whole() -> None:
    whole = CallToolResult(
        content=[TextContent(type="text", text="half done", _meta={"k": None})],
        structured_content={"left": None, "at": Weather(degrees=1)},
        is_error=True,
        _meta={"com.example/a": [1]},
    )
    assert read(CallToolResult, whole) == {
        "content": [{"type": "text", "text": "half done", "_meta": {"k": None}}],
        "structuredContent": {
            "left": None,
            "at": {"degrees": 1.0, "sky": None, "stationId": "a", "extra": 0, "warm": False},
        },
        "isError": True,
        "_meta": {"com.example/a": [1]},
        "resultType": "complete",
    }


def test_a_whole_result_must_fit_a_declared_schema_unless_it_is_an_error() -> None:
    fits = CallToolResult(content=[], structured_content={"id": 1})
    assert read(Row, fits)["structuredContent"] == {"id": 1}
    assert "id" in refused(Row, CallToolResult(content=[], structured_content={"id": "x"}))
    assert "object" in refused(Row, CallToolResult(content=[]))
    assert read(Row, CallToolResult(content=[], is_error=True))["isError"] is True


@pytest.mark.requirement("R06")
def test_other_result_types_are_made_complete() -> None:
    assert read(Any, CallToolResult(content=[], result_type="task"))["isError"] is False


def test_an_error_result_never_fails() -> None:
    assert json.loads(error_result("no \udc80 such file")) == {
        "content": [{"type": "text", "text": "no \\udc80 such file"}],
        "isError": True,
        "resultType": "complete",
    }
