"""What `perdure tasks show` prints of a task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from app.cli.output import ago, show
from app.storage.inspection import Payload, TaskDetails


def show_details(details: TaskDetails) -> None:
    """Print everything about a task, for people."""
    for lines in (_head(details), _timeline(details), _request(details), _questions(details)):
        _section(lines)
    for lines in (_steps(details), _attempts(details), _outcome(details)):
        _section(lines)


def _section(lines: Iterator[str]) -> None:
    text = "\n".join(lines)
    if text:
        show(f"{text}\n")


def _head(details: TaskDetails) -> Iterator[str]:
    row = details.row
    yield f"Task {row.task_id}"
    yield f"  tool        {row.tool}"
    yield f"  owner       {row.owner}"
    yield f"  status      {row.status} ({row.activity}){f': {row.status_message}' if row.status_message else ''}"
    yield f"  attempts    {row.attempts}, of them {row.failures} failed and {row.losses} lost with their workers"
    yield f"  age         {ago(row.age)}, priority {row.priority}, answered by {details.reply}"
    if row.progress is not None:
        yield f"  progress    {row.progress:g}" + ("" if row.progress_total is None else f" of {row.progress_total:g}")
    if row.worker_id is not None:
        yield f"  worker      {row.worker_id} on {row.worker_host or 'a host that is gone'}"
    for name, at in (("waits until", details.ready_at), ("deadline", row.deadline_at), ("expires", row.expires_at)):
        if at is not None:
            yield f"  {name:<11} {_time(at)}"
    if details.key_hash is not None:
        yield f"  idempotency key, its SHA-256  {details.key_hash.hex()}"


def _timeline(details: TaskDetails) -> Iterator[str]:
    yield "What happened"
    for event in details.timeline:
        yield f"  {_time(event.at)}  {event.what}"


def _request(details: TaskDetails) -> Iterator[str]:
    request = details.request
    yield f"Request: {request.method}, revision {request.revision or 'not declared'}"
    yield _payload("params", request.params)
    yield _payload("capabilities", request.capabilities)
    if request.trace_context is not None:
        yield f"  trace context: {request.trace_context}"
    yield (
        f"  policy, in ms: timeout {request.timeout_ms}, ttl {request.ttl_ms}, retention {request.retention_ms}, "
        f"answer within {request.answer_within_ms}; it survives {request.losses} lost workers"
    )


def _questions(details: TaskDetails) -> Iterator[str]:
    for asked in details.questions:
        yield f"Question {asked.key}, asked by attempt {asked.attempt} at {_time(asked.asked_at)}"
        yield _payload("request", asked.request)
        if asked.response is not None and asked.answered_at is not None:
            yield _payload(f"response of {_time(asked.answered_at)}", asked.response)
        else:
            yield "  not answered"


def _steps(details: TaskDetails) -> Iterator[str]:
    for step in details.steps:
        yield f"Step {step.name}, run by attempt {step.attempt} at {_time(step.stepped_at)}"
        yield _payload("value", step.value)


def _attempts(details: TaskDetails) -> Iterator[str]:
    for attempt in details.attempts:
        yield f"Attempt {attempt.attempt}: {attempt.ended} at {_time(attempt.ended_at)}, worker {attempt.worker_id}"
        if attempt.error is not None:
            yield _indented(attempt.error)


def _outcome(details: TaskDetails) -> Iterator[str]:
    if details.outcome is not None:
        by = "" if details.outcome.attempt is None else f", of attempt {details.outcome.attempt}"
        yield f"Outcome{by}"
        yield _payload(details.outcome.kind, details.outcome.value)


def _payload(name: str, payload: Payload) -> str:
    if not payload.whole:
        text = f"{payload.text}\n… of {payload.characters} characters: --full shows all"
    else:
        text = json.dumps(json.loads(payload.text), indent=2, ensure_ascii=False)
    return f"  {name}:\n{_indented(text)}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds")
