"""What clients were told, and what they saw: the run is held to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.faults.processes import Member


@dataclass
class Known:
    """A task that a client knows of.

    Attributes:
        task_id: empty for a call that was answered on its request, until the audit has found it by its ref.
        ref: what the client called it in its arguments.
        answers: by question, the values that the client has sent; one of them must be recorded.
        cancelled: a cancel was acknowledged.
        end: the terminal state as a client saw it first.
    """

    task_id: str
    tool: str
    ref: str
    arguments: dict[str, Any]
    answers: dict[str, list[str]] = field(default_factory=dict)
    cancelled: bool = False
    end: dict[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.ref} ({self.tool}, {self.task_id or 'no task known'})"


@dataclass(frozen=True)
class HungUp:
    """A call whose client closed the connection before it was answered."""

    ref: str
    api: Member
    begin: float
    end: float


@dataclass
class Ledger:
    """What all clients of a run know together.

    Attributes:
        tasks: those whose creation was acknowledged, and the calls that were answered on their requests.
        keyed: refs of calls with an idempotency key: repeated as often as it takes, they make one task.
        unanswered: by ref, how many calls of tools got no result: each may have made a task that nobody knows.
        hung_up: calls that their clients gave up.
        requests: how many were answered.
        expected: errors that clients saw and must expect, by kind.
        findings: what clients saw and should not have.
    """

    tasks: list[Known] = field(default_factory=list)
    keyed: set[str] = field(default_factory=set)
    unanswered: Counter[str] = field(default_factory=Counter)
    hung_up: list[HungUp] = field(default_factory=list)
    requests: int = 0
    expected: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
