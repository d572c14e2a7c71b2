"""The shape of a client's answer to a question (core, "Multi Round-Trip Requests"; Tasks, "Task Update Requests").

Only the protocol's shape: whether the content fits the schema of the form is for the tool that asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp_types import CreateMessageResult, CreateMessageResultWithTools, ElicitResult, ListRootsResult
from pydantic import TypeAdapter, ValidationError

from app.domain.task import Json, Question, TaskState
from app.errors import ErrorKind, Refusal
from app.wire.envelope import dumps, printable

_SHAPES: dict[str, TypeAdapter[Any]] = {
    "elicitation/create": TypeAdapter(ElicitResult),
    "sampling/createMessage": TypeAdapter(CreateMessageResult | CreateMessageResultWithTools),
    "roots/list": TypeAdapter(ListRootsResult),
}


def outstanding_answers(state: TaskState, responses: Mapping[str, Any]) -> dict[str, Json]:
    """Those responses that answer an open question, as they are stored; any others are passed over.

    Raises:
        Refusal: INVALID_PARAMS, if one has not the shape of a response to its question.
    """
    answers: dict[str, Json] = {}
    for question in state.questions:
        if question.key in responses:
            check_answer(question, responses[question.key])
            answers[question.key] = dumps(responses[question.key])
    return answers


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
