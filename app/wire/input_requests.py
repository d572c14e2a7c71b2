"""Questions to the client: what it must have declared to be asked, and how it is asked on the request.

A question is an `elicitation/create`, `sampling/createMessage` or `roots/list` (core, "Multi Round-Trip Requests").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.domain.task import Json, Question
from app.wire.envelope import dumps
from app.wire.server_info import RESULT_META_JSON


def needed_capability(request: dict[str, Any]) -> dict[str, Any]:
    """What a client must declare for this question, as a ClientCapabilities object."""
    match request["method"], request.get("params", {}).get("mode"):
        case "elicitation/create", "url":
            return {"elicitation": {"url": {}}}
        case "elicitation/create", _:
            return {"elicitation": {"form": {}}}
        case "sampling/createMessage", _:
            return {"sampling": {}}
        case _:
            return {"roots": {}}


def declares(declared: dict[str, Any], needed: dict[str, Any]) -> bool:
    """Whether a client with these capabilities has the needed ones. An empty `elicitation` means forms."""
    if needed == {"elicitation": {"form": {}}} and declared.get("elicitation") == {}:
        return True
    return all(
        isinstance(declared.get(name), dict) and declares(declared[name], inner) for name, inner in needed.items()
    )


def input_requests(questions: Sequence[Question]) -> Json:
    """The `inputRequests` of a task or a result: each question's request by its key, spliced in as it is stored."""
    return Json("{" + ",".join(f"{dumps(question.key)}:{question.request}" for question in questions) + "}")


def input_required_result(questions: Sequence[Question], request_state: str) -> Json:
    """The InputRequiredResult that asks on the request (core, "Multi Round-Trip Requests")."""
    return Json(
        f'{{"resultType":"input_required","inputRequests":{input_requests(questions)},'
        f'"requestState":{dumps(request_state)},"_meta":{RESULT_META_JSON}}}'
    )
