"""How each task must have ended, and how it has."""

from __future__ import annotations

import json
from typing import Any

import asyncpg

from app.storage.store import LOST
from tests.faults.evidence import Evidence
from tests.faults.ledger import Known
from tests.faults.tools import BROKEN_PAPER, TOLD

INTERNAL = {"code": -32603, "message": "The tool failed with an internal error"}


def ended_well(known: Known, row: asyncpg.Record, evidence: Evidence) -> bool:
    """Whether the task has the status, and the result or error, that it must have."""
    if row["status"] == "cancelled":
        return known.cancelled
    if row["status"] == "failed" and row["losses"] > row["loss_limit"]:
        return bool(_json(row["error"]) == json.loads(LOST[0]))
    must = _must_end(known, evidence)
    return must is not None and must == _came_to(row)


def same_end(seen: dict[str, Any], row: asyncpg.Record) -> bool:
    told = seen["status"], _bare(seen.get("result")), seen.get("error")
    return bool(told == (row["status"], _bare(_json(row["result"])), _json(row["error"])))


def keys_of(known: Known, turn: int | None = None) -> list[str]:
    """The questions of a task, or those of one round."""
    turns = range(known.arguments.get("rounds", 0)) if turn is None else [turn]
    return [f"question-{turn}-{number}" for turn in turns for number in range(known.arguments["together"])]


def end_of(row: asyncpg.Record) -> str:
    """The end, for people."""
    return f"{row['status']}, {row['losses']} losses, {row['error'] or row['result']}"


def _must_end(known: Known, evidence: Evidence) -> tuple[str, Any] | None:
    """The status that a task must have if it was not cancelled, and the error, text or data; None: it never ends."""
    match known.tool, known.arguments.get("how"):
        case "endless", _:
            return None
        case "fails", "protocol":
            return "failed", dict(zip(("code", "message", "data"), BROKEN_PAPER, strict=True))
        case "fails", "broken":
            return "failed", INTERNAL
        case "fails", _:
            return "isError", TOLD
        case "quick", _:
            return "completed", known.ref
    return "completed", {"ref": known.ref, "values": _values(known, evidence)}


def _came_to(row: asyncpg.Record) -> tuple[str, Any]:
    if (error := _json(row["error"])) is not None:
        return row["status"], error
    result = _json(row["result"])
    status = "isError" if result["isError"] else row["status"]
    return status, result.get("structuredContent", result["content"][0]["text"])


def _values(known: Known, evidence: Evidence) -> list[str | None]:
    """What the tool must have returned: what its steps are recorded with, and what was answered."""
    given = known.arguments
    match known.tool:
        case "steps":
            names = [f"{kind}-{number}" for number in range(given["count"]) for kind in ("plain", "written")]
        case "blocking":
            names = [f"plain-{number}" for number in range(given["count"])]
        case "slow":
            names = ["first", "last"]
        case _:
            turns = [[f"plain-{turn}", f"written-{turn}", *keys_of(known, turn)] for turn in range(given["rounds"])]
            names = [name for turn in turns for name in turn]
    answers = {row["key"]: row["response"] for row in evidence.questions.get(known.task_id, [])}
    return [_value(name, known.task_id, answers, evidence) for name in names]


def _value(name: str, task_id: str, answers: dict[str, str | None], evidence: Evidence) -> str | None:
    if (answer := _json(answers.get(name))) is not None:
        return str(answer["content"]["value"])
    step = evidence.steps.get((task_id, name))
    return None if step is None else json.loads(step["value"])


def _bare(result: dict[str, Any] | None) -> dict[str, Any] | None:
    """A result without the name of the server that gave it."""
    return result and {name: value for name, value in result.items() if name != "_meta"}


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
