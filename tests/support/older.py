"""What clients of the revisions that open with `initialize` may be sent (2025-11-25, 2025-06-18, 2025-03-26)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcp_types import methods
from pydantic import TypeAdapter

from tests.support.judges import demand, fail, fits, ours

OLDER = ("2025-11-25", "2025-06-18", "2025-03-26")


def is_older(method: Any, in_header: str | None, in_body: str | None) -> bool:
    """Whether a message is one of these clients': they name their version in the header and nowhere else.

    `initialize` comes before there is a version to name; `ping` exists in no other revision.
    """
    if in_header is None and in_body is None:
        return method in ("initialize", "ping")
    return in_header in OLDER and in_body in (None, in_header)


def check_older_result(request: Mapping[str, Any], version: str | None, result: Mapping[str, Any]) -> None:
    """Judge a result by the model of the version that the request names, and by what this server has for it."""
    method = request.get("method")
    judge = _RESULTS.get(method)
    if judge is None:
        fail(f"a result for {method!r} to a client of an older revision")
    judge(request, result)
    model: Any = methods.SERVER_RESULTS[str(method), version or OLDER[0]]
    fits(TypeAdapter(model), result, f"a result for {method!r}")


def _initialize(request: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    ours("core", "InitializeResult", result)
    asked, given = request["params"].get("protocolVersion"), result["protocolVersion"]
    demand(
        given == (asked if asked in OLDER else OLDER[0]), f"the version {given!r} to a client that asks for {asked!r}"
    )


def _ping(_request: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    demand(result == {}, f"the result {result!r} for a ping")


def _list(_request: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    ours("core", "OlderListToolsResult", result)
    names = [tool["name"] for tool in result["tools"]]
    demand(names == sorted(set(names)), f"tools that are not in the order of their names: {names}")


def _call(_request: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    ours("core", "OlderCallToolResult", result)


_RESULTS: dict[Any, Callable[[Mapping[str, Any], Mapping[str, Any]], None]] = {
    "initialize": _initialize,
    "ping": _ping,
    "tools/list": _list,
    "tools/call": _call,
}
