"""What the oracle judges by: strict JSON, schemas of our own, the protocol's models, and the official schemas."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import jsonschema_rs
from pydantic import TypeAdapter, ValidationError

OURS = Path(__file__).parents[1] / "schemas"
OFFICIAL = {"core": "core-2026-07-28.schema.json", "tasks": "tasks.schema.json"}

_official: Path | None = None


class Unexpected(AssertionError):
    """The server sent something that it must not send."""


def use_official(folder: Path | None) -> Path | None:
    """Judge by the official schemas in this folder too, from now on; None for ours alone. Returns the one before.

    Raises:
        FileNotFoundError: a schema is not there.
    """
    global _official
    if folder is not None:
        for name in OFFICIAL.values():
            if not (folder / name).is_file():
                raise FileNotFoundError(f"{folder} has no {name}")
    before, _official = _official, folder
    return before


def parse(body: bytes) -> Any:
    """Strict JSON in UTF-8: no NaN, no member twice."""
    try:
        return json.loads(body.decode(), object_pairs_hook=_members, parse_constant=_no_constant)
    except ValueError as error:
        fail(f"what is not JSON: {error}\n{body[:500]!r}")


def ours(file: str, name: str, value: Any) -> None:
    """The value fits one of our schemas."""
    _judge(OURS / f"{file}.json", name, value)


def theirs(file: str, name: str, value: Any) -> None:
    """The value fits one of the official schemas, where they are given."""
    if _official is not None:
        _judge(_official / OFFICIAL[file], name, value)


def fits(model: TypeAdapter[Any], value: Any, what: str) -> None:
    """The value fits a model of the protocol's."""
    try:
        model.validate_python(_encodable(value), by_name=False)
    except ValidationError as error:
        fail(f"{what} that does not fit the protocol's model: {error}")


def demand(holds: bool, otherwise: str) -> None:
    """Fail, saying what was found instead, unless this holds."""
    if not holds:
        fail(otherwise)


def fail(found: str) -> NoReturn:
    """Fail, saying what was found."""
    raise Unexpected(f"the server sent {found}")


def _judge(file: Path, name: str, value: Any) -> None:
    errors = _validator(file, name).iter_errors(_encodable(value))
    found = [f"{'.'.join(map(str, error.instance_path)) or 'the whole'}: {error.message}" for error in errors]
    demand(not found, f"what does not fit {name} of {file.name}:\n  " + "\n  ".join(found) + f"\n{value!r}")


@cache
def _validator(file: Path, name: str) -> jsonschema_rs.Draft202012Validator:
    schema = json.loads(file.read_text())
    if name not in schema["$defs"]:
        raise KeyError(f"{file.name} defines no {name}")
    whole = {"$schema": schema["$schema"], "$ref": f"#/$defs/{name}", "$defs": schema["$defs"]}
    return jsonschema_rs.Draft202012Validator(whole, offline=True)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    demand(len(members) == len(pairs), f"a member twice, of {[key for key, _ in pairs]}")
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _encodable(value: Any) -> Any:
    """The value with lone surrogates replaced, which JSON allows and the validators cannot take."""
    text = json.dumps(value, ensure_ascii=False)
    return json.loads(text.encode("utf-8", "replace"))
