"""What other processes are told after a commit: that tools have work, and that tasks have changed.

A notification is a hint that can be lost: everything works without, only later. It never shares a transaction with a
write, since NOTIFY takes a lock on the whole database at commit, and its failure never fails a write.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from uuid import UUID

import structlog

from app.domain.pace import rest
from app.domain.task import Status, Task
from app.storage.database import FAULTS, Database

log = structlog.get_logger(__name__)

READY = "perdure_ready"
"""Channel: names of tools that have work, separated by spaces."""

CHANGED = "perdure_changed"
"""Channel: ids of tasks that have changed, separated by spaces."""

REST_SECONDS = 0.005
REST_FACTOR = 2
"""After each round it rests, so many times as long as the round took where that is longer: NOTIFY takes a lock on the
whole database, each one wakes every process that listens, and a busy process has better things to do."""

LONGEST_SECONDS = 0.1
"""The longest rest: a round that had to wait for the database is no reason to be late."""

PAYLOAD_BYTES = 7900
_NOTIFY = "SELECT pg_notify(n.channel, n.payload) FROM unnest($1::text[], $2::text[]) AS n (channel, payload)"


class Notifier:
    """Collects what changed and sends it from one task: at once when idle, in the next round when not."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._ready: set[str] = set()
        self._changed: set[UUID] = set()
        self._work = asyncio.Event()

    def changed(self, task: Task, *, ready: bool = False) -> None:
        """A commit changed this task; with `ready`, and if it still works, a worker is wanted for it too."""
        self._changed.add(task.task_id)
        if ready and task.status is Status.WORKING:
            self._ready.add(task.tool)
        self._work.set()

    def created(self, task: Task) -> None:
        """A commit made this task: a worker is wanted for it, and nobody can know it yet."""
        self._ready.add(task.tool)
        self._work.set()

    def these_changed(self, task_ids: Iterable[UUID]) -> None:
        """A commit changed these tasks, or deleted them; no worker is wanted for any."""
        self._changed.update(task_ids)
        self._work.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._work.wait()
            began = time.monotonic()
            await self.send()
            await asyncio.sleep(
                rest(REST_SECONDS, time.monotonic() - began, factor=REST_FACTOR, longest=LONGEST_SECONDS)
            )

    async def send(self) -> None:
        """Send what there is now, for a process that makes changes and leaves; `run` does so again and again."""
        self._work.clear()
        ready, self._ready = self._ready, set()
        changed, self._changed = self._changed, set()
        if not changed and not ready:
            return
        try:
            await self._send(ready, changed)
        except FAULTS as fault:  # among others: the server's queue is full
            log.warning("notification lost; others see the change when they poll", fault=type(fault).__name__)

    async def _send(self, ready: set[str], changed: set[UUID]) -> None:
        payloads = [(READY, text) for text in chunks(sorted(ready))]
        payloads += [(CHANGED, text) for text in chunks(str(task_id) for task_id in changed)]
        await self._db.once(_NOTIFY, [channel for channel, _ in payloads], [text for _, text in payloads])


def chunks(words: Iterable[str]) -> list[str]:
    """Join words by spaces into texts that fit a payload. A word that fits none is passed over: a poll finds it."""
    texts: list[str] = []
    for word in words:
        if len(word.encode()) > PAYLOAD_BYTES:
            continue
        if texts and len(texts[-1].encode()) + len(word.encode()) < PAYLOAD_BYTES:
            texts[-1] += " " + word
        else:
            texts.append(word)
    return texts
