"""What a requestState is bound to, and how long it lasts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from app.domain.task import REQUEST_STATE_MS, Reply, Status, Task, new_task_id
from app.errors import Refusal
from app.methods.request_state import Origin, RequestStates

ORIGIN = Origin("somebody", "pay", {"amount": 1, "to": "Ada"})
NOW = 1_800_000_000.0


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def a_task() -> Task:
    now = datetime.now(UTC)
    return Task(
        task_id=new_task_id(),
        owner=ORIGIN.owner,
        tool=ORIGIN.tool,
        status=Status.INPUT_REQUIRED,
        status_message=None,
        reply=Reply.REQUEST,
        epoch=1,
        version=2,
        ttl_ms=None,
        poll_interval_ms=1000,
        created_at=now,
        updated_at=now,
        cancel_requested=False,
        expired=False,
        progress=None,
        progress_total=None,
    )


TASK = a_task()


def opened(states: RequestStates, text: str, origin: Origin = ORIGIN) -> UUID | str:
    try:
        return states.open(text, origin)
    except Refusal as refused:
        return refused.message


def test_a_state_leads_back_to_its_task() -> None:
    states = RequestStates([b"key"])
    assert opened(states, states.seal(TASK, ORIGIN)) == TASK.task_id
    other_order = replace(ORIGIN, arguments={"to": "Ada", "amount": 1})
    assert opened(states, states.seal(TASK, ORIGIN), other_order) == TASK.task_id


@pytest.mark.parametrize(
    "change",
    [{"owner": "somebody else"}, {"tool": "pay_twice"}, {"arguments": {"amount": 2, "to": "Ada"}}, {"arguments": {}}],
)
def test_another_request_may_not_use_it(change: dict[str, object]) -> None:
    states = RequestStates([b"key"])
    told = opened(states, states.seal(TASK, ORIGIN), replace(ORIGIN, **change))  # type: ignore[arg-type]
    assert told == "Invalid params: params.requestState is none that was given for this request"


def test_no_character_of_it_can_be_changed() -> None:
    states = RequestStates([b"key"])
    state = states.seal(TASK, ORIGIN)
    for place in range(len(state)):
        for other in "A9_-=.":
            forged = state[:place] + other + state[place + 1 :]
            assert forged == state or isinstance(opened(states, forged), str)


def test_it_lapses_when_the_question_does() -> None:
    clock = Clock()
    states = RequestStates([b"key"], clock=clock)
    state = states.seal(TASK, ORIGIN)
    clock.now = NOW + REQUEST_STATE_MS / 1000 - 1
    assert opened(states, state) == TASK.task_id
    clock.now += 1
    assert "has expired" in str(opened(states, state))


def test_a_key_can_be_replaced_while_states_are_out() -> None:
    old, both, new = RequestStates([b"old"]), RequestStates([b"new", b"old"]), RequestStates([b"new"])
    assert opened(both, old.seal(TASK, ORIGIN)) == TASK.task_id
    assert opened(new, both.seal(TASK, ORIGIN)) == TASK.task_id
    assert isinstance(opened(new, old.seal(TASK, ORIGIN)), str)


def test_every_round_has_a_state_of_its_own() -> None:
    states = RequestStates([b"key"], clock=Clock())
    assert states.seal(TASK, ORIGIN) != states.seal(replace(TASK, epoch=2), ORIGIN)
