"""The arguments of `perdure call`, read as the tool's schema says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import typer

from app.tools.header_params import header_params
from app.wire.envelope import printable


def read_arguments(given: Sequence[str], whole: str | None, schema: dict[str, Any]) -> dict[str, Any]:
    """Put the arguments of a call together.

    Args:
        given: `name=value`, where the value is JSON for what the schema knows as a number, a boolean, an object or an
            array, and text for anything else.
        whole: a JSON object of arguments, which those of `given` replace.
        schema: the tool's input schema.

    Raises:
        BadParameter: an argument cannot be read.
    """
    arguments = _json(whole, "--args takes a JSON object") if whole is not None else {}
    if not isinstance(arguments, dict):
        raise typer.BadParameter("--args takes a JSON object")
    for pair in given:
        name, separator, value = pair.partition("=")
        if not (name and separator):
            raise typer.BadParameter(f"--arg takes NAME=VALUE, not {printable(pair)}")
        kinds = set(_kinds(schema.get("properties", {}).get(name), schema))
        arguments[name] = value if not kinds or "string" in kinds else _value(name, value, kinds)
    return arguments


def mirrored(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, str]:
    """The arguments that go into headers too, as text by the header's name after `Mcp-Param-`.

    Raises:
        BadParameter: the tool's schema breaks the rules for such arguments; it must not be called then (core, "Schema
            Extension").
    """
    try:
        params = header_params(schema)
    except ValueError as flaw:
        raise typer.BadParameter(f"the tool cannot be called: {flaw}") from None
    values = {param.header: _at(arguments, param.path) for param in params}
    return {
        header: value if isinstance(value, str) else json.dumps(value)
        for header, value in values.items()
        if isinstance(value, str | int | float)
    }


def _at(arguments: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        arguments = arguments.get(name) if isinstance(arguments, dict) else None
    return arguments


def _value(name: str, text: str, kinds: set[str]) -> Any:
    return _json(text, f"--arg {printable(name)} takes JSON, since the tool wants {' or '.join(sorted(kinds))}")


def _json(text: str, complaint: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise typer.BadParameter(complaint) from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


def _kinds(schema: Any, root: dict[str, Any], depth: int = 8) -> Iterator[str]:
    """The JSON types that a schema names, through alternatives and references to its own definitions."""
    if not isinstance(schema, dict) or not depth:
        return
    if "type" in schema:
        yield from [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    else:
        values = [*schema.get("enum", []), *([schema["const"]] if "const" in schema else [])]
        yield from ("string" if isinstance(value, str) else "another value" for value in values)
    for part in [*schema.get("anyOf", []), *schema.get("oneOf", []), *schema.get("allOf", [])]:
        yield from _kinds(part, root, depth - 1)
    if "$ref" in schema:
        yield from _kinds(_followed(schema["$ref"], root), root, depth - 1)


def _followed(reference: Any, root: dict[str, Any]) -> Any:
    found: Any = root
    for step in str(reference).removeprefix("#/").split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found
