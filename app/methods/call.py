"""A request on its way to its method, and what every method needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from app.domain.fixed import fixed
from app.domain.principal import Principal
from app.domain.task import Json
from app.wire.envelope import Message
from app.wire.revisions import Context

T = TypeVar("T")

Handler = Callable[["Call"], Awaitable[Json]]
"""Answers a call with the text of its result, or raises a Refusal; a tool's own ProtocolError passes through."""


async def unheard(_: Json) -> None:
    """Stands where no notification can be sent: the client takes nothing but the one response."""


@fixed
class Call:
    """A request, what it says about its client, and on whose behalf it is made.

    Attributes:
        notify: sends a notification that belongs to this request, as JSON text, before its response.
    """

    message: Message
    context: Context
    principal: Principal
    notify: Callable[[Json], Awaitable[None]] = unheard

    @property
    def owner(self) -> str:
        """Whom what this call creates belongs to, and whose tasks it sees."""
        return self.principal.owner

    @property
    def params(self) -> dict[str, Any]:
        """The request's params."""
        return self.message.params


async def carry_through(write: Coroutine[Any, Any, T]) -> T:
    """Await a write that goes on when the caller is cancelled, because its client hung up.

    A client that asks for something and leaves still asked for it, and a statement that is cut off half-way costs a
    connection. What runs only for the sake of the reply is not to be wrapped.
    """
    task = asyncio.create_task(write)
    _carried.add(task)
    task.add_done_callback(_carried.discard)
    return await asyncio.shield(task)


# The event loop itself only keeps weak references to its tasks.
_carried: set[asyncio.Task[Any]] = set()
