"""A task has one wire form, and its params are read strictly."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import __version__
from app.domain.task import Json, Question, Reply, Status, Task, TaskState, new_task_id
from app.errors import ErrorKind, Refusal
from app.wire.envelope import dumps, result_body
from app.wire.tasks import (
    EMPTY,
    CancelTaskParams,
    GetTaskParams,
    UpdateTaskParams,
    create_result,
    get_result,
    read_params,
    read_task_id,
    task_view,
)
from tests.support.oracle import check_reply

TASK_ID = UUID("01970c3e-5b1a-7c3d-9e2f-0123456789ab")
CREATED = datetime(2026, 8, 1, 10, 30, tzinfo=UTC)
META = {"io.modelcontextprotocol/serverInfo": {"name": "perdure", "version": __version__}}
RESULT = Json('{"content":[ ],"structuredContent":{"n":1.0},"resultType":"complete"}')
ERROR = Json('{"code": -32603,"message":"The tool failed"}')
REQUEST = Json(
    '{"method":"elicitation/create","params":{"message":"Name?","requestedSchema":{"type":"object","properties":{}}}}'
)


def task(status: Status = Status.WORKING, **changes: Any) -> Task:
    whole = Task(
        task_id=TASK_ID,
        owner="owner",
        tool="tool",
        status=status,
        status_message=None,
        reply=Reply.TASK,
        epoch=3,
        version=9,
        ttl_ms=None,
        poll_interval_ms=1000,
        created_at=CREATED,
        updated_at=CREATED + timedelta(microseconds=1),
        cancel_requested=False,
        expired=False,
        progress=None,
        progress_total=None,
    )
    return replace(whole, **changes)


STATES = {
    Status.WORKING: TaskState(task()),
    Status.INPUT_REQUIRED: TaskState(task(Status.INPUT_REQUIRED), (Question("name", REQUEST), Question("ü", REQUEST))),
    Status.COMPLETED: TaskState(task(Status.COMPLETED), result=RESULT),
    Status.FAILED: TaskState(task(Status.FAILED, status_message="The tool failed"), error=ERROR),
    Status.CANCELLED: TaskState(task(Status.CANCELLED)),
}


def request(method: str, **params: Any) -> dict[str, Any]:
    capabilities: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    meta = {"_meta": {"io.modelcontextprotocol/clientCapabilities": capabilities}}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | meta}


class TestView:
    """The DetailedTask."""

    def test_a_view_has_its_members_in_one_order(self) -> None:
        state = TaskState(task(status_message="Half way", ttl_ms=60_000))
        assert task_view(state) == (
            '{"taskId":"01970c3e-5b1a-7c3d-9e2f-0123456789ab","status":"working","statusMessage":"Half way",'
            '"createdAt":"2026-08-01T10:30:00.000000Z","lastUpdatedAt":"2026-08-01T10:30:00.000001Z",'
            '"ttlMs":60000,"pollIntervalMs":1000}'
        )

    @pytest.mark.parametrize(
        ("status", "payload"),
        [
            (Status.WORKING, {}),
            (Status.INPUT_REQUIRED, {"inputRequests": {"name": json.loads(REQUEST), "ü": json.loads(REQUEST)}}),
            (Status.COMPLETED, {"result": json.loads(RESULT)}),
            (Status.FAILED, {"error": json.loads(ERROR), "statusMessage": "The tool failed"}),
            (Status.CANCELLED, {}),
        ],
    )
    def test_each_status_has_its_payload_and_no_other(self, status: Status, payload: dict[str, Any]) -> None:
        view = json.loads(task_view(STATES[status]))
        always = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}
        assert view["status"] == status
        assert {key: value for key, value in view.items() if key not in always} == payload

    def test_what_is_stored_is_spliced_in_as_it_is(self) -> None:
        assert f'"result":{RESULT}}}' in task_view(STATES[Status.COMPLETED])
        assert f'"error":{ERROR}}}' in task_view(STATES[Status.FAILED])
        assert f'"name":{REQUEST},' in task_view(STATES[Status.INPUT_REQUIRED])

    def test_without_a_limit_the_ttl_is_null(self) -> None:
        assert json.loads(task_view(STATES[Status.WORKING]))["ttlMs"] is None

    @pytest.mark.requirement("R51")
    def test_instants_are_utc_with_microseconds_whatever_the_zone_they_come_in(self) -> None:
        tokyo = CREATED.astimezone(timezone(timedelta(hours=9)))
        assert task_view(TaskState(task(created_at=tokyo))) == task_view(STATES[Status.WORKING])

    @given(st.text(st.characters() | st.characters(categories=["Cs"])))
    def test_any_status_message_and_any_key_make_a_readable_view(self, text: str) -> None:
        state = TaskState(task(Status.INPUT_REQUIRED, status_message=text), (Question(text, REQUEST),))
        view = json.loads(task_view(state).encode())
        text = json.loads(json.dumps(text))
        assert (view["statusMessage"], list(view["inputRequests"])) == (text, [text])

    @pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED])
    def test_an_ended_task_without_its_outcome_is_never_shown(self, status: Status) -> None:
        with pytest.raises(ValueError, match="without its outcome"):
            task_view(TaskState(task(status)))


class TestResults:
    """What the methods answer with."""

    @pytest.mark.requirement("R19")
    @pytest.mark.parametrize("status", Status)
    def test_tasks_get_shows_the_view_and_is_complete_in_every_state(self, status: Status) -> None:
        result = json.loads(get_result(STATES[status]))
        assert result == {"resultType": "complete", **json.loads(task_view(STATES[status])), "_meta": META}

    @pytest.mark.parametrize("status", Status)
    def test_tasks_get_is_what_the_protocol_says(self, status: Status) -> None:
        body = result_body(1, get_result(STATES[status]))
        check_reply(request("tasks/get", taskId=str(TASK_ID)), 200, body)

    @pytest.mark.requirement("R05", "R50")
    @pytest.mark.parametrize("status", Status)
    def test_a_created_task_is_flat_and_shows_no_outcome(self, status: Status) -> None:
        state = STATES[status]
        reply = check_reply(request("tools/call", name="tool"), 200, result_body(1, create_result(state.task)))
        shown = json.loads(task_view(state))
        for payload in ("inputRequests", "result", "error"):
            shown.pop(payload, None)
        assert reply["result"] == {"resultType": "task", **shown, "_meta": META}

    @pytest.mark.requirement("R24", "R29", "R31", "R34")
    @pytest.mark.parametrize("method", ["tasks/update", "tasks/cancel"])
    def test_the_acknowledgement_is_empty(self, method: str) -> None:
        check_reply(request(method, taskId=str(TASK_ID)), 200, result_body(1, EMPTY))
        assert json.loads(EMPTY) == {"resultType": "complete", "_meta": META}


class TestParams:
    """What the methods are asked with."""

    def test_params_are_read_and_other_members_passed_over(self) -> None:
        assert read_params(GetTaskParams, {"taskId": "t", "_meta": {}, "other": 1}).task_id == "t"
        assert read_params(CancelTaskParams, {"taskId": "t"}).task_id == "t"

    def test_responses_are_kept_exactly(self) -> None:
        responses = {
            "a": {"action": "accept", "content": {"n": 2**70, "f": 1.0, "": [None, "\0"]}},
            "\ud800": {"\ud800": "\ud800"},
        }
        params = read_params(UpdateTaskParams, {"taskId": "t", "inputResponses": responses})
        assert dumps(params.input_responses) == dumps(responses)

    @pytest.mark.parametrize(
        ("params", "field"),
        [
            ({}, "params.taskId"),
            ({"task_id": "t"}, "params.taskId"),
            ({"taskId": 7}, "params.taskId"),
            ({"taskId": None}, "params.taskId"),
            ({"taskId": "t"}, "params.inputResponses"),
            ({"taskId": "t", "inputResponses": []}, "params.inputResponses"),
        ],
    )
    def test_a_field_that_does_not_fit_is_named_without_its_value(self, params: dict[str, Any], field: str) -> None:
        with pytest.raises(Refusal) as caught:
            read_params(UpdateTaskParams, params)
        assert caught.value.kind is ErrorKind.INVALID_PARAMS
        assert field in caught.value.message
        assert "secret" not in caught.value.message
        assert caught.value.message.isprintable()
        assert len(caught.value.message) < 300

    def test_an_id_is_read_as_it_was_shown(self) -> None:
        task_id = new_task_id()
        assert read_task_id(str(task_id)) == task_id

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "1",
            "x" * 5000,
            str(TASK_ID).upper(),
            TASK_ID.hex,
            f"{{{TASK_ID}}}",
            f"urn:uuid:{TASK_ID}",
            f" {TASK_ID}",
        ],
    )
    def test_another_spelling_of_an_id_is_none(self, text: str) -> None:
        assert read_task_id(text) is None

    @given(st.text(st.characters() | st.characters(categories=["Cs"])))
    def test_any_text_is_an_id_or_none(self, text: str) -> None:
        assert read_task_id(text) in (None, UUID(int=0))
