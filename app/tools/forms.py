"""Forms that users fill in (core, "Form Mode Elicitation Requests"), made of the models that tool authors write."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticUserError

from app.errors import UsageError
from app.tools.form_rules import FORMATS, check_form, plain
from app.tools.schemas import first_line, schema_of
from app.wire.envelope import printable

_TOLD = 10
_UNSAYABLE = {"pattern", "multipleOf", "uniqueItems", "exclusiveMinimum", "exclusiveMaximum"}


def form_schema(schema: type[BaseModel] | dict[str, Any]) -> dict[str, Any]:
    """The `requestedSchema` of a form.

    A model's fields are text (with the formats email, uri, date and date-time), numbers, booleans, a choice (a Literal
    or an Enum of strings) or a list of choices. Choices get titles as a union of Literals, each annotated with
    `Field(title=…)`. What a form cannot say, such as a pattern, is left to the model. A dict is kept as it is.

    Raises:
        UsageError: the form is empty or not flat; the message names the property.
    """
    form = schema if isinstance(schema, dict) else _derived(schema)
    check_form(form)
    return form


def reasons(error: ValidationError) -> str:
    """Why an answer does not fit its model, for the user who is asked again: a line a field, never a value."""
    said: dict[str, list[str]] = {}
    for flaw in error.errors(include_url=False, include_context=False, include_input=False):
        field = printable(str(flaw["loc"][0])) if flaw["loc"] else ""
        said.setdefault(field, []).append("required" if flaw["type"] == "missing" else plain(flaw["msg"]))
    lines = [(field, " or ".join(dict.fromkeys(why[:_TOLD]))) for field, why in said.items()]
    return "\n".join(f"{field}: {why}" if field else why for field, why in lines[:_TOLD])


def _derived(model: type[BaseModel]) -> dict[str, Any]:
    try:
        schema = schema_of(model, "validation")
    except PydanticUserError as error:
        reason = first_line(error)
        raise UsageError(f"The form {model.__name__} has a field that cannot be asked for: {reason}") from error
    named = schema.get("$defs", {})
    schema = _followed(schema, named)
    properties = {name: _property(name, each, named) for name, each in schema.get("properties", {}).items()}
    required = [name for name in schema.get("required", ()) if name in properties]
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _followed(schema: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """The schema with its `$ref` replaced by what that names; what stands beside the `$ref` goes before it."""
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    if "$ref" not in schema:
        return beside
    found: dict[str, Any] = named.get(schema["$ref"].removeprefix("#/$defs/"), {})
    return found | beside


def _property(name: str, schema: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    made = _single(_followed(schema, named), named)
    if made.get("format") == "password":
        raise UsageError(f"The form's property {name!r} is a secret, which forms must not ask for: use ctx.elicit_url.")
    if "items" in made:
        made["items"] = _choices(_single(_followed(made["items"], named), named), "anyOf")
    if made.get("default", ...) is None:
        del made["default"]
    return _sayable(_choices(made, "oneOf"))


def _single(schema: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """The schema without its null; of a union that leaves one type, that type."""
    kinds = [_followed(kind, named) for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    around = {key: value for key, value in schema.items() if key != "anyOf"}
    if len(kinds) == 1:
        return kinds[0] | around
    if kinds:
        return {**around, "anyOf": kinds}
    if "enum" in schema:
        return around | {"enum": [value for value in schema["enum"] if value is not None]}
    return around


def _choices(schema: dict[str, Any], titled: str) -> dict[str, Any]:
    """One choice, or a union of them, in the way that forms have: `titled` names where those with titles are listed."""
    kinds = schema.get("anyOf", [schema])
    if not all(isinstance(value, str) for kind in kinds for value in _values(kind) or (None,)):
        return schema
    around = {key: value for key, value in schema.items() if key not in ("anyOf", "const")}
    values = [(value, kind) for kind in kinds for value in _values(kind)]
    if len(kinds) == 1 or not any("title" in kind for kind in kinds):
        return around | {"type": "string", "enum": [value for value, _ in values]}
    listed = [{"const": value, "title": kind.get("title", value)} for value, kind in values]
    return around | ({"type": "string"} if titled == "oneOf" else {}) | {titled: listed}


def _values(schema: dict[str, Any]) -> list[Any]:
    return [schema["const"]] if "const" in schema else schema.get("enum", [])


def _sayable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without what forms do not have; the model still checks it."""
    said = {key: value for key, value in schema.items() if key not in _UNSAYABLE}
    step = 1 if schema.get("type") == "integer" else 0
    if "exclusiveMinimum" in schema:
        said["minimum"] = schema["exclusiveMinimum"] + step
    if "exclusiveMaximum" in schema:
        said["maximum"] = schema["exclusiveMaximum"] - step
    if said.get("format", FORMATS[0]) not in FORMATS:
        del said["format"]
    return said
