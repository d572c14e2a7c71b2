"""A handler that blocks the event loop is named."""

from __future__ import annotations

import asyncio
import time

from structlog.testing import capture_logs

from app.worker.loopwatch import LoopWatch


async def test_a_task_that_blocks_the_loop_is_named_once() -> None:
    watch = LoopWatch(asyncio.get_running_loop(), seconds=0.1)

    async def hog() -> None:
        time.sleep(0.6)  # noqa: ASYNC251  what the test is about

    with capture_logs() as logs:
        watch.start()
        try:
            await asyncio.create_task(hog(), name="tool hog")
        finally:
            await asyncio.to_thread(watch.stop)
    assert [(entry["log_level"], entry["by"]) for entry in logs] == [("warning", "tool hog")]


async def test_a_loop_that_answers_is_not_complained_of() -> None:
    watch = LoopWatch(asyncio.get_running_loop(), seconds=0.2)
    with capture_logs() as logs:
        watch.start()
        try:
            async with asyncio.timeout(5):
                await asyncio.sleep(0.7)
        finally:
            await asyncio.to_thread(watch.stop)
    assert logs == []
