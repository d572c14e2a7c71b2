"""The oracle accepts the streams that the server is to send, and nothing that is wrong in one point."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.oracle import Unexpected, check_stream
from tests.support.test_oracle import CALL, GOOD, META, TASK, TASK_ID, TOOL_RESULT, Message, encode, error, result

ASKING = CALL | {"params": CALL["params"] | {"_meta": CALL["params"]["_meta"] | {"progressToken": "p"}}}
RESPONSE = result(**TOOL_RESULT)


def progress(reached: float, of: str = "p") -> Message:
    params = {"progressToken": of, "progress": reached}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def event(message: Message) -> bytes:
    return b"event: message\ndata: " + encode(message) + b"\n\n"


def test_accepts_progress_and_keep_alives_before_the_response() -> None:
    body = event(progress(0)) + b": keep-alive\n\n" + event(progress(0.5))
    streamed = check_stream(encode(ASKING), body + event(RESPONSE))
    assert streamed.message == RESPONSE
    assert streamed.notifications == [progress(0), progress(0.5)]
    assert streamed.keepalives == 1


def test_accepts_an_error_at_the_end_whatever_its_status_would_be() -> None:
    assert check_stream(CALL, event(error(-32603))).message == error(-32603)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b": keep-alive\n\n",
        b"data: {}\n\n",
        b"event: message\ndata: {}\n",
        b"event: message\ndata: {}\nid: 1\n\n",
        b"event: message\nretry: 1\ndata: {}\n\n",
    ],
)
def test_rejects_what_is_no_stream_of_messages(body: bytes) -> None:
    with pytest.raises(Unexpected):
        check_stream(ASKING, body)


def test_rejects_what_is_wrong_in_one_point() -> None:
    one, response = event(progress(1)), event(RESPONSE)
    for body in (
        one,
        response + b": keep-alive\n\n",
        response + one,
        response + response,
        one + one + response,
        event(progress(2)) + one + response,
        event(progress(1, "another")) + response,
        (one + response).replace(b"\n", b"\r\n"),
        response.replace(b"data: ", b"data: \ndata: "),
        event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}) + response,
        event(RESPONSE | {"id": 8}),
    ):
        with pytest.raises(Unexpected):
            check_stream(ASKING, body)


def test_rejects_progress_that_was_not_asked_for() -> None:
    with pytest.raises(Unexpected):
        check_stream(CALL, event(progress(1)) + event(RESPONSE))


def test_only_calls_are_streamed_to_a_client_that_takes_json() -> None:
    sent, _, reply = GOOD["list"]
    check_stream(sent, event(reply), {"Accept": "text/event-stream"})
    for accept in ("application/json, text/event-stream", "*/*"):
        with pytest.raises(Unexpected):
            check_stream(sent, event(reply), {"Accept": accept})


SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LISTEN: Message = {
    "jsonrpc": "2.0",
    "id": 7,
    "method": "subscriptions/listen",
    "params": {
        "notifications": {"taskIds": ["a", TASK_ID], "toolsListChanged": True},
        "_meta": CALL["params"]["_meta"],
    },
}
ENDED = result(_meta=META | {SUBSCRIPTION: 7})


def notification(name: str, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "method": f"notifications/{name}", "params": params | {"_meta": {SUBSCRIPTION: 7}}}


def task(second: int, **members: Any) -> Message:
    return notification("tasks", **TASK | {"lastUpdatedAt": f"2026-08-01T10:31:{second:02}.000000Z"} | members)


HONOURED = notification("subscriptions/acknowledged", notifications={"taskIds": [TASK_ID], "toolsListChanged": True})
CHANGED = notification("tools/list_changed")


def test_accepts_a_subscription_that_goes_forwards() -> None:
    sent = [HONOURED, task(1), CHANGED, task(2), task(3, status="cancelled"), CHANGED]
    streamed = check_stream(LISTEN, b"".join(map(event, [*sent, ENDED])))
    assert streamed.notifications == sent
    check_stream(LISTEN, event(notification("subscriptions/acknowledged", notifications={})) + event(ENDED))


def test_rejects_a_subscription_that_is_wrong_in_one_point() -> None:
    another = "00000000-0000-7000-8000-000000000009"
    for sent in (
        [],
        [task(1)],
        [task(1), HONOURED],
        [HONOURED, HONOURED],
        [HONOURED, task(1), task(1)],
        [HONOURED, task(2), task(1)],
        [HONOURED, task(1, status="cancelled"), task(2)],
        [HONOURED, task(1, taskId=another)],
        [HONOURED, notification("progress", progressToken=1, progress=1)],
        [HONOURED, notification("prompts/list_changed")],
        [HONOURED, CHANGED | {"params": {"_meta": {SUBSCRIPTION: "7"}}}],
        [notification("subscriptions/acknowledged", notifications={"taskIds": [another]})],
        [notification("subscriptions/acknowledged", notifications={}), task(1)],
        [notification("subscriptions/acknowledged", notifications={}), CHANGED],
    ):
        with pytest.raises(Unexpected):
            check_stream(LISTEN, b"".join(map(event, [*sent, ENDED])))
    for end in (result(), result(_meta=META | {SUBSCRIPTION: "7"}), result(_meta={SUBSCRIPTION: 7})):
        with pytest.raises(Unexpected):
            check_stream(LISTEN, event(HONOURED) + event(end))
