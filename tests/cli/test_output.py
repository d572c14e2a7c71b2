"""How operators' commands write values."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from app.cli.output import _fitted, ago, document, show_table
from app.storage.inspection import Event, Payload

AT = datetime(2026, 12, 31, 18, 0, 0, 500_000, timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0s"),
        (9.96, "10.0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (3599, "59m59s"),
        (7260, "2h01m"),
        (90_000, "1d01h"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert ago(timedelta(seconds=seconds)) == text
    assert ago(None) == ""


def test_a_document_has_payloads_as_they_are_and_times_in_iso_8601() -> None:
    value = {
        "big": Payload('{"n":123456789012345678901234567890}', 36),
        "cut": Payload('{"n":', 36),
        "key": b"\x00\xff",
        "waited": timedelta(minutes=2),
        "events": (Event(AT, "created"),),
        "id": UUID(int=1),
    }
    assert json.loads(json.dumps(document(value))) == {
        "big": {"n": 123456789012345678901234567890},
        "cut": {"text": '{"n":', "characters": 36},
        "key": "00ff",
        "waited_seconds": 120.0,
        "events": [{"at": "2026-12-31T16:00:00.500000+00:00", "what": "created"}],
        "id": "00000000-0000-0000-0000-000000000001",
    }


def test_a_line_in_a_pipe_stays_a_line_with_as_many_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("A", "B"), [("a\tb\nc\x1b[2J", None), (AT.astimezone(UTC), timedelta(seconds=1.5))])
    first, second = capsys.readouterr().out.splitlines()
    assert first == "a\\tb\\nc\\x1b[2J\t"
    assert second == "2026-12-31T16:00:00.500000+00:00\t1.500"


@pytest.mark.parametrize(
    ("room", "widths"),
    [
        (100, [36, 9, 30, 6, 4]),
        (80, [36, 9, 17, 6, 4]),
        (70, [36, 8, 8, 6, 4]),
        (20, [36, 8, 8, 6, 4]),
    ],
)
def test_columns_that_may_give_way_do_and_the_others_stay(room: int, widths: list[int]) -> None:
    assert _fitted([36, 9, 30, 6, 4], [False, True, True, False, False], room) == widths
