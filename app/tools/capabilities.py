"""What a client has to be able to do before a tool may ask it something, or hand it a task."""

from __future__ import annotations

from typing import Any

from app.errors import ProtocolError
from app.wire.revisions import TASKS_EXTENSION, Revision, code, missing_capability

TASKS: dict[str, Any] = {"extensions": {TASKS_EXTENSION: {}}}


def needed(request: dict[str, Any]) -> dict[str, Any]:
    """The capabilities that a client must have to be asked this (Multi Round-Trip Requests)."""
    match request["method"], request.get("params", {}).get("mode"):
        case "elicitation/create", "url":
            return {"elicitation": {"url": {}}}
        case "elicitation/create", _:
            return {"elicitation": {"form": {}}}
        case "sampling/createMessage", _:
            return {"sampling": {}}
        case _:
            return {"roots": {}}


def declares(declared: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether a client that declares these capabilities has those."""
    if wanted == {"elicitation": {"form": {}}} and declared.get("elicitation") == {}:
        return True  # an empty object means forms
    return all(
        isinstance(declared.get(name), dict) and declares(declared[name], inner) for name, inner in wanted.items()
    )


def missing(wanted: dict[str, Any], revision: str | None) -> ProtocolError:
    """The error that ends a task whose client lacks these capabilities.

    Args:
        revision: what the client's request declared; without any, it is the draft's.
    """
    refusal = missing_capability(wanted)
    spoken = Revision.DRAFT if revision in (None, Revision.DRAFT) else None
    return ProtocolError(code(refusal.kind, spoken), refusal.message, refusal.data)
