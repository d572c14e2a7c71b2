"""Types as JSON Schema (draft 2020-12), without what says nothing."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

_LATER = ("class-not-fully-defined", "undefined-annotation")


class Unresolved(NameError):
    """A type names something that is not defined, or not yet: where it is declared, the module may go on to do so."""


class _Plain(GenerateJsonSchema):
    """No titles made up from the names of fields, and the same text in every process."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        encoded = super().encode_default(dft)
        return sorted(encoded, key=repr) if isinstance(dft, set | frozenset) else encoded


def schema_of(hint: Any, mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    """The schema of what is read as this type (validation) or written of it (serialization).

    Raises:
        PydanticUserError: the type has none.
    """
    schema = TypeAdapter(hint).json_schema(mode=mode, schema_generator=_Plain)
    named = {getattr(hint, "__name__", ""): schema} | schema.get("$defs", {})
    for name, part in named.items():
        if part.get("title") == name:
            del part["title"]
    return schema


def unresolved(error: Exception) -> bool:
    """Whether an error of pydantic's says that a type names what is not defined, or not yet."""
    return isinstance(error, NameError) or getattr(error, "code", None) in _LATER


def first_line(error: Exception) -> str:
    """What an error says, without the hints that pydantic adds."""
    return re.split(r"\n|\. Set `", str(error))[0]


def alternatives(hint: Any) -> Iterator[Any]:
    """The members of a union, whatever is annotated or named around it; any other type as it is."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from alternatives(hint.__origin__)
    elif origin in (Union, types.UnionType):
        for member in get_args(hint):
            yield from alternatives(member)
    elif type(hint).__name__ == "TypeAliasType":
        yield from alternatives(hint.__value__)
    else:
        yield hint
