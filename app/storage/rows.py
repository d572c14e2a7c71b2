"""Rows, turned into the values of the domain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

import asyncpg

from app.domain.fixed import fixed
from app.domain.task import Claim, Json, NewTask, Policy, Question, Reply, Status, Task, TaskState

Record = asyncpg.Record

_STATUSES = {status.value: status for status in Status}
_REPLIES = {reply.value: reply for reply in Reply}


@fixed
class CatalogueRow:
    """A tool as the catalogue holds it: what clients see, and the policy for its tasks, both as JSON text."""

    name: str
    definition: Json
    options: Json
    digest: str


@fixed
class Holding:
    """An attempt that the database thinks a worker is running."""

    task_id: UUID
    epoch: int
    cancel_requested: bool


@fixed
class Newer:
    """A task that was read together with others.

    Attributes:
        omitted: its outcome is too large for that, and is not here.
    """

    state: TaskState
    omitted: bool


def task(row: Record) -> Task:
    """Build a `Task` from a row that holds the columns of `statements.TASK`."""
    return Task(
        task_id=row["task_id"],
        owner=row["owner"],
        tool=row["tool"],
        status=_STATUSES[row["status"]],
        status_message=row["status_message"],
        reply=_REPLIES[row["reply"]],
        epoch=row["epoch"],
        version=row["version"],
        ttl_ms=row["ttl_ms"],
        poll_interval_ms=row["poll_interval_ms"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        cancel_requested=row["cancel_requested"],
        expired=row["expired"],
        progress=row["progress"],
        progress_total=row["progress_total"],
    )


def state(row: Record) -> TaskState:
    """Build a `TaskState` from a row of `callers.GET` or `callers.NEWER`."""
    questions = zip(row["keys"] or (), row["requests"] or (), strict=True)
    return TaskState(
        task=task(row),
        questions=tuple(Question(key, Json(request)) for key, request in questions),
        result=row["result"],
        error=row["error"],
    )


def newer(row: Record) -> Newer:
    """Build a `Newer` from a row of `callers.GET` or `callers.NEWER`."""
    return Newer(state(row), row["omitted"])


def claim(row: Record, worker_id: UUID, history: Iterable[Record]) -> Claim:
    """Build a `Claim` from a row of `statements.CLAIM` and the rows of `statements.HISTORY` for its task."""
    steps: dict[str, Json] = {}
    answers: dict[str, Json] = {}
    questions: dict[str, Json] = {}
    for item in history:
        if item["kind"] == "step":
            steps[item["key"]] = item["value"]
            continue
        questions[item["key"]] = item["request"]
        if item["value"] is not None:
            answers[item["key"]] = item["value"]
    return Claim(
        task=task(row),
        worker_id=worker_id,
        params=row["params"],
        capabilities=row["capabilities"],
        revision=row["revision"],
        trace_context=row["trace_context"],
        remaining_ms=row["remaining_ms"],
        steps=steps,
        answers=answers,
        questions=questions,
        failures=row["failures"],
        waited_ms=row["waited_ms"],
    )


def holding(row: Record) -> Holding:
    """Build a `Holding` from a row of `fleet.HOLDINGS`."""
    return Holding(row["task_id"], row["epoch"], row["cancel_requested"])


def catalogue(row: Record) -> CatalogueRow:
    """Build a `CatalogueRow` from a row of `statements.READ_TOOLS`."""
    return CatalogueRow(row["name"], row["definition"], row["options"], row["digest"])


def created(row: Record, new: NewTask) -> Task:
    """Build the `Task` that a row of `callers.CREATE` made of this one."""
    return Task(
        task_id=new.task_id,
        owner=new.owner,
        tool=new.tool,
        status=Status.WORKING,
        status_message=None,
        reply=new.reply,
        epoch=0,
        version=1,
        ttl_ms=new.policy.ttl_ms,
        poll_interval_ms=row["poll_interval_ms"],
        created_at=row["created_at"],
        updated_at=row["created_at"],
        cancel_requested=False,
        expired=False,
        progress=None,
        progress_total=None,
    )


def columns(new: Sequence[NewTask]) -> tuple[Sequence[object] | None, ...]:
    """The arguments of `callers.CREATE` for these tasks."""
    kinds: dict[tuple[Policy, *tuple[str | None, ...]], int] = {}
    of_kind = [kinds.setdefault(_kind(it), len(kinds)) for it in new]
    traces = [it.trace_context for it in new]
    keys = [it.idempotency for it in new]
    return (
        [it.task_id for it in new],
        [it.params for it in new],
        traces if any(traces) else None,
        [key and key.key_hash for key in keys] if any(keys) else None,
        [key and key.fingerprint for key in keys] if any(keys) else None,
        of_kind,
        [text for _, *texts in kinds for text in texts],
        [number for policy, *_ in kinds for number in _numbers(policy)],
    )


def _kind(new: NewTask) -> tuple[Policy, *tuple[str | None, ...]]:
    """What a task has in common with others of its caller and its tool."""
    return new.policy, new.owner, new.tool, new.reply.value, new.method, new.capabilities, new.revision


def _numbers(policy: Policy) -> tuple[int | None, ...]:
    return (
        policy.priority,
        policy.poll_interval_ms,
        policy.ttl_ms,
        policy.retention_ms,
        policy.timeout_ms,
        policy.answer_within_ms,
        policy.losses,
    )
