"""The messages of subscriptions (core, "Subscriptions"; Tasks, "Task Status Notifications").

Each carries the id of the request that opened the stream, as it was sent: a string or an integer.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, StrictBool
from pydantic.alias_generators import to_camel

from app.domain.task import Json
from app.wire.envelope import RequestId, dumps
from app.wire.server_info import RESULT_META

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Filter(BaseModel):
    """What a client wants to be told of, as far as it is served; the rest is none of our business."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel)

    task_ids: list[str] = []
    tools_list_changed: StrictBool = False


class ListenParams(BaseModel):
    """Params of `subscriptions/listen`."""

    notifications: Filter


def acknowledgement(subscription: RequestId, honoured: dict[str, Any]) -> Json:
    """The notification that opens the stream, with the part of the filter that is served."""
    return _notification("subscriptions/acknowledged", subscription, {"notifications": honoured})


def task_notification(subscription: RequestId, view: Json) -> Json:
    """The notification that carries a task; its view is spliced in as it is."""
    meta = dumps({SUBSCRIPTION: subscription})
    return Json(f'{{"jsonrpc":"2.0","method":"notifications/tasks","params":{view[:-1]},"_meta":{meta}}}}}')


def tools_notification(subscription: RequestId) -> Json:
    """The notification that the list of tools has changed (core, "List Changed Notification")."""
    return _notification("tools/list_changed", subscription, {})


def listen_result(subscription: RequestId) -> Json:
    """The result that ends the stream gracefully (core, "Graceful Closure")."""
    return dumps({"resultType": "complete", "_meta": {**RESULT_META, SUBSCRIPTION: subscription}})


def _notification(name: str, subscription: RequestId, params: dict[str, Any]) -> Json:
    params = {"_meta": {SUBSCRIPTION: subscription}, **params}
    return dumps({"jsonrpc": "2.0", "method": f"notifications/{name}", "params": params})
