"""Durations: what is read, and what is refused with which reason."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.duration import parse_duration


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("5m", 300_000),
        ("24h", 86_400_000),
        ("7d", 604_800_000),
        ("1.5s", 1_500),
        (" 10 m ", 600_000),
        ("3650d", 315_360_000_000),
        (timedelta(minutes=2, milliseconds=1), 120_001),
    ],
)
def test_units_fractions_and_timedeltas_become_milliseconds(written: str | timedelta, milliseconds: int) -> None:
    assert parse_duration(written) == milliseconds


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("-5s", "negative"),
        (timedelta(seconds=-1), "negative"),
        ("0s", "no time at all"),
        (timedelta(0), "no time at all"),
        ("3651d", "longer than 3650d"),
        ("9" * 5000 + "s", "longer than 3650d"),
        (timedelta.max, "longer than 3650d"),
        ("0.5ms", "finer than a millisecond"),
        (timedelta(microseconds=1500), "finer than a millisecond"),
    ],
)
def test_senseless_lengths_are_refused_with_the_reason(written: str | timedelta, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_duration(written)


@pytest.mark.parametrize("written", ["", "5", "s", "1 week", "1h30m", "1e3s", "١s", "5S", 90, 1.5, None, True])
def test_what_is_no_duration_is_told_how_to_write_one(written: Any) -> None:
    with pytest.raises(ValueError, match=r'not a duration: .* "90s" or "24h"'):
        parse_duration(written)


def test_zero_and_a_lower_limit_are_the_callers_choice() -> None:
    assert parse_duration("0s", zero=True) == 0
    with pytest.raises(ValueError, match="longer than 1d"):
        parse_duration("25h", longest="1d")


def test_a_long_text_is_not_repeated_in_full() -> None:
    with pytest.raises(ValueError, match="not a duration") as refused:
        parse_duration("x" * 10_000)
    assert len(str(refused.value)) < 200
