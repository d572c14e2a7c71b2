"""Judges every message that a test receives from the server.

`check_reply`, `check_stream` and `check_notification` return what was parsed, or fail with what is wrong with it. They
judge by the models of the core protocol (mcp_types), by schemas of our own that are stricter and know what those models
let pass (tests/schemas), and, where `use_official` names a folder, by the official JSON Schemas too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from mcp_types import CreateMessageRequest, ElicitRequest, ListRootsRequest, methods
from pydantic import TypeAdapter

from tests.support.declared import check_declared
from tests.support.events import read_events
from tests.support.judges import Unexpected, demand, fail, fits, ours, parse, theirs, use_official
from tests.support.older import check_older_result, is_older

__all__ = ["Streamed", "Unexpected", "check_notification", "check_reply", "check_stream", "use_official"]

PUBLISHED, DRAFT = "2026-07-28", "DRAFT-2026-v1"
_META = "io.modelcontextprotocol"

_PUBLISHED_CODES = {
    -32020: "HeaderMismatchError",
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
}
_DRAFT_CODES = {-32001, -32003, -32004}
_STATUSES: dict[int, set[int]] = {code: {400} for code in (-32700, -32602, *_DRAFT_CODES, *_PUBLISHED_CODES)} | {
    -32600: set(range(400, 500)),
    -32601: {404},
    -32603: {429, 500, 503},
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_INSIDE = re.compile(r"Traceback|File \"|site-packages|asyncpg|sqlalchemy|psycopg|\b(SELECT|INSERT|UPDATE|DELETE) ")
_STREAMED = {"tools/call", "subscriptions/listen"}
_TERMINAL = {"completed", "failed", "cancelled"}
_QUESTIONS: dict[str, TypeAdapter[Any]] = {
    "elicitation/create": TypeAdapter(ElicitRequest),
    "sampling/createMessage": TypeAdapter(CreateMessageRequest),
    "roots/list": TypeAdapter(ListRootsRequest),
}


@dataclass(frozen=True)
class Streamed:
    """A reply that came as a stream.

    Attributes:
        message: the response, which is the last event.
        notifications: what came before it, in order.
        keepalives: how many comments there were.
    """

    message: dict[str, Any]
    notifications: list[dict[str, Any]]
    keepalives: int


def check_reply(
    message: Mapping[str, Any] | bytes, status: int, body: bytes, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Judge the reply to one message and return it parsed; `{}` for the empty reply to a notification.

    Args:
        message: what was sent, as a value or as the body.
        status: the HTTP status of the reply.
        headers: the request's headers; needed only where they declare a version and `_meta` does not.

    Raises:
        Unexpected: the reply is not what the server may send.
    """
    request = _sent(message) if isinstance(message, bytes) else message
    if not body:
        demand(request is not None and "id" not in request and status == 202, f"an empty reply with status {status}")
        return {}
    return _check_response(request, status, parse(body), headers or {})


def check_stream(message: Mapping[str, Any] | bytes, body: bytes, headers: Mapping[str, str] | None = None) -> Streamed:
    """Judge a reply that came as a stream of events: notifications of the request, and then its response.

    Args:
        message: what was sent, as a value or as the body.
        headers: the request's headers; without an `Accept` the client takes JSON too.

    Raises:
        Unexpected: the stream is not what the server may send.
    """
    request = _sent(message) if isinstance(message, bytes) else message
    if request is None or "id" not in request:
        fail("a stream for what is no request")
    accept = _header(headers or {}, "accept") or "*/*"
    takes_json = "json" in accept or "*" in accept
    demand(request.get("method") in _STREAMED or not takes_json, f"a stream for {request.get('method')!r}")
    events, keepalives = read_events(body)
    if request.get("method") == "subscriptions/listen":
        notifications = [check_notification(event, subscription=request["id"]) for event in events[:-1]]
        _check_subscription(request, notifications)
    else:
        notifications = [check_notification(event) for event in events[:-1]]
        _check_progress(request, notifications)
    response = _check_response(request, None, parse(events[-1]), headers or {})
    return Streamed(response, notifications, keepalives)


