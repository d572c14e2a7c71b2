"""Forms: what is made of a model, what is refused, and what a user is told who filled one in wrongly."""

from __future__ import annotations

import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from mcp_types import ElicitRequestFormParams
from pydantic import AnyUrl, BaseModel, Field, SecretStr, ValidationError, create_model, field_validator

from app.errors import UsageError
from app.tools.forms import form_schema, reasons


class Color(StrEnum):
    RED = "red"
    GREEN = "green"


Titled = Annotated[Literal["#f00"], Field(title="Red")] | Annotated[Literal["#0f0"], Field(title="Green")]


class Address(BaseModel):
    city: str


def field(kind: Any, default: Any = ...) -> dict[str, Any]:
    """The property that a form has for a field of this type; the form is one that the protocol's model takes."""
    form = form_schema(create_model("Form", value=(kind, default)))
    params = ElicitRequestFormParams(message="Fill in", requested_schema=form)
    assert params.model_dump(by_alias=True)["requestedSchema"] == form
    assert form["type"] == "object"
    assert form.get("required", []) == (["value"] if default is ... else [])
    found: dict[str, Any] = form["properties"]["value"]
    return found


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (str, {"type": "string"}),
        (Annotated[str, Field(min_length=1, max_length=9)], {"type": "string", "minLength": 1, "maxLength": 9}),
        (datetime.date, {"type": "string", "format": "date"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (AnyUrl, {"type": "string", "format": "uri", "minLength": 1}),
        (Annotated[str, Field(json_schema_extra={"format": "email"})], {"type": "string", "format": "email"}),
        (float, {"type": "number"}),
        (Annotated[int, Field(ge=1, le=5)], {"type": "integer", "minimum": 1, "maximum": 5}),
        (bool, {"type": "boolean"}),
        (Literal["a"], {"type": "string", "enum": ["a"]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Color, {"type": "string", "enum": ["red", "green"]}),
        (
            Titled,
            {"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]},
        ),
        (list[Literal["a"]], {"type": "array", "items": {"type": "string", "enum": ["a"]}}),
        (list[Color], {"type": "array", "items": {"type": "string", "enum": ["red", "green"]}}),
        (
            Annotated[list[Titled], Field(min_length=1, max_length=2)],
            {
                "type": "array",
                "items": {"anyOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]},
                "minItems": 1,
                "maxItems": 2,
            },
        ),
    ],
)
def test_a_field_becomes_the_property_that_forms_have_for_its_type(kind: Any, expected: dict[str, Any]) -> None:
    assert field(kind) == expected


@pytest.mark.parametrize("kind", [str, float, bool, datetime.date, Color, Literal["a", "b"], Titled, list[Color]])
def test_a_field_that_may_be_none_is_not_required_and_has_no_null(kind: Any) -> None:
    assert field(kind | None, None) == field(kind)


def test_none_is_no_choice() -> None:
    assert field(Literal["a", None], None) == field(Literal["a"])


@pytest.mark.parametrize(
    ("kind", "default", "shown"),
    [
        (str, "Luca", "Luca"),
        (int, 3, 3),
        (bool, False, False),
        (Color, Color.GREEN, "green"),
        (set[Color], {Color.RED}, ["red"]),
        (datetime.date, datetime.date(2026, 7, 28), "2026-07-28"),
    ],
)
def test_defaults_are_shown_as_json(kind: Any, default: Any, shown: Any) -> None:
    assert field(kind, default)["default"] == shown


def test_titles_and_descriptions_are_those_of_the_field() -> None:
    about = Field(title="Favourite", description="The one you like")
    assert field(Annotated[Color, about]) == field(Color) | {"title": "Favourite", "description": "The one you like"}


@pytest.mark.parametrize(
    ("kind", "form", "unfit"),
    [
        (Annotated[str, Field(pattern="^x")], {"type": "string"}, "y"),
        (Annotated[int, Field(gt=1, lt=9)], {"type": "integer", "minimum": 2, "maximum": 8}, 9),
        (Annotated[float, Field(gt=1)], {"type": "number", "minimum": 1}, 1.0),
        (datetime.time, {"type": "string"}, "noon"),
    ],
)
def test_what_a_form_cannot_say_is_left_to_the_model(kind: Any, form: dict[str, Any], unfit: Any) -> None:
    assert field(kind) == form
    with pytest.raises(ValidationError):
        create_model("Form", value=(kind, ...)).model_validate({"value": unfit})


@pytest.mark.parametrize("kind", [Address, Address | None, dict[str, str]])
def test_a_nested_model_is_refused_by_the_name_of_its_property(kind: Any) -> None:
    with pytest.raises(UsageError, match=r"property 'value' is nested.* ask for each of its fields"):
        field(kind)


@pytest.mark.parametrize("kind", [list[Address], list[str], list[int], list[Literal[1]]])
def test_a_list_of_anything_but_choices_is_refused(kind: Any) -> None:
    with pytest.raises(UsageError, match=r"property 'value' is a list of something else"):
        field(kind)


@pytest.mark.parametrize("kind", [int | str, Any, Literal[1, 2], tuple[int, str]])
def test_a_field_that_no_client_can_show_is_refused(kind: Any) -> None:
    with pytest.raises(UsageError, match="'value'"):
        field(kind)


def test_a_secret_is_refused_and_the_way_to_ask_for_it_named() -> None:
    with pytest.raises(UsageError, match=r"'value' is a secret.*elicit_url"):
        field(SecretStr)


@pytest.mark.parametrize("form", [create_model("Empty"), {"type": "object", "properties": {}}])
def test_an_empty_form_is_refused(form: Any) -> None:
    with pytest.raises(UsageError, match="no properties"):
        form_schema(form)


def test_a_json_schema_is_kept_as_it_is() -> None:
    form = {"type": "object", "properties": {"name": {"type": "string", "x-hint": "you"}}, "required": ["name"]}
    assert form_schema(form) == form


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "object"}, "'a' is nested"),
        ({"$ref": "#/$defs/A"}, "'a' is nested"),
        ({"type": ["string", "null"]}, "'a' has no type"),
        ({"enum": ["x"]}, "'a' has no type"),
        ({"type": "string", "format": "password"}, "'a' cannot be asked for: format"),
        ({"type": "string", "minLength": "1"}, "'a' cannot be asked for: minLength"),
        ({"type": "string", "allOf": []}, "'a' cannot be asked for: forms have no allOf"),
        ({"type": "string", "enum": []}, "'a' cannot be asked for: enum"),
        ({"type": "boolean", "default": "yes"}, "'a' cannot be asked for: default"),
        ({"type": "array", "items": {"type": "object"}}, "'a' is a list of something else"),
        (True, "'a' is no JSON Schema"),
    ],
)
def test_a_json_schema_with_a_property_that_forms_do_not_have_is_refused(schema: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        form_schema({"type": "object", "properties": {"a": schema}})


@pytest.mark.parametrize(
    "form", [{}, {"type": "object"}, {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]}]
)
def test_a_json_schema_that_is_no_form_is_refused(form: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="form"):
        form_schema(form)


class Answer(BaseModel):
    name: str
    age: int = 0
    color: Titled | None = None

    @field_validator("name")
    @classmethod
    def _is_not_luca(cls, name: str) -> str:
        if name == "Luca":
            raise ValueError("that name is taken")
        return name


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({}, "name: required"),
        ({"name": "Luca"}, "name: that name is taken"),
        ({"name": "Ada", "color": "#00f"}, "color: should be '#f00' or should be '#0f0'"),
        (
            {"name": 7, "age": "secret"},
            "name: should be a valid string\nage: should be a valid integer, unable to parse string as an integer",
        ),
    ],
)
def test_a_user_is_told_a_line_a_field_and_never_a_value(content: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Answer.model_validate(content)
    assert reasons(raised.value) == told
