"""What clients were told, and what they saw: the run is held to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Known:
    """A task that a client was told of.

    Attributes:
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


@dataclass
class Ledger:
    """What all clients of a run know together.

    Attributes:
        tasks: those whose creation was acknowledged.
        unanswered: by ref, how many calls of tools got no result: each may have made a task that nobody knows.
        requests: how many were answered.
        expected: errors that clients saw and must expect, by kind.
        findings: what clients saw and should not have.
    """

    tasks: list[Known] = field(default_factory=list)
    unanswered: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    expected: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
