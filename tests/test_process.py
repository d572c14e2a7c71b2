"""What every process has. How it leaves at a signal is in tests/cli, and what it logs then in tests/telemetry."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from app import process


async def test_a_background_loop_that_dies_is_reported_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "RESTART_SECONDS", 0.01)
    alive, starts = asyncio.Event(), 0

    async def broken_at_first() -> None:
        nonlocal starts
        starts += 1
        if starts < 3:
            raise OSError("gone")
        alive.set()
        await asyncio.Event().wait()

    with capture_logs() as logs:
        async with asyncio.timeout(10), process.background("test", broken_at_first):
            await alive.wait()
    assert [(entry["log_level"], entry["loop"], entry["failures"]) for entry in logs] == [
        ("error", "test", 1),
        ("error", "test", 2),
    ]
