"""The one table of methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from app.domain.task import Json
from app.errors import ErrorKind, Refusal
from app.methods.call import Call, Handler
from app.methods.discover import discover
from app.methods.initialize import initialize, ping
from app.methods.observed import observed
from app.methods.subscriptions import Subscriptions
from app.methods.tasks import Tasks
from app.methods.tools import Tools
from app.telemetry.metrics import OTHER
from app.wire.envelope import printable
from app.wire.revisions import Era

MODERN = Era.MODERN | Era.UNDECLARED
OLDER = Era.LEGACY | Era.UNDECLARED
ALWAYS = MODERN | OLDER


@dataclass(frozen=True, slots=True)
class Method:
    """A method, and the eras that it exists in."""

    handler: Handler
    eras: Era


class Methods:
    """The methods that are served. A method that is not here does not exist, reserved `tasks/` names included.

    A request that declares no version can be of either era, and finds them all.

    Args:
        tools: answers `tools/*`.
        tasks: answers `tasks/*`.
        subscriptions: answers `subscriptions/listen`.
    """

    def __init__(self, tools: Tools, tasks: Tasks, subscriptions: Subscriptions) -> None:
        self._label: Callable[[dict[str, Any]], str] = tools.label
        self._stops: tuple[Callable[[], None], ...] = (tools.stop, subscriptions.stop)
        self.table: Mapping[str, Method] = MappingProxyType(
            {
                "initialize": Method(initialize, OLDER),
                "ping": Method(ping, OLDER),
                "server/discover": Method(discover, MODERN),
                "tools/list": Method(tools.list, ALWAYS),
                "tools/call": Method(tools.call, ALWAYS),
                "tasks/get": Method(tasks.get, MODERN),
                "tasks/update": Method(tasks.update, MODERN),
                "tasks/cancel": Method(tasks.cancel, MODERN),
                "subscriptions/listen": Method(subscriptions.listen, MODERN),
            }
        )

    def stop(self) -> None:
        """The server stops: end what would not end by itself."""
        for stop in self._stops:
            stop()

    async def answer(self, call: Call) -> Json:
        """The result of a request.

        Raises:
            Refusal: the request is answered with an error.
            ProtocolError: a tool answers with an error of its own.
            StoreUnavailable: the database could not be reached in time.
        """
        name = call.message.method
        method = self.table.get(name)
        label = partial(self._label, call.params) if name == "tools/call" else _no_tool
        return await observed(call, OTHER if method is None else name, label, partial(_answer, call, method))


def _no_tool() -> str:
    return ""


async def _answer(call: Call, method: Method | None) -> Json:
    if method is None or call.context.era not in method.eras:
        raise Refusal(ErrorKind.METHOD_NOT_FOUND, f"Method not found: {printable(call.message.method)}")
    return await method.handler(call)
