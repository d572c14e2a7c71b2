"""What clients of the older revisions are shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from app.domain.task import Json
from app.tools.registry import Tool, tool
from app.wire.envelope import dumps
from app.wire.legacy import legacy_result, legacy_tool


class Row(BaseModel):
    """An object."""

    x: int


@tool
async def count(to: int) -> int:
    """Count."""
    return to


@tool
async def rows() -> list[Row]:
    """List."""
    return [Row(x=1)]


@tool
async def row() -> Row:
    """Look up."""
    return Row(x=1)


@tool
async def say() -> str:
    """Say it."""
    return "it"


@pytest.mark.parametrize("declared", [count, rows])
def test_an_output_schema_of_anything_but_objects_is_left_out(declared: Tool) -> None:
    definition = declared.definition
    shown = legacy_tool(definition)
    assert "outputSchema" in definition
    assert shown == {key: value for key, value in definition.items() if key != "outputSchema"}


@pytest.mark.parametrize("declared", [row, say])
def test_any_other_definition_is_shown_as_it_is(declared: Tool) -> None:
    assert legacy_tool(declared.definition) == declared.definition


@pytest.mark.parametrize("schema", [True, None, [], {}, {"$ref": "#/$defs/A"}, {"type": ["object", "null"]}])
def test_a_schema_that_does_not_say_object_is_left_out(schema: Any) -> None:
    assert legacy_tool({"name": "x", "outputSchema": schema}) == {"name": "x"}


@pytest.mark.parametrize(("declared", "value"), [(count, 7), (rows, [Row(x=1)]), (count, True)])
def test_structured_content_that_is_no_object_is_only_in_the_text(declared: Tool, value: Any) -> None:
    full = json.loads(declared.result(value))
    assert json.loads(legacy_result(declared.result(value))) == {
        key: item for key, item in full.items() if key != "structuredContent"
    }
    assert json.loads(full["content"][0]["text"]) == full["structuredContent"]


@pytest.mark.parametrize("structured", [[1, 2], "x", None, 0])
def test_structured_content_without_a_text_becomes_one(structured: Any) -> None:
    result = dumps({"content": [], "structuredContent": structured, "isError": False})
    [block] = json.loads(legacy_result(result))["content"]
    assert (block["type"], json.loads(block["text"])) == ("text", structured)


@pytest.mark.parametrize(
    "result",
    [
        row.result(Row(x=1)),
        say.result("it"),
        say.result('a text with "structuredContent":[1] in it'),
        Json('{"content":[{"type":"text","text":"x","_meta":{"structuredContent":[1]}}],"isError":false}'),
        Json('{"content":[], "structuredContent":{"n":1.50}}'),
    ],
)
def test_any_other_result_stays_as_it_is_written(result: Json) -> None:
    assert legacy_result(result) == result
