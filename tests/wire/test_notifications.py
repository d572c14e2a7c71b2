"""Notifications that go before a response."""

from __future__ import annotations

import json
from math import inf, nan
from typing import Any

import pytest

from app.wire.notifications import progress_notification
from tests.support.oracle import check_notification


@pytest.mark.parametrize(
    ("given", "params"),
    [
        (("t", 1, 3, "Printing"), {"progressToken": "t", "progress": 1, "total": 3, "message": "Printing"}),
        ((7, 0.5, 1.0), {"progressToken": 7, "progress": 0.5, "total": 1}),
        (("", 50.0), {"progressToken": "", "progress": 50}),
        ((0, -0.0, 0.0, ""), {"progressToken": 0, "progress": 0, "total": 0, "message": ""}),
        ((2**70, 2**60), {"progressToken": 2**70, "progress": 2**60}),
    ],
)
def test_progress_carries_what_was_given_and_nothing_else(given: tuple[Any, ...], params: dict[str, Any]) -> None:
    assert check_notification(progress_notification(*given))["params"] == params


def test_an_integer_is_written_as_one() -> None:
    assert '"progress":50,"total":100}' in progress_notification("t", 50.0, 100.0)
    assert '"progress":1e+300}' in progress_notification("t", 1e300)


def test_any_message_is_written() -> None:
    for message in ("Grüße\n", "\x00", "\ud800", "\u2028"):
        assert json.loads(progress_notification("t", 1, None, message).encode())["params"]["message"] == message


@pytest.mark.parametrize("number", [nan, inf, -inf])
def test_what_json_has_no_number_for_is_refused(number: float) -> None:
    for progress, total in ((number, None), (1, number)):
        with pytest.raises(ValueError, match="JSON"):
            progress_notification("t", progress, total)
