"""What a signature becomes: the input schema, and arguments made into values."""

from __future__ import annotations

import datetime
import enum
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional

import pytest
from mcp_types import Tool as WireTool
from pydantic import AfterValidator, BaseModel, Field

from app.errors import DeclarationError, InvalidArguments
from app.tools.context import SyncToolContext, ToolContext
from app.tools.registry import Tool, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str
    number: int = Field(ge=1)


@dataclass
class Point:
    x: float
    y: float = 0.0


def _even(number: int) -> int:
    if number % 2:
        raise ValueError("must be even")
    return number


def refusal(declared: Tool[..., Any], arguments: dict[str, Any]) -> str:
    with pytest.raises(InvalidArguments) as refused:
        declared.bind(arguments)
    return str(refused.value)


def test_hints_defaults_and_fields_make_the_schema_without_made_up_titles() -> None:
    @tool
    async def ship(
        to: Address,
        colour: Colour,
        copies: Annotated[int, Field(ge=1, le=9, title="Number of copies")] = 1,
        mode: Literal["fast", "slow"] = "fast",
        note: str | None = None,
    ) -> str:
        """Ship it."""
        return ""

    assert ship.definition["inputSchema"] == {
        "type": "object",
        "additionalProperties": False,
        "required": ["to", "colour"],
        "properties": {
            "to": {"$ref": "#/$defs/Address"},
            "colour": {"$ref": "#/$defs/Colour"},
            "copies": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1, "title": "Number of copies"},
            "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "$defs": {
            "Address": {
                "type": "object",
                "required": ["street", "number"],
                "properties": {"street": {"type": "string"}, "number": {"type": "integer", "minimum": 1}},
            },
            "Colour": {"type": "string", "enum": ["red", "blue"]},
        },
    }
    WireTool.model_validate(ship.definition)


def test_a_tool_without_parameters_takes_only_an_empty_object() -> None:
    @tool
    def now() -> str:
        """Say what time it is."""
        return ""

    assert now.definition["inputSchema"] == {"type": "object", "properties": {}, "additionalProperties": False}
    assert now.bind({}) == {}
    assert "zone" in refusal(now, {"zone": "utc"})


@pytest.mark.parametrize(
    "doc",
    [
        """Rename a file.

        Args:
            old: The name
                that it has.
            new (str, optional): The name it gets: any.

        Returns:
            nothing: of use.
        """,
        """Rename a file.

        :param old: The name
            that it has.
        :param str new: The name it gets: any.
        :returns: nothing
        """,
    ],
    ids=["google", "sphinx"],
)
def test_parameters_are_described_by_the_docstring(doc: str) -> None:
    def rename(old: str, new: str = "", returns: str = "", nothing: str = "") -> None: ...

    rename.__doc__ = doc
    definition = tool(rename).definition
    said = {name: p.get("description") for name, p in definition["inputSchema"]["properties"].items()}
    assert said == {"old": "The name that it has.", "new": "The name it gets: any.", "returns": None, "nothing": None}
    assert definition["description"] == "Rename a file."


def test_a_field_goes_before_the_docstring_and_keeps_its_extras() -> None:
    @tool
    def query(
        region: Annotated[str, Field(description="Mine", json_schema_extra={"x-mcp-header": "Region"})],
        size: Annotated[int, Field(alias="page-size")] = 10,
    ) -> None:
        """Ask.

        Args:
            region: The docstring's.
            size: How many.
        """

    assert query.definition["inputSchema"]["properties"] == {
        "region": {"type": "string", "description": "Mine", "x-mcp-header": "Region"},
        "page-size": {"type": "integer", "description": "How many.", "default": 10},
    }
    assert query.bind({"region": "eu", "page-size": 3}) == {"region": "eu", "size": 3}


def test_names_that_models_use_themselves_are_names_like_any_other() -> None:
    @tool
    def odd(schema: str, model_config: int, self_: int, _private: int, p0: int = 5, copy: int = 1) -> None:
        """Take odd names."""

    arguments = {"schema": "a", "model_config": 1, "self_": 2, "_private": 3, "p0": 4, "copy": 5}
    assert odd.bind(arguments) == arguments


@pytest.mark.parametrize(
    "kind", ["ToolContext", "ToolContext | None", "Optional[ToolContext]", "Annotated[ToolContext, 1]"]
)
def test_the_context_is_no_argument_wherever_it_stands(kind: str) -> None:
    async def work(first: int, ctx: Any, last: int = 2) -> None:
        """Work."""

    work.__annotations__["ctx"] = kind
    worker = tool(work)
    assert worker.takes_context == "ctx"
    assert list(worker.definition["inputSchema"]["properties"]) == ["first", "last"]
    assert worker.bind({"first": 1}) == {"first": 1, "last": 2}
    assert "ctx" in refusal(worker, {"first": 1, "ctx": None})


def test_a_plain_function_may_take_either_context() -> None:
    @tool
    def blocking(ctx: SyncToolContext) -> None:
        """Block."""

    @tool
    def calling(ctx: ToolContext) -> None:
        """Call."""

    assert (blocking.takes_context, calling.takes_context) == ("ctx", "ctx")
    assert not blocking.is_async


