"""Arguments that clients mirror into headers: what may be annotated, and what a call is held to."""

from __future__ import annotations

import base64
import contextlib
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from app.errors import DeclarationError, ErrorKind, Refusal
from app.tools.header_params import HeaderParam, check_header_params, header_params
from app.tools.registry import tool

REGION: dict[str, Any] = {"x-mcp-header": "Region"}
Region = Annotated[str, Field(json_schema_extra=REGION)]


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def annotated(kind: Any = "string", header: Any = "Region", **more: Any) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": header, **more}


class Address(BaseModel):
    """A place."""

    region: Region


class Size(Enum):
    """A size."""

    SMALL = "s"
    LARGE = "l"


class TestAnnotations:
    """What an input schema may annotate."""

    def test_a_schema_without_any_has_none(self) -> None:
        assert header_params(schema(region={"type": "string"})) == ()
        assert header_params({"type": "object"}) == ()

    @pytest.mark.parametrize("kind", ["string", "integer", "boolean"])
    def test_a_primitive_argument_is_mirrored(self, kind: str) -> None:
        assert header_params(schema(region=annotated(kind), other={})) == (HeaderParam("Region", ("region",)),)

    def test_one_inside_of_an_object_is_reached_by_properties_alone(self) -> None:
        nested = schema(at=schema(properties=schema(region=annotated())), region=annotated(header="Top"))
        assert header_params(nested) == (
            HeaderParam("Region", ("at", "properties", "region")),
            HeaderParam("Top", ("region",)),
        )

    @pytest.mark.parametrize("name", ["R", "x-y_z", "1", "!#$%&'*+-.^_`|~"])
    def test_a_header_may_have_any_name_that_http_takes(self, name: str) -> None:
        assert header_params(schema(region=annotated(header=name)))[0].header == name

    @pytest.mark.parametrize(
        "name", ["", " ", "a b", "a:b", "a\r\nb", "a\x00", "Größe", "a/b", "(a)", '"a"', "a\n", None, 7, True, [], {}]
    )
    def test_any_other_name_is_refused(self, name: Any) -> None:
        with pytest.raises(ValueError, match=r"^region: x-mcp-header must be the name of a header"):
            header_params(schema(region=annotated(header=name)))

    def test_two_arguments_cannot_have_the_same_header_in_any_case(self) -> None:
        with pytest.raises(ValueError, match=r"^b\.c: x-mcp-header names the same header as a: give one") as caught:
            header_params(schema(a=annotated(header="Region"), b=schema(c=annotated(header="REGION"))))
        assert str(caught.value).isprintable()

    @pytest.mark.parametrize(
        "argument",
        [
            annotated("number"),
            annotated("object"),
            annotated("array", items={}),
            annotated("null"),
            annotated(["string", "null"]),
            annotated(["string"]),
            REGION,
            REGION | {"anyOf": [{"type": "string"}, {"type": "null"}]},
            REGION | {"$ref": "#/$defs/Region"},
            REGION | {"enum": ["a"]},
        ],
    )
    def test_an_argument_of_any_other_type_is_refused(self, argument: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"^region: x-mcp-header goes only with str"):
            header_params(schema(region=argument))

    @pytest.mark.parametrize(
        "misplaced",
        [
            schema() | REGION,
            schema(a={"items": annotated()}),
            schema(a={"prefixItems": [annotated()]}),
            schema(a={"anyOf": [annotated(), {"type": "null"}]}),
            schema(a={"oneOf": [schema(b=annotated())]}),
            {"allOf": [schema(a=annotated())]},
            {"not": schema(a=annotated())},
            {"if": schema(a=annotated())},
            {"then": {"properties": {"a": annotated()}}},
            {"else": annotated()},
            {"$defs": {"A": annotated()}},
            {"$defs": {"A": schema(a=annotated())}, "$ref": "#/$defs/A"},
            {"definitions": {"properties": annotated()}},
            {"additionalProperties": annotated()},
            {"patternProperties": {"^a": annotated()}},
            {"dependentSchemas": {"a": schema(a=annotated())}},
            {"propertyNames": annotated()},
            schema(a={"contains": {"properties": {"b": annotated()}}}),
            schema(a={"items": {"items": annotated()}}),
            {"unheard-of": {"of": schema(a=annotated())}},
        ],
    )
    def test_an_annotation_anywhere_else_is_refused(self, misplaced: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="x-mcp-header is not on an argument itself"):
            header_params(misplaced)

    def test_what_only_looks_like_an_annotation_is_none(self) -> None:
        data = {"x-mcp-header": "Not A Name"}
        harmless = schema(
            **{"x-mcp-header": {"type": "string", "default": "x"}},
            a={"default": data, "const": data, "enum": [data], "examples": [{"a": data}]},
        )
        assert header_params(harmless | {"required": ["x-mcp-header"], "dependentRequired": {"x-mcp-header": []}}) == ()


