"""The loops beside the work: they go on whatever happens, and each body does its one thing."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from app.errors import StoreUnavailable
from app.worker.maintenance import loop as loop_module
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


@pytest.mark.parametrize(("rests", "found", "rested"), [(True, 0, True), (True, 1, False), (False, 0, False)])
async def test_a_loop_that_found_nothing_rests_for_longer_where_it_is_to(
    monkeypatch: pytest.MonkeyPatch, rests: bool, found: int, rested: bool
) -> None:
    """Beside a transaction that stays open, looking reads all that has ended since."""
    rounds: list[int] = []
    asked: list[float] = []

    def rest(least: float, _: float) -> float:
        asked.append(least)
        return 600.0

    monkeypatch.setattr(loop_module, "rest", rest)

    async def body() -> int:
        rounds.append(len(rounds))
        return found

    loop = asyncio.create_task(repeat("test", 0.001, body, rests=rests))

    async def went_on_or_rests() -> bool:
        return len(rounds) > 4 or asked != []

    await eventually(went_on_or_rests)
    loop.cancel()
    assert (len(rounds) == 1, asked) == (rested, [0.001] * rested)