def test_json_becomes_the_types_of_the_parameters() -> None:
    @tool
    def typed(
        colour: Colour,
        day: datetime.date,
        at: datetime.datetime,
        wait: datetime.timedelta,
        who: uuid.UUID,
        price: Decimal,
        tags: set[str],
        pair: tuple[int, str],
        to: Address,
        point: Point,
        ratio: float,
        anything: Any,
    ) -> None:
        """Take many types."""

    who = uuid.uuid4()
    bound = typed.bind(
        {
            "colour": "red",
            "day": "2026-07-28",
            "at": "2026-07-28T10:00:00",
            "wait": "PT90S",
            "who": str(who),
            "price": "0.10",
            "tags": ["a", "b"],
            "pair": [1, "x"],
            "to": {"street": "Elm", "number": 7},
            "point": {"x": 1},
            "ratio": 2,
            "anything": {"n": [1.0, None, 10**40]},
        }
    )
    assert bound == {
        "colour": Colour.RED,
        "day": datetime.date(2026, 7, 28),
        "at": datetime.datetime(2026, 7, 28, 10),
        "wait": datetime.timedelta(seconds=90),
        "who": who,
        "price": Decimal("0.10"),
        "tags": {"a", "b"},
        "pair": (1, "x"),
        "to": Address(street="Elm", number=7),
        "point": Point(1.0),
        "ratio": 2.0,
        "anything": {"n": [1.0, None, 10**40]},
    }
    assert isinstance(bound["anything"]["n"][0], float)


@tool
def strict(
    count: int = 0,
    flag: bool = False,
    name: str = "",
    ratio: float = 0.0,
    either: int | datetime.date = 0,
    to: Optional[Address] = None,  # noqa: UP045
    day: datetime.date | None = None,
    rows: list[Address] = [],  # noqa: B006
    even: Annotated[int, AfterValidator(_even)] = 0,
) -> None:
    """Take what JSON says it is."""


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"count": "5"}, "count"),
        ({"count": 1.5}, "count"),
        ({"count": True}, "count"),
        ({"count": None}, "count"),
        ({"flag": 1}, "flag"),
        ({"flag": "true"}, "flag"),
        ({"name": 5}, "name"),
        ({"ratio": "1"}, "ratio"),
        ({"either": "5"}, "either"),
        ({"to": {"street": "x", "number": 0}}, "to.number"),
        ({"to": {"street": "x"}}, "to"),
        ({"day": "yesterday"}, "day"),
        ({"rows": [{"street": "x", "number": 1}, {"street": 4, "number": 1}]}, "rows[1].street"),
        ({"even": 3}, "even: Value error, must be even"),
    ],
)
def test_what_json_schema_refuses_is_not_coerced_and_the_field_is_named(arguments: dict[str, Any], where: str) -> None:
    assert refusal(strict, arguments).startswith(where)


def test_a_float_that_is_an_integer_is_one_but_not_where_it_may_be_another() -> None:
    bound = strict.bind({"count": 1.0})
    assert (bound["count"], type(bound["count"])) == (1, int)
    assert strict.bind({"count": 10**40})["count"] == 10**40
    assert "count" in refusal(strict, {"count": 1e30})


def test_every_wrong_field_is_told_and_no_value() -> None:
    said = refusal(strict, {"count": "SECRET", "flag": "SECRET", "to": {"street": "SECRET"}, "stray": "SECRET"})
    assert all(name in said for name in ("count", "flag", "number", "stray"))
    assert "SECRET" not in said


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, float("nan"), float("inf")])
def test_what_is_no_json_for_everybody_is_refused_by_name(value: Any) -> None:
    @tool
    def free(anything: Any) -> None:
        """Take anything."""

    assert refusal(free, {"anything": [1, value]}).startswith("anything[1]: ")


def test_arguments_too_deep_are_refused() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    assert "nested more than" in refusal(strict, {"name": deep})


def test_defaults_are_not_shared_between_calls() -> None:
    strict.bind({})["rows"].append(1)
    assert strict.bind({})["rows"] == []


def test_a_default_that_json_does_not_have_stays_out_of_the_schema() -> None:
    @tool
    def quiet(marker: Any = object(), names: frozenset[str] = frozenset("cab")) -> None:  # noqa: B008
        """Have defaults."""

    properties = quiet.definition["inputSchema"]["properties"]
    assert properties["marker"] == {}
    assert properties["names"]["default"] == ["a", "b", "c"]


REACHABLE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "place", "type": "object"}},
    "properties": {"phone": {"type": "string"}, "place": {"$ref": "#place"}},
    "if": {"required": ["place"]},
    "then": True,
    "else": {"required": ["phone"]},
    "additionalProperties": False,
}


def test_a_schema_that_the_author_has_written_is_shown_as_it_is_and_holds_arguments() -> None:
    @tool(input_schema=REACHABLE)
    def reach(phone: str | None = None, place: Address | None = None) -> None:
        """Reach somebody."""

    assert reach.definition["inputSchema"] == REACHABLE
    assert reach.bind({"phone": "1"}) == {"phone": "1", "place": None}
    assert reach.bind({"place": {"street": "Elm", "number": 1}})["place"] == Address(street="Elm", number=1)
    assert '"phone" is a required property' in refusal(reach, {})
    assert "place.number" in refusal(reach, {"place": {"street": "Elm"}})


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"properties": {"phone": {"type": "string"}}}, r'must have "type": "object"'),
        ({"type": "object", "properties": {"fax": {}}}, r"the property 'fax', but there is no such parameter"),
        ({"type": "object", "properties": {"phone": {"type": "text"}}}, r"the schema cannot be used"),
    ],
)
def test_a_schema_that_the_parameters_do_not_take_is_refused_where_it_is_declared(
    schema: dict[str, Any], said: str
) -> None:
    def reach(phone: str) -> None:
        """Reach somebody."""

    with pytest.raises(DeclarationError, match=rf"'reach' in .*test_signature\.py:\d+: .*{said}"):
        tool(input_schema=schema)(reach)
