"""The messages of the Tasks extension: the one place that turns a task into its wire form, and reads its params.

`task_view` serves `tasks/get` and `notifications/tasks` alike, so that both are the same by construction. Results,
errors and the requests behind questions are spliced in as they are stored.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeVar, assert_never
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from app.domain.task import Json, Status, Task, TaskState
from app.errors import ErrorKind, Refusal
from app.wire.envelope import dumps, printable
from app.wire.input_requests import input_requests
from app.wire.server_info import RESULT_META_JSON

EMPTY: Json = Json(f'{{"resultType":"complete","_meta":{RESULT_META_JSON}}}')
"""The acknowledgement of `tasks/update` and `tasks/cancel`."""

MAX_ANSWERS = 1000
"""Responses that one request may bring."""


class _Params(BaseModel):
    """Params of a task method; members that are not named, `_meta` among them, are none of its business."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel)


class GetTaskParams(_Params):
    """Params of `tasks/get`."""

    task_id: str


class UpdateTaskParams(_Params):
    """Params of `tasks/update`: responses by the key of their request."""

    task_id: str
    input_responses: dict[str, Any] = Field(max_length=MAX_ANSWERS)


class CancelTaskParams(_Params):
    """Params of `tasks/cancel`."""

    task_id: str


P = TypeVar("P", bound=BaseModel)


def read_params(model: type[P], params: dict[str, Any]) -> P:
    """Params as a model.

    Raises:
        Refusal: INVALID_PARAMS, naming the first field that does not fit, without its value.
    """
    try:
        return model.model_validate(params)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(str(step) for step in ("params", *first["loc"]))
    raise Refusal(ErrorKind.INVALID_PARAMS, f"Invalid params: {printable(field)}: {first['msg']}")


def read_task_id(text: str) -> UUID | None:
    """A task id as it is written in a view; None for any other text, also for another spelling of the same UUID."""
    try:
        task_id = UUID(text)
    except ValueError:
        return None
    return task_id if str(task_id) == text else None


def task_view(state: TaskState) -> Json:
    """The DetailedTask of a state (Tasks, "Task Status"), members always in the same order."""
    return Json(f"{{{_task(state.task)}{_payload(state)}}}")


def create_result(task: Task) -> Json:
    """The CreateTaskResult (Tasks, "Task Creation"): flat, and without outcome or questions whatever its status."""
    return Json(f'{{"resultType":"task",{_task(task)},"_meta":{RESULT_META_JSON}}}')


def get_result(state: TaskState) -> Json:
    """The result of `tasks/get` (Tasks, "Task Polling"): the view, and `complete` in every state."""
    return Json(f'{{"resultType":"complete",{_task(state.task)}{_payload(state)},"_meta":{RESULT_META_JSON}}}')


def _task(task: Task) -> str:
    message = "" if task.status_message is None else f'"statusMessage":{dumps(task.status_message)},'
    ttl = "null" if task.ttl_ms is None else task.ttl_ms
    created = _instant(task.created_at)
    updated = created if task.updated_at is task.created_at else _instant(task.updated_at)
    return (
        f'"taskId":"{task.task_id}","status":"{task.status}",{message}'
        f'"createdAt":"{created}","lastUpdatedAt":"{updated}",'
        f'"ttlMs":{ttl},"pollIntervalMs":{task.poll_interval_ms}'
    )


def _payload(state: TaskState) -> str:
    match state.task.status:
        case Status.WORKING | Status.CANCELLED:
            return ""
        case Status.INPUT_REQUIRED:
            return f',"inputRequests":{input_requests(state.questions)}'
        case Status.COMPLETED:
            return f',"result":{_stored(state.result)}'
        case Status.FAILED:
            return f',"error":{_stored(state.error)}'
        case never:
            assert_never(never)


def _stored(outcome: Json | None) -> Json:
    if outcome is None:
        raise ValueError("an ended task was read without its outcome")
    return outcome


def _instant(when: datetime) -> str:
    """ISO 8601 in UTC, always with microseconds: two updates in one millisecond stay apart."""
    utc = when if when.tzinfo is UTC else when.astimezone(UTC)
    return f"{utc.isoformat(timespec='microseconds')[:26]}Z"
