"""The one table of methods."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from app.domain.task import Json
from app.errors import ErrorKind, Refusal
from app.methods.call import Call, Handler
from app.methods.discover import discover
from app.methods.tasks import Tasks
from app.methods.tools import Tools
from app.wire.envelope import printable


class Methods:
    """The methods that are served. A method that is not here does not exist, reserved `tasks/` names included.

    Args:
        tools: answers `tools/*`.
        tasks: answers `tasks/*`.
    """

    def __init__(self, tools: Tools, tasks: Tasks) -> None:
        self.table: Mapping[str, Handler] = MappingProxyType(
            {
                "server/discover": discover,
                "tools/list": tools.list,
                "tools/call": tools.call,
                "tasks/get": tasks.get,
                "tasks/update": tasks.update,
                "tasks/cancel": tasks.cancel,
            }
        )

    async def answer(self, call: Call) -> Json:
        """The result of a request.

        Raises:
            Refusal: the request is answered with an error.
            ProtocolError: a tool answers with an error of its own.
            StoreUnavailable: the database could not be reached in time.
        """
        handler = self.table.get(call.message.method)
        if handler is None:
            raise Refusal(ErrorKind.METHOD_NOT_FOUND, f"Method not found: {printable(call.message.method)}")
        return await handler(call)
