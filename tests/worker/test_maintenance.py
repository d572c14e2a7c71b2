"""The loops beside the work: they go on whatever happens, and each body does its one thing."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from app.errors import StoreUnavailable
from app.worker.maintenance.loop import repeat
from tests.support.waiting import eventually


@pytest.mark.parametrize("fault", [RuntimeError("broken"), StoreUnavailable("away")])
async def test_a_loop_goes_on_after_a_fault(fault: Exception) -> None:
    rounds: list[int] = []

    async def body() -> None:
        rounds.append(len(rounds))
        if len(rounds) < 3:
            raise fault

    with capture_logs() as logs:
        loop = asyncio.create_task(repeat("test", 0.001, body))

        async def went_on() -> bool:
            return len(rounds) > 4

        await eventually(went_on)
        loop.cancel()
    seen = [line["loop"] for line in logs if line["log_level"] == "error"]
    assert seen == ([] if isinstance(fault, StoreUnavailable) else ["test", "test"])
