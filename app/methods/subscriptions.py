"""subscriptions/listen (core, "Subscriptions"; Tasks, "Task Status Notifications").

    gate ── params ── which tasks may be read ── acknowledgement ── the state of each ── each change … ── result

A stream keeps the version of each task that it has sent, and which tasks may have changed since: a set and no queue,
so that a client that reads slowly costs no more memory the longer it takes, and gets the newest state. What it sends is
read when it is about to be sent.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.domain.task import Json
from app.errors import ErrorKind, Refusal, StoreUnavailable
from app.methods.call import Call, unheard
from app.methods.limits import Limits
from app.methods.reading import Current, Reader
from app.storage.store import Store
from app.storage.watches import Changes, Watches
from app.tools.catalogue import Catalogue
from app.wire.envelope import RequestId
from app.wire.revisions import missing_tasks_capability
from app.wire.subscriptions import (
    Filter,
    ListenParams,
    acknowledgement,
    listen_result,
    task_notification,
    tools_notification,
)
from app.wire.tasks import read_params, read_task_id, task_view

STREAM_SECONDS = 3600.0
"""The age at which a stream is ended; its client opens another."""

TOGETHER = 50
"""How many tasks a stream reads at once, and so the most that it holds."""


@dataclass(slots=True)
class _Stream:
    """One that is open.

    Attributes:
        versions: what the client has seen of each task that has not ended; 0 for nothing.
        edition: of the list of tools, as the client knows it; None where it does not want to know.
        ends_at: on the loop's clock.
    """

    call: Call
    subscription: RequestId
    changes: Changes
    versions: dict[UUID, int]
    edition: int | None
    ends_at: float


class Subscriptions:
    """The streams of a process.

    Args:
        store: where the tasks are.
        watches: tells when one of them has changed.
        catalogue: the tools that are offered.
        limits: what one principal may have at the same time.
        seconds: the age at which a stream is ended.
    """

    def __init__(
        self,
        store: Store,
        watches: Watches,
        catalogue: Catalogue,
        limits: Limits,
        *,
        seconds: float = STREAM_SECONDS,
    ) -> None:
        self._store, self._watches, self._catalogue, self._limits = store, watches, catalogue, limits
        self._reader = Reader(store)
        self._seconds = seconds
        self._open: set[Changes] = set()
        self._stopping = False

    async def listen(self, call: Call) -> Json:
        """Send what the client asks to be told of, until the stream is old or the server stops.

        Raises:
            Refusal: MISSING_CAPABILITY, INVALID_PARAMS, NOT_ACCEPTABLE from a client that takes no stream, LIMIT, or
                UNAVAILABLE while the server stops.
        """
        wanted, subscription = _wanted(call), call.message.id
        if subscription is None:
            raise AssertionError("a request without an id")
        if call.notify is unheard:
            raise Refusal(ErrorKind.NOT_ACCEPTABLE, "A subscription is a stream: the Accept header must take one")
        if self._stopping:
            raise Refusal(ErrorKind.UNAVAILABLE, "The server is stopping. Send the request again.")
        with self._limits.stream(call.owner, len(wanted.task_ids)):
            ends_at = asyncio.get_running_loop().time() + self._seconds
            edition = await self._catalogue.edition() if wanted.tools_list_changed else None
            task_ids = await self._readable(call.owner, wanted.task_ids)
            with self._watches.on_all(task_ids) as changes:
                versions = dict.fromkeys(task_ids, 0)
                await call.notify(acknowledgement(subscription, _honoured(wanted, task_ids)))
                await self._serve(_Stream(call, subscription, changes, versions, edition, ends_at))
        return listen_result(subscription)

    def stop(self) -> None:
        """End all streams, and open no other."""
        self._stopping = True
        for changes in self._open:
            changes.wake()

    # -- within -----------------------------------------------------------------------------------------------------

    async def _readable(self, owner: str, texts: list[str]) -> list[UUID]:
        """The tasks that these ids stand for, in the order of asking; all others are left out alike."""
        ids = [task_id for task_id in dict.fromkeys(map(read_task_id, texts)) if task_id is not None]
        readable = await self._store.readable(owner, ids) if ids else set()
        return [task_id for task_id in ids if task_id in readable]

    async def _serve(self, stream: _Stream) -> None:
        self._open.add(stream.changes)
        try:
            while (left := self._left(stream)) > 0:
                await self._tell_of_tasks(stream)
                await self._tell_of_tools(stream)
                await stream.changes.wait(left)
        finally:
            self._open.discard(stream.changes)

    def _left(self, stream: _Stream) -> float:
        return 0 if self._stopping else stream.ends_at - asyncio.get_running_loop().time()

    async def _tell_of_tasks(self, stream: _Stream) -> None:
        """Send all that has changed. While the database is away nothing is: the next poll finds it."""
        while self._left(stream) > 0 and (task_ids := stream.changes.take(TOGETHER)):
            known = {task_id: stream.versions[task_id] for task_id in task_ids}
            try:
                for current in await self._reader.newer(stream.call.owner, known):
                    await self._tell_of(stream, current)
            except StoreUnavailable:
                return

    async def _tell_of(self, stream: _Stream, current: Current) -> None:
        shown = current if current.view is not None else await self._alone(stream.call.owner, current.task_id)
        if shown is None or shown.view is None:
            return
        await stream.call.notify(task_notification(stream.subscription, shown.view))
        if shown.last:
            del stream.versions[shown.task_id]
            stream.changes.forget(shown.task_id)
        else:
            stream.versions[shown.task_id] = shown.version

    async def _alone(self, owner: str, task_id: UUID) -> Current | None:
        state = await self._store.get(owner, task_id)
        if state is None or state.task.expired:
            return None
        return Current(task_id, state.task.version, task_view(state), state.task.status.terminal)

    async def _tell_of_tools(self, stream: _Stream) -> None:
        if stream.edition is None:
            return
        try:
            edition = await self._catalogue.edition()
        except StoreUnavailable:
            return
        if edition != stream.edition:
            stream.edition = edition
            await stream.call.notify(tools_notification(stream.subscription))


def _wanted(call: Call) -> Filter:
    """What a client wants to be told of. Who does not declare the extension and names tasks learns nothing else."""
    asked = call.params.get("notifications")
    if isinstance(asked, dict) and "taskIds" in asked and not call.context.declares_tasks:
        raise missing_tasks_capability()
    return read_params(ListenParams, call.params).notifications


def _honoured(wanted: Filter, task_ids: list[UUID]) -> dict[str, Any]:
    """The part of the filter that is served."""
    honoured: dict[str, Any] = {}
    if wanted.tools_list_changed:
        honoured["toolsListChanged"] = True
    if "task_ids" in wanted.model_fields_set:
        honoured["taskIds"] = [str(task_id) for task_id in task_ids]
    return honoured
