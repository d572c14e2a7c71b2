"""The audit finds what is planted: one task, whose first attempt was lost, and one thing wrong at a time."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.audit import audit
from tests.faults.evidence import Evidence, Note
from tests.faults.ledger import Known, Ledger
from tests.faults.processes import Fleet

TASK, OTHER = "task-1", "task-2"
RESULT = {
    "content": [{"type": "text", "text": "{}"}],
    "isError": False,
    "structuredContent": {"ref": "a", "values": ["run-2", "run-3", "yes"]},
}
ARGUMENTS = {"ref": "a", "together": 1, "rounds": 1}
ROW = {
    "task_id": TASK, "tool": "asks", "status": "completed", "reply": "task", "epoch": 3, "losses": 1, "loss_limit": 3,
    "worker_id": None, "params": json.dumps({"arguments": ARGUMENTS}), "result": json.dumps(RESULT), "error": None,
    "outcome_epoch": 3, "created_at": 0.0, "finished_at": 9.0, "cancel_requested_at": None,
}  # fmt: skip
EVIDENCE: dict[str, Any] = {
    "tasks": {TASK: ROW},
    "questions": {TASK: [{"key": "question-0-0", "epoch": 2, "response": '{"content":{"value":"yes"}}', "at": 6.0}]},
    "steps": {
        (TASK, "plain-0"): {"task_id": TASK, "epoch": 2, "value": '"run-2"', "at": 4.1},
        (TASK, "written-0"): {"task_id": TASK, "epoch": 2, "value": '"run-3"', "at": 4.3},
    },
    "attempts": {(TASK, 1): {"worker_id": "w", "ended": "lost", "error": None, "at": 3.0}},
    "workers": {},
    "written": {(TASK, "written-0"): [{"epoch": 2, "run": "run-3", "at": 4.2}]},
    "orphans": {"task_steps": 0},
    "notes": [
        Note("begin", 1.0, 11, TASK, 1),
        Note("effect", 1.5, 11, TASK, 1, "plain-0", "run-1"),
        Note("end", 2.0, 11, TASK, 1),
        Note("begin", 4.0, 12, TASK, 2),
        Note("effect", 4.1, 12, TASK, 2, "plain-0", "run-2"),
        Note("end", 6.0, 12, TASK, 2),
        Note("begin", 8.0, 12, TASK, 3),
        Note("end", 9.0, 12, TASK, 3),
    ],
}
SEEN = {"status": "completed", "result": RESULT}

Case = tuple[dict[str, Any], Ledger]
PLANTED: dict[str, tuple[str, Callable[[dict[str, Any], Ledger], object]]] = {
    "lost": ("is gone", lambda e, _: e["tasks"].clear()),
    "left open": ("is left working", lambda e, _: e["tasks"][TASK].update(status="working")),
    "wrong result": ("ended wrongly", lambda e, _: e["steps"][TASK, "plain-0"].update(value='"run-1"', epoch=1)),
    "cancelled by nobody": ("ended wrongly", lambda e, _: e["tasks"][TASK].update(status="cancelled", result=None)),
    "changed": ("changed after its end", lambda _, told: setattr(told.tasks[0], "end", SEEN | {"status": "failed"})),
    "never seen": ("no client saw it end", lambda _, told: setattr(told.tasks[0], "end", None)),
    "made twice": ("made 2 tasks", lambda e, _: e["tasks"].update({OTHER: ROW | {"task_id": OTHER}})),
    "effect twice": ("has 2 effects", lambda e, _: e["written"][TASK, "written-0"].append({"epoch": 1, "at": 2.0})),
    "effect missing": ("without its effect", lambda e, _: e["written"].clear()),
    "memo missing": ("not recorded", lambda e, _: e["steps"].pop((TASK, "written-0"))),
    "ran again": ("though it was recorded", lambda e, _: e["notes"].append(_effect(3, "run-9"))),
    "ran twice": ("twice in one attempt", lambda e, _: e["notes"].append(_effect(2, "run-9"))),
    "not cut short": ("was not cut short", lambda e, _: e["attempts"].clear()),
    "odd answer": ("no client sent", lambda _, told: told.tasks[0].answers.clear()),
    "lost answer": ("is lost", lambda e, _: e["questions"][TASK][0].update(response=None)),
    "odd question": (
        "asked",
        lambda e, _: e["questions"][TASK].append({"key": "x", "epoch": 2, "response": None, "at": 6}),
    ),
    "late step": ("was accepted from", lambda e, _: e["attempts"].update({(TASK, 2): {"ended": "lost", "at": 4.2}})),
    "two ends": ("ended in", lambda e, _: e["attempts"].update({(TASK, 3): {"ended": "lost", "at": 10.0}})),
    "orphan": ("belong to no task", lambda e, _: e["orphans"].update(task_steps=1)),
    "ran for none": ("is not there", lambda e, _: e["notes"].append(Note("effect", 1.0, 1, OTHER, 1))),
    "overlap": ("began 4.00 s before 1 ended", lambda e, _: e["notes"].append(Note("end", 8.0, 11, TASK, 1))),
    "begun twice": ("began 2 times", lambda e, _: e["notes"].append(Note("begin", 8.5, 12, TASK, 3))),
    "seen by a client": ("HTTP 500", lambda _, told: told.findings.append("HTTP 500")),
}


def _effect(epoch: int, run: str) -> Note:
    return Note("effect", 8.5, 12, TASK, epoch, "plain-0", run)


@pytest.fixture
def ledger() -> Ledger:
    known = Known(TASK, "asks", "a", ARGUMENTS, {"question-0-0": ["yes"]}, end=copy.deepcopy(SEEN))
    return Ledger(tasks=[known])


def test_finds_nothing_where_everything_held(ledger: Ledger) -> None:
    assert audit(Evidence(**copy.deepcopy(EVIDENCE)), ledger, Fleet([], [])) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_finds(planted: str, ledger: Ledger) -> None:
    words, plant = PLANTED[planted]
    evidence = copy.deepcopy(EVIDENCE)
    plant(evidence, ledger)
    found = audit(Evidence(**evidence), ledger, Fleet([], []))
    assert any(words in sentence for sentence in found), found
