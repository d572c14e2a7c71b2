"""What `perdure tasks show` prints of a task."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from app.cli.output import ago, one_line, show
from app.storage.inspection import Payload, TaskDetails


def show_details(details: TaskDetails) -> None:
    """Print everything about a task, for people."""
    for lines in (_head(details), _timeline(details), _request(details), _questions(details)):
        _section(lines)
    for lines in (_steps(details), _attempts(details), _outcome(details)):
        _section(lines)


def _section(lines: Iterator[str]) -> None:
    text = "\n".join(one_line(line) for line in lines)
    if text:
        show(f"{text}\n")


def _head(details: TaskDetails) -> Iterator[str]:
    row = details.row
    yield f"Task {row.task_id}"
    yield f"  tool        {row.tool}"
    yield f"  owner       {row.owner}"
    yield f"  status      {row.status} ({row.activity}){f': {row.status_message}' if row.status_message else ''}"
    yield f"  attempts    {row.attempts}{_ends(details)}"
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


def _ends(details: TaskDetails) -> str:
    """How many of the attempts ended in which way, as far as they are listed below."""
    ends = Counter(attempt.ended for attempt in details.attempts)
    return f" ({', '.join(f'{count} {ended}' for ended, count in ends.items())})" if ends else ""


def _timeline(details: TaskDetails) -> Iterator[str]:
    yield "What happened"
    for event in details.timeline:
        yield f"  {_time(event.at)}  {event.what}"


def _request(details: TaskDetails) -> Iterator[str]:
    request = details.request
    yield f"Request: {request.method}, revision {request.revision or 'not declared'}"
    yield from _payload("params", request.params)
    yield from _payload("capabilities", request.capabilities)
    if request.trace_context is not None:
        yield f"  trace context: {request.trace_context}"
    yield (
        f"  policy: timeout {_span(request.timeout_ms)}, ttl {_span(request.ttl_ms)}, "
        f"retention {_span(request.retention_ms)}, answer within {_span(request.answer_within_ms)}, "
        f"survives {request.losses} lost workers"
    )


def _questions(details: TaskDetails) -> Iterator[str]:
    for asked in details.questions:
        yield f"Question {asked.key}, asked by attempt {asked.attempt} at {_time(asked.asked_at)}"
        yield from _payload("request", asked.request)
        if asked.response is not None and asked.answered_at is not None:
            yield from _payload(f"response of {_time(asked.answered_at)}", asked.response)
        else:
            yield "  not answered"


def _steps(details: TaskDetails) -> Iterator[str]:
    for step in details.steps:
        yield f"Step {step.name}, run by attempt {step.attempt} at {_time(step.stepped_at)}"
        yield from _payload("value", step.value)


def _attempts(details: TaskDetails) -> Iterator[str]:
    for attempt in details.attempts:
        yield f"Attempt {attempt.attempt}: {attempt.ended} at {_time(attempt.ended_at)}, worker {attempt.worker_id}"
        if attempt.error is not None:
            yield from _indented(attempt.error)


def _outcome(details: TaskDetails) -> Iterator[str]:
    if details.outcome is not None:
        by = "" if details.outcome.attempt is None else f", of attempt {details.outcome.attempt}"
        yield f"Outcome{by}"
        yield from _payload(details.outcome.kind, details.outcome.value)


def _payload(name: str, payload: Payload) -> Iterator[str]:
    yield f"  {name}:"
    if not payload.whole:
        yield from _indented(f"{payload.text}\n… of {payload.characters} characters: --full shows all")
    else:
        yield from _indented(json.dumps(json.loads(payload.text), indent=2, ensure_ascii=False))


def _indented(text: str) -> Iterator[str]:
    return (f"    {line.expandtabs()}" for line in text.split("\n"))


def _span(milliseconds: int | None) -> str:
    return "none" if milliseconds is None else ago(timedelta(milliseconds=milliseconds))


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds")
