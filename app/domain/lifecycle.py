"""The state machine of a task, as data.

`TRANSITIONS` names every way in which a task's row may change; each verb is one method of the store and one
transaction. The table's CHECK, the diagram in the README and the tests are held to this file.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.task import TERMINAL, Status

WORKING, INPUT_REQUIRED, COMPLETED, FAILED, CANCELLED = Status
LIVE = frozenset(Status) - TERMINAL

Edge = tuple[Status, Status]


@dataclass(frozen=True, slots=True)
class Transition:
    """What a verb may do to a task's status.

    Attributes:
        edges: from → to, for every state in which the verb does something. In any other it changes nothing.
        fenced: only the attempt that holds the task may do it.
    """

    edges: frozenset[Edge]
    fenced: bool = False


def _may(*edges: Edge, fenced: bool = False) -> Transition:
    return Transition(frozenset(edges), fenced)


TRANSITIONS: dict[str, Transition] = {
    "claim": _may((WORKING, WORKING)),
    "step": _may((WORKING, WORKING), fenced=True),
    "status": _may((WORKING, WORKING), fenced=True),
    # A cancel that came while the handler ran is carried out by whatever ends the attempt without an outcome.
    "ask": _may((WORKING, INPUT_REQUIRED), (WORKING, CANCELLED), fenced=True),
    "answer": _may((INPUT_REQUIRED, INPUT_REQUIRED), (INPUT_REQUIRED, WORKING)),
    "finish": _may((WORKING, COMPLETED), fenced=True),
    "fail": _may((WORKING, FAILED), fenced=True),
    "retry": _may((WORKING, WORKING), (WORKING, CANCELLED), fenced=True),
    "release": _may((WORKING, WORKING), (WORKING, CANCELLED), fenced=True),
    "cancel": _may((WORKING, WORKING), (WORKING, CANCELLED), (INPUT_REQUIRED, CANCELLED)),
    # Fenced where the attempt detaches; the API may too, for a caller that it tells how to come back.
    "detach": _may((WORKING, WORKING), (INPUT_REQUIRED, INPUT_REQUIRED)),
    "rescue": _may((WORKING, WORKING), (WORKING, FAILED), (WORKING, CANCELLED)),
    "expire": _may((WORKING, FAILED), (INPUT_REQUIRED, FAILED), (INPUT_REQUIRED, CANCELLED)),
}
INITIAL = WORKING
"""What `create` makes. `purge` deletes terminal rows; it is no change of state."""


def edges() -> frozenset[Edge]:
    """Every change from one state to another that some verb makes."""
    return frozenset(edge for t in TRANSITIONS.values() for edge in t.edges if edge[0] is not edge[1])
