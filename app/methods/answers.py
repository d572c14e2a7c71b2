"""The shape of a client's answer to a question (core, "Multi Round-Trip Requests"; Tasks, "Task Update Requests").

Only the protocol's shape: whether the content fits the schema of the form is for the tool that asked.
"""

from __future__ import annotations

import json
from typing import Any

from mcp_types import CreateMessageResult, CreateMessageResultWithTools, ElicitResult, ListRootsResult
from pydantic import TypeAdapter, ValidationError

from app.domain.task import Question
from app.errors import ErrorKind, Refusal
from app.wire.envelope import printable

_SHAPES: dict[str, TypeAdapter[Any]] = {
    "elicitation/create": TypeAdapter(ElicitResult),
    "sampling/createMessage": TypeAdapter(CreateMessageResult | CreateMessageResultWithTools),
    "roots/list": TypeAdapter(ListRootsResult),
}


def check_answer(question: Question, response: Any) -> None:
    """Check that a response is one to this question.

    Raises:
        Refusal: INVALID_PARAMS, naming the key and the field, without its value.
    """
    method = json.loads(question.request)["method"]
    try:
        _SHAPES[method].validate_python(response)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        flaw = f"{printable('.'.join(map(str, first['loc'])))}: {first['msg']}"
        key = printable(question.key)
        raise Refusal(
            ErrorKind.INVALID_PARAMS, f"Invalid params: params.inputResponses.{key} is no response to {method}: {flaw}"
        ) from None
