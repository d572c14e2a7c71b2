"""What costs more is done less often."""

from __future__ import annotations

import pytest

from app.domain.pace import LONGEST_SECONDS, rest


@pytest.mark.parametrize(("took", "rests"), [(0.0, 1.0), (0.02, 1.0), (0.1, 5.0), (60.0, LONGEST_SECONDS)])
def test_what_took_long_is_followed_by_a_longer_rest_up_to_the_longest(took: float, rests: float) -> None:
    assert rest(1.0, took) == rests


def test_the_least_rest_may_be_longer_than_the_longest() -> None:
    assert rest(60.0, 30.0) == 60.0


@pytest.mark.parametrize(("took", "rests"), [(0.0, 0.005), (0.002, 0.005), (0.01, 0.02), (30.0, 0.1)])
def test_a_caller_can_have_its_own_measure(took: float, rests: float) -> None:
    assert rest(0.005, took, factor=2, longest=0.1) == rests