class TestDeclaration:
    """What an author annotates, and how it is told when it is wrong."""

    def test_an_annotation_reaches_the_input_schema_untouched(self) -> None:
        @tool(description="Query")
        async def query(
            region: Annotated[str, Field(description="Where", json_schema_extra=REGION)],
            unit: Annotated[Literal["a", "b"], Field(json_schema_extra={"x-mcp-header": "Unit"})] = "a",
            rows: Annotated[int, Field(ge=1, json_schema_extra={"x-mcp-header": "Rows"})] = 10,
            dry: Annotated[bool, Field(json_schema_extra={"x-mcp-header": "Dry"})] = False,
        ) -> None: ...

        properties = query.definition["inputSchema"]["properties"]
        assert properties["region"] == {"type": "string", "description": "Where", "x-mcp-header": "Region"}
        found = header_params(query.definition["inputSchema"])
        assert [(each.header, each.path) for each in found] == [
            ("Region", ("region",)),
            ("Unit", ("unit",)),
            ("Rows", ("rows",)),
            ("Dry", ("dry",)),
        ]

    @pytest.mark.parametrize(
        ("kind", "where"),
        [
            (Annotated[str | None, Field(json_schema_extra=REGION)], "region: x-mcp-header goes only with"),
            (Annotated[float, Field(json_schema_extra=REGION)], "region: x-mcp-header goes only with"),
            (Annotated[Size, Field(json_schema_extra=REGION)], "region: x-mcp-header goes only with"),
            (Annotated[str, Field(json_schema_extra={"x-mcp-header": "a b"})], "region: x-mcp-header must be the name"),
            (Region | None, "properties.region.anyOf[0]: x-mcp-header is not on an argument itself"),
            (list[Region], "properties.region.items: x-mcp-header is not on an argument itself"),
            (Address, '["$defs"].Address.properties.region: x-mcp-header is not on an argument itself'),
        ],
    )
    def test_a_wrong_one_is_refused_where_it_is_declared(self, kind: Any, where: str) -> None:
        async def query(region: Any) -> None: ...

        query.__annotations__["region"] = kind
        with pytest.raises(DeclarationError) as caught:
            tool(name="query_rows", description="Query")(query)
        assert "Tool 'query_rows' in " in str(caught.value)
        assert where in str(caught.value)


PARAMS = (
    HeaderParam("Region", ("region",)),
    HeaderParam("Rows", ("rows",)),
    HeaderParam("Dry", ("dry",)),
    HeaderParam("Zone", ("at", "zone")),
)


def check(sent: dict[str, str], arguments: dict[str, Any], *, required: bool = True) -> None:
    check_header_params(PARAMS, sent, arguments, required=required)


def refused(sent: dict[str, str], arguments: dict[str, Any], *, required: bool = True) -> str:
    with pytest.raises(Refusal) as caught:
        check(sent, arguments, required=required)
    assert caught.value.kind is ErrorKind.HEADER_MISMATCH
    assert caught.value.message.startswith("Header mismatch: ")
    assert caught.value.message.isprintable()
    return caught.value.message


