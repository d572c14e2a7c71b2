"""What a task is: the values that pass between the store, the wire and the worker."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import NewType
from uuid import UUID

from app.domain.fixed import fixed

Json = NewType("Json", str)
"""JSON text that is stored and sent as it is, never parsed on the way."""

EVER = datetime(1970, 1, 1, tzinfo=UTC)
"""Before anything was made."""

REQUEST_STATE_MS = 3_600_000
"""How long a question that is asked on the request waits for the retry, and so how long its requestState is good."""


class Status(StrEnum):
    """The five states of a task (Tasks, "Task Status")."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """True for the states that a task never leaves."""
        return self in TERMINAL


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


class Reply(StrEnum):
    """How the caller is answered: with a handle (`task`), or by the outcome on the same request (`request`)."""

    TASK = "task"
    REQUEST = "request"


@fixed
class Policy:
    """What a tool decides about its tasks, copied to each task when it is created. Durations are milliseconds.

    Attributes:
        priority: 0 goes first, 3 last.
        retention_ms: how long an ended task can still be read.
        answer_within_ms: how long a question may wait before the task fails; on a request at most `REQUEST_STATE_MS`.
        losses: how many workers a task may lose before it fails.
        timeout_ms: how long one attempt may run; None for as long as it takes.
        ttl_ms: lifetime from creation, also of a live task; None for no limit.
        poll_interval_ms: what clients are told; None lets it grow with the task's age.
    """

    priority: int = 1
    retention_ms: int = 86_400_000
    answer_within_ms: int = 604_800_000
    losses: int = 3
    timeout_ms: int | None = None
    ttl_ms: int | None = None
    poll_interval_ms: int | None = None


@fixed
class Idempotency:
    """What makes a call that is repeated the same call.

    Attributes:
        key_hash: SHA-256 of the key that the caller gave; it counts for one owner and one tool.
        fingerprint: SHA-256 of what is asked for: under the same key it may be nothing else.
    """

    key_hash: bytes
    fingerprint: bytes


@fixed
class NewTask:
    """A task that is about to be created from a request.

    Attributes:
        task_id: chosen before the first try and kept over retries, so that a lost acknowledgement cannot create twice.
        params: the request's params as JSON text.
        capabilities: the client's capabilities as JSON text.
        revision: the protocol revision that the request declared; None for an undeclared one.
        trace_context: W3C trace context of the request as JSON text; None for none.
        idempotency: under which the task is created once; None for a call that is never the same as another.
    """

    task_id: UUID
    owner: str
    tool: str
    params: Json
    capabilities: Json
    policy: Policy
    method: str = "tools/call"
    reply: Reply = Reply.TASK
    revision: str | None = None
    trace_context: Json | None = None
    idempotency: Idempotency | None = None


@fixed
class Task:
    """The row of a task, as it stood after the statement that returned it.

    Attributes:
        expired: decided by the database's clock; after it the task is only waiting to be purged.
        progress: how much the latest attempt says is done, in the tool's unit; None where it has not said.
        progress_total: how much there is to do, where that is known.
    """

    task_id: UUID
    owner: str
    tool: str
    status: Status
    status_message: str | None
    reply: Reply
    epoch: int
    version: int
    ttl_ms: int | None
    poll_interval_ms: int
    created_at: datetime
    updated_at: datetime
    cancel_requested: bool
    expired: bool
    progress: float | None
    progress_total: float | None


@fixed
class Question:
    """A request to the client that a task asks (Tasks, "Task Update Requests").

    Attributes:
        key: unique over the task's life.
        request: the whole server-to-client request, `{"method": …, "params": …}`, as JSON text.
    """

    key: str
    request: Json


@fixed
class TaskState:
    """All that `tasks/get` shows: the row, what is asked, and the outcome. At most one of the last three is set."""

    task: Task
    questions: tuple[Question, ...] = ()
    result: Json | None = None
    error: Json | None = None


@fixed
class Claim:
    """A task that a worker has claimed: what an attempt needs to start.

    Attributes:
        remaining_ms: time to the task's deadline by the database's clock; None for none.
        steps: memoised values by step name, of earlier attempts.
        answers: responses by question key, of earlier attempts.
        questions: the requests behind all keys asked so far, to notice a key that is used again for another.
        failures: how many attempts have failed and were tried again.
        waited_ms: for how long the task could have been claimed before it was.
    """

    task: Task
    worker_id: UUID
    params: Json
    capabilities: Json
    revision: str | None
    trace_context: Json | None
    remaining_ms: int | None
    steps: dict[str, Json]
    answers: dict[str, Json]
    questions: dict[str, Json]
    failures: int = 0
    waited_ms: float = 0.0

    @property
    def task_id(self) -> UUID:
        """The claimed task's id."""
        return self.task.task_id

    @property
    def epoch(self) -> int:
        """The number of this attempt; with the task's id it names the fence."""
        return self.task.epoch


class Claims(list[Claim]):
    """What a worker got that asked for work.

    Attributes:
        more: there was more, for which it had no room, or which others held on to or took meanwhile.
        oldest: since when the first of all that it saw had waited; the database's time where there was none.
    """

    more = False
    oldest = EVER


def new_task_id() -> UUID:
    """A UUIDv7: 48 bits of time, so that keys are inserted in order, and 74 bits from the operating system.

    The random part makes ids unguessable (Tasks, "Security Considerations").
    """
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    return UUID(int=value & ~(0x3 << 62) | 0x2 << 62)
