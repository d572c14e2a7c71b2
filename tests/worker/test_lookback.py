"""Most claims look back a little, some of them further, and each reach has its turn by what it costs."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.task import EVER
from app.worker.lookback import AGAIN_SECONDS, REACHES, LookBack

OLDEST = datetime(2026, 1, 1, tzinfo=UTC)
SHORTEST = REACHES[0]


class Clock:
    """A clock that goes on when it is told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def reach(look_back: LookBack, clock: Clock, *, took: float = 0.0, oldest: datetime = OLDEST) -> timedelta | None:
    """Look, for so long; how far back before the oldest task that was, None: at all that there is."""
    began, since = clock.now, look_back.since()
    clock.now += took
    look_back.looked(began, oldest)
    return None if since == EVER else OLDEST - since


def test_the_first_claim_looks_at_all_and_those_after_it_shortly_before_the_oldest() -> None:
    clock = Clock()
    look_back = LookBack(clock)
    assert [reach(look_back, clock) for _ in range(3)] == [None, SHORTEST, SHORTEST]


def test_soon_a_claim_looks_at_all_again() -> None:
    clock = Clock()
    look_back = LookBack(clock)
    reach(look_back, clock)
    clock.now += 0.9 * AGAIN_SECONDS
    assert reach(look_back, clock) == SHORTEST
    assert not look_back.complete
    clock.now += 0.2 * AGAIN_SECONDS
    assert reach(look_back, clock) is None
    assert look_back.complete


def test_a_look_at_all_that_took_long_leaves_the_turn_to_those_that_reach_less_far() -> None:
    clock = Clock()
    look_back = LookBack(clock)
    reach(look_back, clock, took=0.2)  # of all: not before 10 s
    seen = []
    for _ in range(18):
        clock.now += AGAIN_SECONDS + 0.01
        seen += [reach(look_back, clock), reach(look_back, clock)]
    assert seen == [REACHES[-2], SHORTEST] * 18
    clock.now += 1.0
    assert reach(look_back, clock) is None


def test_each_reach_has_its_turn_by_what_it_cost_the_last_time() -> None:
    clock = Clock()
    look_back = LookBack(clock)
    reach(look_back, clock, took=0.4)  # of all: not before 20 s
    clock.now += AGAIN_SECONDS
    assert reach(look_back, clock, took=0.1) == REACHES[-2]  # not before 5 s
    seen = []
    for _ in range(4):
        clock.now += 1.0
        seen.append(reach(look_back, clock))
    assert seen == [REACHES[-3]] * 4
    clock.now += 1.01
    assert reach(look_back, clock) == REACHES[-2]


def test_a_look_at_all_does_not_bring_forward_the_turn_of_another() -> None:
    clock = Clock()
    look_back = LookBack(clock)
    reach(look_back, clock, took=0.2)
    clock.now += 9.0
    assert reach(look_back, clock, took=0.4) == REACHES[-2]  # not before 20 s
    clock.now += 1.0
    assert reach(look_back, clock, took=0.3) is None  # not before 15 s
    clock.now += AGAIN_SECONDS
    assert reach(look_back, clock) == REACHES[-3]


@pytest.mark.parametrize("at", [1, 2])
def test_a_reach_does_not_rest_for_longer_than_it_reaches_back(at: int) -> None:
    clock = Clock()
    look_back = LookBack(clock)
    reach(look_back, clock)
    look_back._due = [0.0] * (at + 1) + [math.inf] * (len(REACHES) - at - 1)
    back = REACHES[at]
    assert back is not None
    assert reach(look_back, clock, took=5.0) == back
    clock.now += back.total_seconds() + 0.01
    assert reach(look_back, clock) == back


def test_where_every_claim_takes_long_none_rests_for_that() -> None:
    clock = Clock()
    look_back = LookBack(clock)
    seen = [reach(look_back, clock, took=0.45) for _ in range(100)]
    assert seen.count(None) >= 15


def test_claims_begin_before_the_oldest_task_that_the_last_one_found() -> None:
    clock = Clock()
    look_back = LookBack(clock)
    later = OLDEST + timedelta(hours=1)
    reach(look_back, clock, oldest=later)
    assert SHORTEST is not None
    assert look_back.since() == later - SHORTEST