def check_notification(
    message: bytes | str, *, subscription: str | int | None = None, task: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Judge a notification on a stream and return it parsed.

    Args:
        message: the data of the event.
        subscription: the id of the `subscriptions/listen` request whose stream it came on; None for another stream.
        task: the result of `tasks/get` that a `notifications/tasks` must equal.

    Raises:
        Unexpected: the notification is not what the server may send there.
    """
    notification: dict[str, Any] = parse(message.encode() if isinstance(message, str) else message)
    ours("core", "Notification", notification)
    method, params = notification["method"], notification.get("params", {})
    carried = params.get("_meta", {}).get(f"{_META}/subscriptionId")
    demand(_same(carried, subscription), f"the subscription id {carried!r} instead of {subscription!r}")
    if method == "notifications/tasks":
        ours("tasks", "TaskNotification", notification)
        theirs("tasks", "TaskStatusNotification", notification)
        _check_task(params)
        demand(task is None or _view(params) == _view(task or {}), "another task than tasks/get shows")
    else:
        on_request = method in ("notifications/progress", "notifications/message")
        demand(subscription is None or not on_request, f"{method} on a subscription's stream")
        _check_core_notification(method, notification)
    return notification


def _sent(body: bytes) -> dict[str, Any] | None:
    """The message that was sent, without what it has twice; None for what is no JSON object."""
    try:
        value = json.loads(body.decode(), object_pairs_hook=_single)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _single(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    times = Counter(key for key, _ in pairs)
    return {key: value for key, value in pairs if times[key] == 1}


def _check_id(request: Mapping[str, Any] | None, reply: Mapping[str, Any]) -> None:
    sent = request.get("id") if request is not None else None
    if type(sent) in (str, int):
        demand(_same(reply.get("id"), sent), f"the id {reply.get('id')!r} instead of {sent!r}")
    else:
        demand(request is None or "id" not in reply, f"the id {reply.get('id')!r} for a message without one")


def _check_response(
    request: Mapping[str, Any] | None, status: int | None, reply: dict[str, Any], headers: Mapping[str, str]
) -> dict[str, Any]:
    """Judge a response; None stands for the status of a stream, which has begun before anything is known."""
    ours("core", "Response", reply)
    _check_id(request, reply)
    in_header, in_body = _header(headers, "mcp-protocol-version"), _meta(request or {}, "protocolVersion")
    older = is_older((request or {}).get("method"), in_header, in_body if isinstance(in_body, str) else None)
    if "error" in reply:
        code = reply["error"]["code"]
        readable = older and in_header is not None and "id" in reply
        expected = {200} if readable else _STATUSES.get(code, {200})
        demand(status is None or status in expected, f"the error {code} with status {status}")
        versions = {version for version in (in_header, in_body) if isinstance(version, str)}
        _check_error(request or {}, versions, reply)
    elif request is None:
        fail("a result for a body that is no request")
    else:
        demand(status in (None, 200), f"a result with status {status}")
        if older:
            check_older_result(request, in_header, reply["result"])
        else:
            _RESULTS.get(request.get("method"), _no_result)(request, reply["result"])
    return reply


def _check_progress(request: Mapping[str, Any], notifications: list[dict[str, Any]]) -> None:
    """Only progress, of the one who asked for it, and forwards (core, "Progress")."""
    params = request.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    token, reached = meta.get("progressToken") if isinstance(meta, dict) else None, float("-inf")
    for notification in notifications:
        method, said = notification["method"], notification.get("params", {})
        demand(method == "notifications/progress", f"{method} on the stream of a request")
        demand(token is not None, "progress that was not asked for")
        demand(_same(said["progressToken"], token), f"progress for {said['progressToken']!r} instead of {token!r}")
        demand(said["progress"] > reached, f"progress from {reached} to {said['progress']}")
        reached = said["progress"]


def _check_subscription(request: Mapping[str, Any], notifications: list[dict[str, Any]]) -> None:
    """The acknowledgement first and once, and only what was asked for (core, "Acknowledgment")."""
    demand(bool(notifications), "no acknowledgement")
    asked = request["params"]["notifications"]
    acknowledged, *others = notifications
    honoured = acknowledged["params"].get("notifications", {})
    demand(acknowledged["method"] == "notifications/subscriptions/acknowledged", f"{acknowledged['method']} first")
    for name, value in honoured.items():
        allowed = set(value) <= set(asked[name]) if name == "taskIds" else value == asked[name]
        demand(allowed, f"the acknowledgement of {name} {value!r}, which was not asked for")
    for notification in others:
        match notification["method"]:
            case "notifications/tasks":
                told = notification["params"]["taskId"]
                demand(told in honoured.get("taskIds", ()), f"the task {told}, which was not acknowledged")
            case "notifications/tools/list_changed":
                demand(honoured.get("toolsListChanged") is True, "a change of the tools, which was not acknowledged")
            case method:
                fail(f"{method} on the stream of a subscription")
    _check_order([each["params"] for each in others if each["method"] == "notifications/tasks"])


def _check_order(tasks: list[dict[str, Any]]) -> None:
    """Each task only forwards, never the same state twice, and nothing after its end."""
    last: dict[str, dict[str, Any]] = {}
    for task in tasks:
        before = last.get(task["taskId"])
        if before is not None:
            demand(before["status"] not in _TERMINAL, f"the task {task['taskId']} after its end")
            later = before["lastUpdatedAt"] < task["lastUpdatedAt"]
            demand(later, f"the state of {before['lastUpdatedAt']} and then that of {task['lastUpdatedAt']}")
        last[task["taskId"]] = task


def _check_listen(request: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    ours("core", "ListenResult", result)
    carried = result["_meta"].get(f"{_META}/subscriptionId")
    demand(_same(carried, request["id"]), f"the subscription id {carried!r} instead of {request['id']!r}")
    theirs("core", "SubscriptionsListenResult", result)


def _check_error(request: Mapping[str, Any], versions: set[str], reply: Mapping[str, Any]) -> None:
    code, message = reply["error"]["code"], reply["error"]["message"]
    demand(len(message) <= 1000, f"an error message of {len(message)} characters")
    demand(not _CONTROL.search(message), f"control characters in the error message {message!r}")
    demand(not _INSIDE.search(message), f"an error message that tells of the inside: {message!r}")
    if code in _DRAFT_CODES or code in _PUBLISHED_CODES:
        draft = PUBLISHED not in versions and (not versions or DRAFT in versions)
        demand(draft is (code in _DRAFT_CODES), f"the number {code} to a request that declares {versions or 'nothing'}")
    if code in (-32003, -32021) and request.get("method") in (*_TASK_RESULTS, "subscriptions/listen"):
        ours("tasks", "MissingTasksCapability", reply["error"])
    theirs("core", _PUBLISHED_CODES.get(code, "JSONRPCErrorResponse"), reply)


def _check_discover(_request: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    _core("server/discover", "DiscoverResult", result)


def _check_list(_request: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    _core("tools/list", "ListToolsResult", result)
    names = [tool["name"] for tool in result["tools"]]
    demand(names == sorted(set(names)), f"tools that are not in the order of their names: {names}")


def _check_call(request: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    match result.get("resultType"):
        case "task":
            demand(_declares_tasks(request), "a task to a client that does not declare the extension")
            ours("tasks", "CreateTaskResult", result)
            theirs("tasks", "CreateTaskResult", result)
            _check_times(result)
        case "input_required":
            _core("tools/call", "InputRequiredResult", result)
            demand("requestState" in result, "a question without the state to come back with")
            _check_questions(result.get("inputRequests", {}))
            check_declared(result.get("inputRequests", {}), _meta(request, "clientCapabilities") or {})
        case _:
            _core("tools/call", "CallToolResult", result)
            ours("core", "ResultMeta", result.get("_meta"))


def _check_task_method(request: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    demand(_declares_tasks(request), "a task's result to a client that does not declare the extension")
    name = _TASK_RESULTS[request["method"]]
    ours("tasks", name, result)
    theirs("tasks", name, result)
    if name == "GetTaskResult":
        asked = request["params"]["taskId"]
        demand(result["taskId"] == asked, f"the task {result['taskId']} instead of {asked}")
        _check_task(result)


def _no_result(request: Mapping[str, Any], _result: Mapping[str, Any]) -> None:
    fail(f"a result for {request.get('method')!r}, of which no result is known")


_TASK_RESULTS = {
    "tasks/get": "GetTaskResult",
    "tasks/update": "UpdateTaskResult",
    "tasks/cancel": "CancelTaskResult",
}
_RESULTS: dict[Any, Callable[[Mapping[str, Any], Mapping[str, Any]], None]] = {
    "server/discover": _check_discover,
    "tools/list": _check_list,
    "tools/call": _check_call,
    "subscriptions/listen": _check_listen,
} | dict.fromkeys(_TASK_RESULTS, _check_task_method)


def _check_task(task: Mapping[str, Any]) -> None:
    """What the schemas leave open in a DetailedTask."""
    _check_times(task)
    _check_questions(task.get("inputRequests", {}))
    if task["status"] == "completed":
        _core("tools/call", "CallToolResult", task["result"])


def _check_times(task: Mapping[str, Any]) -> None:
    demand(task["createdAt"] <= task["lastUpdatedAt"], "a task that was updated before it was created")


def _check_questions(requests: Mapping[str, Any]) -> None:
    for key, request in requests.items():
        method = request.get("method")
        demand(method in _QUESTIONS, f"the request {key!r} of the unknown method {method!r}")
        fits(_QUESTIONS[method], request, f"the request {key!r}")


def _check_core_notification(method: str, notification: Mapping[str, Any]) -> None:
    model = methods.SERVER_NOTIFICATIONS.get((method, PUBLISHED))
    if model is None:
        fail(f"the notification {method!r}, which is unknown")
    fits(TypeAdapter(model), notification, method)
    theirs("core", model.__name__, notification)


def _core(method: str, name: str, result: Mapping[str, Any]) -> None:
    ours("core", name, result)
    fits(_models(method)[name], result, name)
    theirs("core", name, result)


@cache
def _models(method: str) -> dict[str, TypeAdapter[Any]]:
    """The models of a method's results, one by one: their union lets a wrong result of one pass as another."""
    found = methods.SERVER_RESULTS[method, PUBLISHED]
    return {model.__name__: TypeAdapter(model) for model in get_args(found) or (found,)}


def _meta(request: Mapping[str, Any], key: str) -> Any:
    params = request.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get(f"{_META}/{key}") if isinstance(meta, dict) else None


def _header(headers: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in headers.items() if key.lower() == name), None)


def _declares_tasks(request: Mapping[str, Any]) -> bool:
    capabilities = _meta(request, "clientCapabilities")
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    return isinstance(extensions, dict) and f"{_META}/tasks" in extensions


def _view(task: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in task.items() if key not in ("resultType", "_meta")}


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)
