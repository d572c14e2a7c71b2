"""Task ids: UUIDv7 with all 74 random bits from the operating system."""

from __future__ import annotations

import os
import time
from functools import reduce
from operator import and_, or_
from uuid import RFC_4122, UUID

import pytest

from app.domain.task import TERMINAL, Status, new_task_id

RANDOM_BITS = 0xFFF << 64 | (1 << 62) - 1


def test_an_id_is_a_uuid_of_version_7_and_the_common_variant() -> None:
    made = new_task_id()
    assert (made.version, made.variant) == (7, RFC_4122)


def test_an_id_begins_with_the_time_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    made = new_task_id().int >> 80
    assert before <= made <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("drawn", [bytes(10), b"\xff" * 10])
def test_time_version_and_variant_do_not_depend_on_what_is_drawn(monkeypatch: pytest.MonkeyPatch, drawn: bytes) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 0x0123456789AB * 1_000_000)
    monkeypatch.setattr(os, "urandom", lambda size: drawn[:size])
    expected = {0: "01234567-89ab-7000-8000-000000000000", 255: "01234567-89ab-7fff-bfff-ffffffffffff"}
    assert new_task_id() == UUID(expected[drawn[0]])


@pytest.mark.requirement("R49")
def test_74_bits_are_drawn_and_no_other_varies() -> None:
    made = [new_task_id().int for _ in range(200)]
    varying = (reduce(or_, made) & ~reduce(and_, made)) & ((1 << 80) - 1)
    assert varying == RANDOM_BITS
    assert varying.bit_count() == 74


def test_ids_sort_by_the_time_when_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for millisecond in (1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_256, 2_000_000_000_000):
        monkeypatch.setattr(time, "time_ns", lambda now=millisecond: now * 1_000_000)
        made.append(new_task_id())
    assert made == sorted(made)
    assert [str(task_id) for task_id in made] == sorted(str(task_id) for task_id in made)


def test_ids_of_the_same_moment_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    assert len({new_task_id() for _ in range(10_000)}) == 10_000


def test_a_status_is_terminal_or_live_and_knows_it() -> None:
    assert {status for status in Status if status.terminal} == TERMINAL
    assert {"completed", "failed", "cancelled"} == TERMINAL
