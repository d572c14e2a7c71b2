"""`python -m tests.benchmarks.with_pgqueuer COUNT`: what pgqueuer, a queue in wide use, takes to work off as many jobs.

On the database that DATABASE_URL names, with batches of 32; its own statistics and listeners stay on. Prints the
seconds from its start to the last job's end.
"""

from __future__ import annotations

import os
import sys
import time

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

BATCH = 32


async def drain(count: int) -> None:
    """Fill the queue, and work it off."""
    driver = AsyncpgDriver(await asyncpg.connect(os.environ["DATABASE_URL"]))
    queries = Queries(driver)
    manager = QueueManager(queries)
    if not await queries.has_table("pgqueuer"):
        await queries.install()
    await queries.enqueue(["noop"] * count, [b"x"] * count, [0] * count)
    done = 0

    @manager.entrypoint("noop")  # type: ignore[untyped-decorator, unused-ignore]  # it is optional
    async def noop(_: Job) -> None:
        nonlocal done
        done += 1

    started, spent = time.perf_counter(), time.process_time()
    await manager.run(batch_size=BATCH, mode=QueueExecutionMode.drain)
    assert done == count, f"{done} of {count} ran"
    seconds, cost = time.perf_counter() - started, time.process_time() - spent
    print(f"drained in {seconds:.6f} s, {cost:.6f} of the processor", flush=True)


if __name__ == "__main__":
    uvloop.run(drain(int(sys.argv[1])))
