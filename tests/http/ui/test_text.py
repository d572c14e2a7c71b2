"""How values are written for a reader."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.ui.text import ago, clock, duration, pretty, shown

NOW = datetime(2026, 5, 4, 12, 0, 0, 123456, tzinfo=UTC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.25, "250 ms"),
        (1, "1 s"),
        (9.94, "9.9 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (86400 * 3 + 7200, "3 d 2 h"),
        (-90, "−1 min 30 s"),
    ],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == duration(timedelta(seconds=seconds)) == text


def test_moments_are_told_from_now_with_the_exact_one_beside_them() -> None:
    for shift, words in ((0, "now"), (-90, "1 min ago"), (-7300, "2 h ago"), (86400 * 6.5, "in 6 d 12 h")):
        assert f">{words}<" in ago(NOW + timedelta(seconds=shift), NOW)
    there = ago(datetime.fromisoformat("2026-05-04T14:00:00+02:00"), NOW)
    assert 'title="2026-05-04 12:00:00 UTC"' in there
    assert 'datetime="2026-05-04T12:00:00.000+00:00"' in there
    assert ago(None) == "—"
    assert clock(NOW) == "2026-05-04 12:00:00.123"


@given(JSON)
def test_json_is_laid_out_as_usual(value: object) -> None:
    assert pretty(json.dumps(value)) == json.dumps(value, indent=2)
    assert pretty(json.dumps(value, indent=7)) == json.dumps(value, indent=2)


@given(st.text(alphabet='{}[]",:\\ ab1\n'))
def test_whatever_it_is_nothing_but_blanks_changes(text: str) -> None:
    assert "".join(pretty(text).split()) == "".join(text.split())


def test_numbers_and_names_stay_as_they_are_written() -> None:
    assert pretty('{"a":1.50,"a":1e400,"b":123456789012345678901234567890}').split()[1:-1] == [
        '"a":', "1.50,", '"a":', "1e400,", '"b":', "123456789012345678901234567890",
    ]  # fmt: skip


def test_deep_nesting_is_no_reason_for_a_large_page() -> None:
    assert len(pretty("[" * 8000)) < 800_000


def test_what_is_not_meant_to_be_seen_is_escaped() -> None:
    assert shown("a\u202eb\0\x1b[1m\u200b\ud800\tc\n") == "a\\u202eb\\u0000\\u001b[1m\\u200b\\ud800\tc\n"
    assert shown("Grüße, 日本, 😀") == "Grüße, 日本, 😀"
    assert shown(7) == 7
