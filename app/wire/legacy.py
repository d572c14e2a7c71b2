"""What clients of the older revisions are shown, where those are narrower than today's (core, "Tools").

There, structured content and the schema of it are objects. Everything newer that is an additional member stays: their
schemas allow it.
"""

from __future__ import annotations

import json
from typing import Any

from app.domain.task import Json
from app.wire.envelope import dumps


def legacy_tool(definition: dict[str, Any]) -> dict[str, Any]:
    """A tool's definition for tools/list: an output schema only where it is one of objects."""
    if _is_object_schema(definition.get("outputSchema")):
        return definition
    return {key: value for key, value in definition.items() if key != "outputSchema"}


def legacy_result(result: Json) -> Json:
    """A CallToolResult: structured content only where it is an object. Any other is in the content, or is put there."""
    if '"structuredContent":' not in result:
        return result
    value = json.loads(result)
    structured = value.pop("structuredContent", {})
    if isinstance(structured, dict):
        return result
    value["content"] = value.get("content") or [{"type": "text", "text": dumps(structured)}]
    return dumps(value)


def _is_object_schema(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "object"
