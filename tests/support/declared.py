"""Which questions a client has declared that it can be asked (core, "Multi Round-Trip Requests", "Elicitation")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.judges import demand


def check_declared(requests: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
    """No question is of a kind that the client's capabilities do not name."""
    for key, request in requests.items():
        for path in _needed(request["method"], request.get("params", {}), capabilities):
            demand(_has(capabilities, path), f"the question {key!r} to a client that does not declare {'.'.join(path)}")


def _needed(method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any]) -> list[tuple[str, ...]]:
    match method:
        case "elicitation/create":
            mode = params.get("mode", "form")
            return [
                ("elicitation",) if capabilities.get("elicitation") == {} and mode == "form" else ("elicitation", mode)
            ]
        case "sampling/createMessage":
            tools = "tools" in params or "toolChoice" in params
            return [("sampling", "tools") if tools else ("sampling",)]
        case _:
            return [("roots",)]


def _has(value: Any, path: tuple[str, ...]) -> bool:
    for step in path:
        if not isinstance(value, dict) or step not in value:
            return False
        value = value[step]
    return True
