"""Which failures are tried again, and when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.retry import Retry


def test_nothing_is_tried_again_unless_the_tool_says_so() -> None:
    assert not Retry().covers(OSError(), 0)


def test_so_many_failures_are_tried_again_and_no_more() -> None:
    retry = Retry(times=2)
    assert [retry.covers(ValueError(), failures) for failures in range(4)] == [True, True, False, False]


def test_only_named_exceptions_and_their_kinds_are_tried_again() -> None:
    retry = Retry(times=1, on=(OSError, KeyError))
    assert retry.covers(ConnectionResetError(), 0)
    assert not retry.covers(IndexError(), 0)
    assert not retry.covers(KeyboardInterrupt(), 0)


def test_the_pause_grows_to_a_limit_and_is_spread() -> None:
    retry = Retry(times=9, delay="1s", factor=3, max=timedelta(seconds=20), jitter=0.5)
    assert [retry.pause_ms(failures, 0) for failures in range(5)] == [1000, 3000, 9000, 20000, 20000]
    assert (retry.pause_ms(1, -1), retry.pause_ms(1, 1)) == (1500, 4500)
    assert Retry(times=1000, factor=100).pause_ms(999, 0) == 300_000
    assert Retry(times=1, delay="0s").pause_ms(0, 1) == 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"times": -1}, "retries.times"),
        ({"times": 1001}, "retries.times"),
        ({"delay": "soon"}, "retries.delay"),
        ({"max": "-1s"}, "retries.max"),
        ({"delay": "10m"}, "retries.delay is longer than retries.max"),
        ({"factor": 0.5}, "retries.factor"),
        ({"jitter": 1.5}, "retries.jitter"),
        ({"on": (KeyboardInterrupt,)}, "retries.on"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Retry(**wrong)