def encoded(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@pytest.mark.parametrize("required", [True, False])
class TestCalls:
    """A header that is sent must say what its argument is."""

    def test_headers_that_say_what_the_arguments_are_are_taken(self, required: bool) -> None:
        sent = {"region": "eu", "rows": "-7", "dry": "false", "zone": "b"}
        check(sent, {"region": "eu", "rows": -7, "dry": False, "at": {"zone": "b"}, "other": 1}, required=required)

    @pytest.mark.parametrize("value", ["", "Grüße 世界", " padded ", "a\nb", "=?base64?x?="])
    def test_text_in_base64_is_decoded(self, value: str, required: bool) -> None:
        check({"region": encoded(value)}, {"region": value}, required=required)

    def test_text_is_compared_exactly(self, required: bool) -> None:
        for text, value in (("EU", "eu"), ("eu", "eu "), ("42.0", "42"), ("", "eu"), ("eu, us", "eu")):
            message = refused({"region": text}, {"region": value}, required=required)
            assert message == "Header mismatch: Mcp-Param-Region is not what arguments.region is"

    @pytest.mark.parametrize("text", ["42", "42.0", "042", "+42", "4.2e1", "420e-1"])
    def test_integers_are_compared_as_numbers(self, text: str, required: bool) -> None:
        check({"rows": text}, {"rows": 42}, required=required)
        check({"rows": text}, {"rows": 42.0}, required=required)

    @pytest.mark.parametrize(
        "text",
        ["43", "42.0000000000000000001", "-42", "", "x", "4 2", "0x2a", "٤٢", "NaN", "Infinity", "1e9999", "4_2"],
    )
    def test_what_is_another_number_or_none_is_refused(self, text: str, required: bool) -> None:
        refused({"rows": encoded(text)}, {"rows": 42}, required=required)

    def test_integers_are_not_rounded(self, required: bool) -> None:
        largest = 2**53 - 1
        check({"rows": str(largest)}, {"rows": largest}, required=required)
        check({"rows": f"-{largest}"}, {"rows": -largest}, required=required)
        refused({"rows": str(largest - 1)}, {"rows": largest}, required=required)

    @pytest.mark.parametrize("value", [2**53, -(2**53), 10**400, 1e300])
    def test_integers_beyond_what_every_reader_keeps_are_refused(self, value: Any, required: bool) -> None:
        assert "2^53" in refused({"rows": str(value)}, {"rows": value}, required=required)

    def test_booleans_are_written_in_lower_case(self, required: bool) -> None:
        check({"dry": "true"}, {"dry": True}, required=required)
        for text in ("True", "1", "false", ""):
            refused({"dry": text}, {"dry": True}, required=required)

    @pytest.mark.parametrize("arguments", [{}, {"region": None}, {"at": {"region": "eu"}}])
    def test_a_header_without_a_value_is_refused(self, arguments: dict[str, Any], required: bool) -> None:
        message = refused({"region": "eu"}, arguments, required=required)
        assert message == "Header mismatch: Mcp-Param-Region is sent, but arguments.region has no value"

    @pytest.mark.parametrize(
        "arguments", [{}, {"region": None, "at": None}, {"at": {}}, {"at": 7}, {"at": {"zone": None}}]
    )
    def test_without_a_value_no_header_is_expected(self, arguments: dict[str, Any], required: bool) -> None:
        check({}, arguments, required=required)

    @pytest.mark.parametrize("text", ["ü", "a\nb", "\x7f", "=?base64?!?=", "=?base64?/w==?=", "\udcff"])
    def test_what_a_header_may_not_hold_is_refused(self, text: str, required: bool) -> None:
        assert "has a value which" in refused({"region": text}, {"region": "eu"}, required=required)

    def test_headers_that_nobody_asked_for_are_ignored(self, required: bool) -> None:
        check({"other": "ü", "count": "7"}, {"other": "x", "count": 8}, required=required)

    def test_nothing_of_a_value_is_told(self, required: bool) -> None:
        for sent in ({"region": "secret-1"}, {"region": "sécret-1"}, {"zone": "secret-1"}):
            assert "cret-" not in refused(sent, {"region": "secret-2"}, required=required)

    @pytest.mark.parametrize("value", [["eu"], {"a": 1}])
    def test_a_value_that_no_header_can_hold_is_left_to_the_check_of_the_arguments(
        self, value: Any, required: bool
    ) -> None:
        check({}, {"region": value}, required=required)
        refused({"region": "eu"}, {"region": value}, required=required)

    @given(text=st.text(max_size=20), value=st.text(max_size=8) | st.integers() | st.booleans() | st.none())
    def test_anything_is_taken_or_refused(self, required: bool, text: str, value: Any) -> None:
        with contextlib.suppress(Refusal):
            check({"region": text}, {"region": value}, required=required)
            assert value is not None


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ({"region": "eu"}, "Mcp-Param-Region is required, as arguments.region has a value"),
        ({"region": ""}, "Mcp-Param-Region"),
        ({"rows": 0}, "Mcp-Param-Rows"),
        ({"dry": False}, "Mcp-Param-Dry"),
        ({"at": {"zone": "b"}}, "Mcp-Param-Zone is required, as arguments.at.zone has a value"),
    ],
)
def test_a_header_that_is_left_out_is_refused_only_where_it_is_required(
    arguments: dict[str, Any], missing: str
) -> None:
    assert missing in refused({}, arguments)
    check({}, arguments, required=False)
