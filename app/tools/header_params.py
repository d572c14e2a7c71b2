"""Arguments that clients mirror into `Mcp-Param-*` headers (core, "Custom Headers from Tool Parameters").

An author names the header in the schema of a parameter, `Field(json_schema_extra={"x-mcp-header": "Region"})`. Clients
hide a tool with an annotation that breaks the rules, so that it is refused here before any of them sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from app.tools.validation import located
from app.wire.envelope import printable
from app.wire.headers import PARAMETER_PREFIX, decode_header, mismatch

ANNOTATION = "x-mcp-header"

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?")
_LARGEST = 2**53 - 1
_SCHEMAS_BY_NAME = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
_NO_SCHEMAS = {"const", "default", "dependentRequired", "enum", "examples", ANNOTATION}

_Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class HeaderParam:
    """An argument that is mirrored.

    Attributes:
        header: the header's name after `Mcp-Param-`, as it is annotated.
        path: the names that lead to the argument's value.
    """

    header: str
    path: tuple[str, ...]


def header_params(input_schema: dict[str, Any]) -> tuple[HeaderParam, ...]:
    """The annotated arguments of an `inputSchema` (core, "Schema Extension").

    Raises:
        ValueError: an annotation is not as it must be; the message says where, and what to write.
    """
    found: dict[str, HeaderParam] = {}
    for path, schema in _schemas(input_schema):
        if ANNOTATION in schema:
            param = _read(path, schema)
            other = found.setdefault(param.header.lower(), param)
            if other is not param:
                where = f"{located(param.path, ANNOTATION)} names the same header as {'.'.join(other.path)}"
                raise ValueError(f"{where}: give one of them another")
    return tuple(found.values())


def check_header_params(
    params: tuple[HeaderParam, ...], sent: Mapping[str, str], arguments: dict[str, Any], *, required: bool
) -> None:
    """Compare the headers of a call with its arguments (core, "Server Behavior for Custom Headers").

    Args:
        sent: the headers' values, not decoded, by their names in lower case without `Mcp-Param-`.
        required: refuse a call that leaves a header out, too.

    Raises:
        Refusal: HEADER_MISMATCH. The message names header and argument, and neither's value.
    """
    for param in params:
        value, text = _value(arguments, param.path), sent.get(param.header.lower())
        if text is not None:
            _compare(param, text, value)
        elif required and isinstance(value, str | int | float):
            # Anything else no header can hold: that is left to the check of the arguments.
            mismatch(f"the header {PARAMETER_PREFIX}{param.header} is required, as {_argument(param)} has a value")


def _schemas(schema: Any, path: _Path = ()) -> Iterator[tuple[_Path, dict[str, Any]]]:
    """A schema and every schema in it, with the keys that lead there. Data in it, such as a default, is none."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for keyword, inside in schema.items():
        if keyword in _NO_SCHEMAS:
            continue
        if isinstance(inside, list):
            for index, item in enumerate(inside):
                yield from _schemas(item, (*path, keyword, index))
        elif keyword in _SCHEMAS_BY_NAME and isinstance(inside, dict):
            for name, item in inside.items():
                yield from _schemas(item, (*path, keyword, name))
        else:
            yield from _schemas(inside, (*path, keyword))


def _read(path: _Path, schema: dict[str, Any]) -> HeaderParam:
    names = _chain(path)
    if names is None:
        raise ValueError(
            f"{located(path, ANNOTATION)} is not on an argument itself: annotate a parameter of the tool as a whole, "
            "nothing inside of a model, a list or a union"
        )
    header = schema[ANNOTATION]
    if not (isinstance(header, str) and _TOKEN.fullmatch(header)):
        characters = "letters, digits and any of !#$%&'*+-.^_`|~"
        raise ValueError(f"{located(names, ANNOTATION)} must be the name of a header: {characters}")
    if schema.get("type") not in ("string", "integer", "boolean"):
        raise ValueError(
            f"{located(names, ANNOTATION)} goes only with str, int, bool, or a Literal of one of them: for an optional "
            "argument give a default of that type instead of None, for an enum list its values in a Literal"
        )
    return HeaderParam(header, names)


def _chain(path: _Path) -> tuple[str, ...] | None:
    """The names of properties that lead to a schema; None where anything else leads to it."""
    keywords, names = path[::2], path[1::2]
    only_properties = len(keywords) == len(names) and set(keywords) == {"properties"}
    return tuple(map(str, names)) if only_properties else None


def _value(arguments: Any, path: tuple[str, ...]) -> Any:
    """The value that a path leads to; None where it leads to nothing."""
    for name in path:
        arguments = arguments.get(name) if isinstance(arguments, dict) else None
    return arguments


def _compare(param: HeaderParam, text: str, value: Any) -> None:
    name = f"{PARAMETER_PREFIX}{param.header}"
    try:
        decoded = decode_header(text)
    except ValueError as error:
        mismatch(f"{name} has a value {error}")
    if value is None:
        mismatch(f"{name} is sent, but {_argument(param)} has no value")
    if isinstance(value, int | float) and abs(value) > _LARGEST:
        mismatch(f"{name} is sent, but {_argument(param)} is beyond ±(2^53-1), which headers may not carry")
    if not _says(decoded, value):
        mismatch(f"{name} is not what {_argument(param)} is")


def _says(text: str, value: Any) -> bool:
    """Whether a header's text stands for a value: numbers are compared as such, exactly."""
    match value:
        case str():
            return text == value
        case bool():
            return text == ("true" if value else "false")
        case int() | float():
            return _NUMBER.fullmatch(text) is not None and Decimal(text) == value
        case _:
            return False


def _argument(param: HeaderParam) -> str:
    return printable(".".join(("arguments", *param.path)))
