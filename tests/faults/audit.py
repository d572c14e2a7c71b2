"""What must hold when a fault run is over. Each check yields what it finds wrong, one sentence each."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg

from tests.faults.attempts import one_at_a_time
from tests.faults.ends import end_of, ended_well, keys_of, same_end
from tests.faults.evidence import Evidence, Note
from tests.faults.ledger import Ledger
from tests.faults.processes import Fleet

ENDED = ("completed", "failed", "cancelled")
NOTICE_SECONDS = 25.0
"""Within which an API that lives has cancelled a call whose client is gone, through pauses and outages."""


def audit(evidence: Evidence, ledger: Ledger, fleet: Fleet) -> list[str]:
    """Everything that is wrong."""
    checks: list[Callable[[Evidence, Ledger], Iterator[str]]] = [
        acknowledged_tasks_ended_as_they_must,
        hanging_up_cancelled,
        nothing_is_left_open,
        one_call_made_one_task,
        transactions_had_their_effect_once,
        steps_ran_again_only_when_lost,
        questions_were_asked_and_answered_once,
        late_writes_were_refused,
        every_attempt_ended_once,
        nothing_is_orphaned,
    ]
    _find_unnamed(evidence, ledger)
    found = [sentence for check in checks for sentence in check(evidence, ledger)]
    return [*ledger.findings, *found, *one_at_a_time(evidence, fleet), *_logged(evidence)]


def acknowledged_tasks_ended_as_they_must(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """Each one is there, in the state that it must have, with the right result or error; and a client saw that."""
    for known in ledger.tasks:
        row = evidence.tasks.get(known.task_id)
        if row is None:
            yield f"{known} was acknowledged and is gone"
        elif row["status"] not in ENDED:
            yield f"{known} is left {row['status']} (epoch {row['epoch']}, worker {row['worker_id']})"
        else:
            if not ended_well(known, row, evidence):
                told = f"{known.arguments}, cancelled: {known.cancelled}, saw {known.end}"
                yield f"{known} ended wrongly: {end_of(row)}; {told}"
            if known.end is None:
                yield f"{known}: no client saw it end, though it is {row['status']}"
            elif not same_end(known.end, row):
                yield f"{known} changed after its end: a client saw {known.end}, there is {end_of(row)}"


def hanging_up_cancelled(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """A call whose client closed the connection is cancelled, if its API lived on to notice."""
    by_ref = {_arguments(row)["ref"]: row for row in evidence.tasks.values()}
    for call in ledger.hung_up:
        row = by_ref.get(call.ref)
        if (
            row is not None
            and row["status"] != "cancelled"
            and not call.api.was_down(call.begin, call.end + NOTICE_SECONDS)
        ):
            yield f"{call.ref} was given up by its client on {call.api.name} at {call.end:.2f}, and is {end_of(row)}"


def nothing_is_left_open(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """Tasks that no client knows of, since the call was lost, end too, unless they need a client for that."""
    acknowledged = {known.task_id for known in ledger.tasks}
    for task_id, row in evidence.tasks.items():
        if task_id not in acknowledged and row["status"] not in ENDED and not _needs_a_client(row):
            yield f"{task_id} ({row['tool']}), unacknowledged, is left {row['status']}"


def one_call_made_one_task(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """A call makes one task if it is answered, one at most if it is not; with a key, one however often it is made."""
    made = Counter(_arguments(row)["ref"] for row in evidence.tasks.values())
    told = Counter(known.ref for known in ledger.tasks)
    for ref, count in made.items():
        most = 1 if ref in ledger.keyed else told[ref] + ledger.unanswered[ref]
        if not told[ref] <= count <= most:
            yield f"call {ref} made {count} tasks; {told[ref]} acknowledged, {ledger.unanswered[ref]} calls unanswered"


def transactions_had_their_effect_once(evidence: Evidence, _: Ledger) -> Iterator[str]:
    """The rows that a transaction wrote are there if and only if it is recorded, once, and from the same run."""
    for key, rows in evidence.written.items():
        memo = evidence.steps.get(key)
        if len(rows) != 1 or memo is None:
            yield f"transaction {key} has {len(rows)} effects and is {'' if memo else 'not '}recorded"
        elif (rows[0]["run"], rows[0]["epoch"]) != (json.loads(memo["value"]), memo["epoch"]):
            yield f"transaction {key} is recorded with what another run of it returned"
    for key in evidence.steps:
        if key[1].startswith(("written", "last", "before")) and key not in evidence.written:
            yield f"transaction {key} is recorded without its effect"


def steps_ran_again_only_when_lost(evidence: Evidence, _: Ledger) -> Iterator[str]:
    """A plain step runs once an attempt, never after it was recorded, and again only if that attempt was cut short."""
    effects: defaultdict[tuple[str, str], list[Note]] = defaultdict(list)
    for note in evidence.notes:
        if note.event == "effect":
            effects[note.task, note.step].append(note)
    for key, runs in effects.items():
        memo = evidence.steps.get(key)
        if len({run.epoch for run in runs}) != len(runs):
            yield f"step {key} ran twice in one attempt"
        if memo is not None and json.loads(memo["value"]) not in [r.run for r in runs if r.epoch == memo["epoch"]]:
            yield f"step {key} is recorded with a value that no run of it returned"
        for run in runs:
            if memo is not None and run.epoch > memo["epoch"]:
                yield f"step {key} ran in attempt {run.epoch} though it was recorded in {memo['epoch']}"
            elif (memo is None or run.epoch < memo["epoch"]) and (run.task, run.epoch) not in evidence.attempts:
                yield f"step {key} ran in attempt {run.epoch}, was not recorded, and that attempt was not cut short"


def questions_were_asked_and_answered_once(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """Only what the tool asks is asked; a response is one that was sent; an acknowledged one is lost by an end only."""
    for known in ledger.tasks:
        row = evidence.tasks.get(known.task_id)
        asked = {question["key"]: question["response"] for question in evidence.questions.get(known.task_id, [])}
        if odd := asked.keys() - set(keys_of(known)):
            yield f"{known} asked {odd}"
        for key, response in asked.items():
            value = None if response is None else json.loads(response)["content"]["value"]
            if value is not None and value not in known.answers.get(key, []):
                yield f"{known}: the response to {key} is {value}, which no client sent"
            if value is None and key in known.answers and row is not None and row["status"] == "completed":
                yield f"{known}: the acknowledged answer to {key} is lost"


def late_writes_were_refused(evidence: Evidence, _: Ledger) -> Iterator[str]:
    """After an attempt was taken from its worker, nothing that it writes is accepted."""
    writes = [("step", step["task_id"], step) for step in evidence.steps.values()]
    writes += [("transaction", key[0], row) for key, rows in evidence.written.items() for row in rows]
    writes += [("question", task_id, row) for task_id, rows in evidence.questions.items() for row in rows]
    for kind, task_id, write in writes:
        attempt = evidence.attempts.get((task_id, write["epoch"]))
        if attempt is not None and write["at"] > attempt["at"]:
            ended = f"attempt {write['epoch']}, which had ended: {attempt['ended']}"
            yield f"a {kind} of {task_id} was accepted from {ended}"


def every_attempt_ended_once(evidence: Evidence, _: Ledger) -> Iterator[str]:
    """Each attempt came to exactly one of: an outcome, questions, or a recorded other end."""
    for task_id, row in evidence.tasks.items():
        asked = {question["epoch"] for question in evidence.questions.get(task_id, [])}
        last = row["epoch"] - (row["worker_id"] is not None)
        for epoch in range(1, last + 1):
            attempt = evidence.attempts.get((task_id, epoch))
            cut_short = attempt is not None and attempt["ended"] != "error"
            ends = [epoch == row["outcome_epoch"], epoch in asked, cut_short]
            if ends.count(True) != 1:
                yield f"attempt {epoch} of {task_id} ended in outcome, questions, other end: {ends}"


def nothing_is_orphaned(evidence: Evidence, _: Ledger) -> Iterator[str]:
    """No row is left of a task that is not there; and no tool ran for one."""
    for table, count in evidence.orphans.items():
        if count:
            yield f"{count} rows of {table} belong to no task"
    for task_id in {note.task for note in evidence.notes} - evidence.tasks.keys():
        yield f"a tool ran for {task_id}, which is not there"


def _find_unnamed(evidence: Evidence, ledger: Ledger) -> None:
    """Name the tasks of calls that were answered on their requests: their clients never learned the ids."""
    by_ref = {_arguments(row)["ref"]: task_id for task_id, row in evidence.tasks.items() if row["reply"] == "request"}
    for known in ledger.tasks:
        if not known.task_id:
            known.task_id = by_ref.get(known.ref, "")


def _logged(evidence: Evidence) -> Iterator[str]:
    yield from (f"log: {oddity}" for oddity in evidence.oddities)


def _needs_a_client(row: asyncpg.Record) -> bool:
    return bool(row["tool"] == "endless" or row["status"] == "input_required")


def _arguments(row: asyncpg.Record) -> dict[str, Any]:
    arguments: dict[str, Any] = json.loads(row["params"])["arguments"]
    return arguments
