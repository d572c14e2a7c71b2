"""What a form may be (core, "Requested Schema"): a flat object of text, numbers, booleans and choices of text."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from app.errors import UsageError
from app.tools.validation import located, written

FORMATS = ("email", "uri", "date", "date-time")
"""What clients can check a text for."""

_COMBINED = {"$ref", "allOf", "anyOf", "not", "if", "properties", "prefixItems"}
_CHOICES = {"enum", "const", "oneOf"}
_TYPES = ("string", "number", "integer", "boolean", "array")


class _Part(BaseModel):
    """Part of a form. The defaults below stand for what is absent; what is not named here is left to the client."""

    model_config = ConfigDict(strict=True, extra="allow", alias_generator=to_camel)


class _Property(_Part):
    title: str = ""
    description: str = ""

    @model_validator(mode="before")
    @classmethod
    def _is_flat(cls, schema: dict[str, Any]) -> dict[str, Any]:
        if combined := sorted(_COMBINED & schema.keys()):
            raise ValueError(f"forms have no {combined[0]}")
        if schema["type"] != "string" and not schema.keys().isdisjoint(_CHOICES):
            raise ValueError("only text can be chosen from a list")
        return schema


class _Choice(_Part):
    const: str
    title: str


class _Text(_Property):
    type: Literal["string"]
    format: Literal["email", "uri", "date", "date-time"] | None = None
    min_length: int = 0
    max_length: int = 0
    enum: list[str] = Field(["…"], min_length=1)
    one_of: list[_Choice] = Field([], min_length=1)
    default: str = ""


class _Number(_Property):
    type: Literal["number", "integer"]
    minimum: int | float = 0
    maximum: int | float = 0
    default: int | float = 0


class _Boolean(_Property):
    type: Literal["boolean"]
    default: bool = False


class _Listed(_Part):
    type: Literal["string"]
    enum: list[str] = Field(min_length=1)


class _Titled(_Part):
    any_of: list[_Choice] = Field(min_length=1)


class _Several(_Property):
    type: Literal["array"]
    items: _Listed | _Titled
    min_items: int = 0
    max_items: int = 0
    default: list[str] = []


_ANY: TypeAdapter[Any] = TypeAdapter(Annotated[_Text | _Number | _Boolean | _Several, Field(discriminator="type")])


def check_form(form: dict[str, Any]) -> None:
    """Refuse a form that is empty, not flat, or beyond what forms have.

    Raises:
        UsageError: the message names the property and says what to write.
    """
    properties = form.get("properties")
    if not isinstance(properties, dict) or form.get("type") != "object":
        raise UsageError('A form is {"type": "object", "properties": {…}}.')
    if not properties:
        raise UsageError("The form has no properties, so there is nothing to fill in: give it at least one.")
    for name, schema in properties.items():
        if flaw := _flaw(schema):
            raise UsageError(f"The form's property {name!r} {flaw}")
    required = form.get("required", [])
    if not isinstance(required, list) or any(name not in properties for name in required):
        raise UsageError("The form's `required` is a list of names of its properties.")
    if combined := sorted((_COMBINED - {"properties"}) & form.keys()):
        raise UsageError(f"A form has no {combined[0]}: it has properties, and says which of them are required.")
    try:
        written(form)
    except ValueError as error:
        raise UsageError(f"The form cannot be written as JSON: {error}") from error


def _flaw(schema: Any) -> str | None:
    if not isinstance(schema, dict):
        return "is no JSON Schema: give an object."
    if "$ref" in schema or schema.get("type") == "object" or "properties" in schema:
        return "is nested, but forms are flat: ask for each of its fields as a property of the form."
    if schema.get("type") not in _TYPES:
        return f"has no type that forms have: give it one of {', '.join(_TYPES)}."
    try:
        _ANY.validate_python(schema)
    except ValidationError as error:
        if schema.get("type") == "array" and any("items" in flaw["loc"] for flaw in error.errors()):
            return "is a list of something else than choices of text: ask for text, or for list[Literal[…]]."
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        reason = located(first["loc"][1:], plain(first["msg"]))
        return f"cannot be asked for: {reason}."
    return None


def plain(message: str) -> str:
    """What pydantic says of a value, without the words that only programmers need."""
    for prefix in ("Value error, ", "Assertion failed, ", "Input "):
        message = message.removeprefix(prefix)
    return message
