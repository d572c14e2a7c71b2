"""The worker: keeps its lease, claims what it has slots for, runs it, and gives back what it cannot end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from app.domain.pace import rest
from app.domain.task import Claim
from app.errors import StoreUnavailable
from app.storage.database import Database
from app.storage.listener import Listener
from app.storage.rows import Holding
from app.storage.store import Store
from app.telemetry import logs, metrics, traces
from app.tools.registry import Registry
from app.tools.transactions import Transactions
from app.version import __version__
from app.worker.attempt import CANCEL_SECONDS, FAULTY, Attempt
from app.worker.heartbeat import Heartbeat
from app.worker.lookback import AGAIN_SECONDS, LookBack
from app.worker.loopwatch import LoopWatch
from app.worker.maintenance import expire, publish, purge, rescue
from app.worker.maintenance.loop import repeat

log = structlog.get_logger(__name__)
_plain_log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
"""So often the worker compares what it runs with what the database thinks. To find attempts that it does not run, it
reads all that it has ended since the oldest transaction in the database began: where that takes long, less often."""

PORTION = 32
"""More than this, and more than half of the slots, is not claimed at once: what was claimed is run while the database
works on the next claim."""

UNWIND_SECONDS = 5.0

Key = tuple[UUID, int]


class Runner:
    """One worker process.

    Args:
        store: the tasks.
        database: for what is not a transition.
        registry: the tools that this worker runs; tasks of no other tool are touched.
        control: the tasks by connections of its own, so that busy handlers cannot starve claims and maintenance.
        listener: wakes the worker; None leaves it to the poll.
        slots: how many handlers run at once. What they came to is written while the next ones run.
        lease_seconds: how long the worker may be silent before others take its tasks.
        grace_seconds: how long running handlers may go on after a stop.
        poll_seconds: how often it looks for work without being woken.
        max_result_bytes: a larger result fails its task.
        cancel_seconds: how long a handler may take to end after a cancel, before its task ends without it.
    """

    def __init__(
        self,
        store: Store,
        database: Database,
        registry: Registry,
        *,
        control: Store | None = None,
        listener: Listener | None = None,
        slots: int = 16,
        lease_seconds: float = 20.0,
        grace_seconds: float = 25.0,
        poll_seconds: float = 1.0,
        max_result_bytes: int = 10 * 1024 * 1024,
        cancel_seconds: float = CANCEL_SECONDS,
    ) -> None:
        self._store = store
        self._control = control or store
        self._registry = registry
        self._tools = {tool.name: tool for tool in registry.durable()}
        self._listener = listener
        self._slots = slots
        self._lease = lease_seconds
        self._grace = grace_seconds
        self._poll = poll_seconds
        self._max_result = max_result_bytes
        self._cancel_seconds = cancel_seconds
        self._transactions = Transactions(database, connections=slots, idle_seconds=lease_seconds)
        self._executor = ThreadPoolExecutor(slots, thread_name_prefix="perdure-tool")
        self._running: dict[Key, Attempt] = {}
        self._handling: set[Key] = set()
        self._newest: dict[UUID, Attempt] = {}
        self._idle = asyncio.Event()
        self._wake = asyncio.Event()
        self._look = asyncio.Event()
        self._stopping = asyncio.Event()
        self._started = False
        self._claims_fail = False
        self._look_back = LookBack()
        self._astray_due = 0.0
        self._more = True  # a slot that gets free is a reason to claim
        # A claim's rows are in the table before they are in `_running`: whoever compares the two holds this.
        self._claiming = asyncio.Lock()
        loop = asyncio.get_running_loop()
        self._heartbeat = Heartbeat(
            database.url,
            tools=list(self._tools),
            slots=slots,
            lease_seconds=lease_seconds,
            version=__version__,
            on_fence=partial(_call_soon, loop, self._stop_all),
            on_lost=partial(_call_soon, loop, self._abandon_others),
        )

    @property
    def slots(self) -> int:
        """How many handlers run at once at the most."""
        return self._slots

    @property
    def running(self) -> int:
        """How many handlers run."""
        return len(self._handling)

    @property
    def obstacle(self) -> str | None:
        """Why it claims nothing now, however many slots are free; None while it does."""
        if self._stopping.is_set():
            return "draining"
        if not self._started:
            return "starting"
        if not self._heartbeat.alive:
            return "no lease"
        return "claims fail" if self._claims_fail else None

    def stop(self) -> None:
        """Ask the worker to stop: no more claims, handlers get the grace, and `run` returns."""
        self._heartbeat.draining = True
        self._stopping.set()
        self._wake.set()

    async def run(self) -> bool:
        """Work until `stop`.

        Returns:
            True if all handlers ended; False leaves some behind, whose tasks were given back: leave the process.
        """
        loops: list[asyncio.Task[None]] = []
        watch = LoopWatch(asyncio.get_running_loop())
        self._heartbeat.start()
        watch.start()
        try:
            await self._heartbeat.registered()
            await publish.publish(self._control, self._registry)
            if self._listener is not None:
                self._listener.on_ready(list(self._tools), self._wake.set)
                self._listener.on_changed(self._changed)
            self._started = True
            log.info("worker started", tools=list(self._tools), slots=self._slots)
            loops += [asyncio.create_task(loop) for loop in self._loops()]
            await self._claim_until_stopped()
            return await self._drain()
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await self._transactions.close()
            self._executor.shutdown(wait=False, cancel_futures=True)
            await asyncio.to_thread(self._heartbeat.stop)
            await asyncio.to_thread(watch.stop)
            log.info("worker stopped", left=len(self._running))

    # -- claiming -----------------------------------------------------------------------------------------------------

    async def _claim_until_stopped(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            self._more = True
            if self._heartbeat.alive:
                try:
                    await self._claim()
                    self._claims_fail = False
                except StoreUnavailable:
                    self._claims_fail = True
                    log.warning("cannot claim: the task store cannot be reached")
            # What a claim may have passed over is looked for soon, however seldom the worker polls.
            patience = self._poll if self._look_back.complete else min(self._poll, AGAIN_SECONDS)
            try:
                async with asyncio.timeout(patience):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _claim(self) -> None:
        """Claim what there are slots for, and start it."""
        async with self._claiming:
            # As many attempts again as there are slots may be without a handler, their ends being written.
            free = min(self._slots - len(self._handling), 2 * self._slots - len(self._running))
            if free <= 0 or self._stopping.is_set():
                return
            portion = min(free, max(PORTION, self._slots // 2))
            began = time.monotonic()
            worker_id, since = self._heartbeat.worker_id, self._look_back.since()
            claims = await self._control.claim(worker_id, list(self._tools), portion, since=since)
            self._look_back.looked(began, claims.oldest)
            if claims.more and len(claims) == portion < free:
                self._wake.set()
            # What comes later is told, to those who hear it.
            self._more = claims.more or self._listener is None or not self._listener.hearing
            if claims and not self._heartbeat.held_since(
                began
            ):  # the process stood still meanwhile: others may have them by now
                log.warning("released tasks whose claim took longer than the lease is good for", tasks=len(claims))
                astray = [(claim.task_id, claim.epoch) for claim in claims]
                await self._control.release(worker_id, astray)
                return
            for claim in claims:
                try:
                    self._begin(claim)
                except Exception:
                    log.exception("attempt cannot begin; its task will be released", tool=claim.task.tool)
                    self._forget(claim)

    def _begin(self, claim: Claim) -> None:
        attempt = Attempt(
            claim,
            self._tools[claim.task.tool],
            self._store,
            self._transactions,
            self._executor,
            max_result_bytes=self._max_result,
            cancel_seconds=self._cancel_seconds,
        )
        key = claim.task_id, claim.epoch
        self._running[key] = self._newest[claim.task_id] = attempt
        self._handling.add(key)
        attempt.handler_ended = partial(self._slot_is_free, key)
        span = traces.attempt(attempt.tool, claim.epoch, claim.trace_context)
        if _plain_log.isEnabledFor(logging.DEBUG):
            about = {"task_id": str(claim.task_id), "tool": attempt.tool, "attempt": claim.epoch}
            span.run(log.debug, "attempt begins", **about)
        try:
            span.run(attempt.begin, partial(self._over, attempt, span, time.perf_counter()))
        except Exception:
            span.run(span.ended, attempt.outcome.value, failed=False)
            raise

    def _over(self, attempt: Attempt, span: traces.Attempted, started: float) -> None:
        self._forget(attempt.claim)
        try:
            span.run(_tell, attempt, span, time.perf_counter() - started)
        except Exception:
            log.exception("how an attempt went cannot be told", tool=attempt.tool)

    def _forget(self, claim: Claim) -> None:
        key = claim.task_id, claim.epoch
        attempt = self._running.pop(key, None)
        if self._newest.get(claim.task_id) is attempt:
            self._newest.pop(claim.task_id, None)
        self._slot_is_free(key)
        if not self._running:
            self._idle.set()

    def _slot_is_free(self, key: Key) -> None:
        self._handling.discard(key)
        if self._more:
            self._wake.set()

    # -- what others did to our tasks ---------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """Compare what the database thinks we run with what we run, and act on each difference.

        Attempts whose rows are gone are abandoned; cancels are passed on. Rows that we do not run are given back, where
        it is time to look for them: the reply to a claim was lost, or an end could not be written.
        """
        self._look.clear()
        if time.monotonic() >= self._astray_due:
            running, held = await self._compared()
        else:
            running, worker_id = dict(self._running), self._heartbeat.worker_id
            held = await self._control.holdings(worker_id, of=[task_id for task_id, _ in running]) if running else []
        cancelled = {(it.task_id, it.epoch): it.cancel_requested for it in held}
        for key, attempt in running.items():
            if key not in cancelled:
                attempt.abandon()
            elif cancelled[key]:
                attempt.stop("cancel")

    async def _compared(self) -> tuple[dict[Key, Attempt], list[Holding]]:
        """What we run, and all that the database thinks we run; what it should not is given back."""
        async with self._claiming:
            began = time.monotonic()
            running, worker_id = dict(self._running), self._heartbeat.worker_id
            held = await self._control.holdings(worker_id)
            now = time.monotonic()
            self._astray_due = now + rest(SWEEP_SECONDS, now - began)
            astray = [(it.task_id, it.epoch) for it in held if (it.task_id, it.epoch) not in running]
            if astray:
                log.warning("released tasks that were claimed but not run", tasks=len(astray))
                await self._control.release(worker_id, astray)
        return running, held

    async def _sweep_once_due(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SWEEP_SECONDS):  # wait_for may lose a cancel that comes with the event
                await self._look.wait()
        await self.sweep()

    def _changed(self, task_id: UUID) -> None:
        """A task changed, here or elsewhere; if it is one of ours, it may be a cancel."""
        if task_id in self._newest:
            self._look.set()

    def _stop_all(self) -> None:
        for attempt in self._running.values():
            attempt.stop("shutdown")

    def _abandon_others(self, worker_id: UUID) -> None:
        """This is our id now: what was claimed under another is no longer ours."""
        for attempt in self._running.values():
            if attempt.claim.worker_id != worker_id:
                attempt.abandon()

    # -- stopping ------------------------------------------------------------------------------------------

    async def _drain(self) -> bool:
        """Give running handlers the grace, stop the rest, and give back what does not end."""
        for attempt in self._running.values():
            attempt.announce("shutdown")
        await self._until_idle(self._grace)
        self._stop_all()
        await self._until_idle(UNWIND_SECONDS)
        if not self._running:
            return True
        log.warning("handlers do not end; their tasks are given back", tasks=len(self._running))
        try:
            await self._control.release(self._heartbeat.worker_id, list(self._running))
        except StoreUnavailable:
            log.error("tasks could not be given back; they are rescued when the lease ends")
        return False

    async def _until_idle(self, seconds: float) -> None:
        self._idle.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._running:
                    await self._idle.wait()

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        store, beat = self._control, self._heartbeat
        return [
            repeat("sweep", 0.0, self._sweep_once_due),
            repeat("rescue", min(rescue.INTERVAL_SECONDS, self._lease), lambda: rescue.rescue(store, beat)),
            repeat("expire", expire.INTERVAL_SECONDS, lambda: expire.expire(store), rests=True),
            repeat("purge", purge.INTERVAL_SECONDS, lambda: purge.purge(store)),
            repeat("publish", publish.INTERVAL_SECONDS, lambda: publish.publish(store, self._registry)),
        ]


def _tell(attempt: Attempt, span: traces.Attempted, seconds: float) -> None:
    """Tell operators how an attempt went."""
    claim = attempt.claim
    if attempt.fault is not None:
        log.error("attempt broke off; its task will be released", tool=attempt.tool, exc_info=attempt.fault)
    outcome = attempt.outcome.value
    metrics.attempt_ended(attempt.tool, outcome, claim.waited_ms / 1000, seconds)
    logs.line(
        __name__,
        "attempt",
        tool=attempt.tool,
        attempt=claim.epoch,
        outcome=outcome,
        queue_ms=round(claim.waited_ms, 1),
        run_ms=round(seconds * 1000, 1),
    )
    span.ended(outcome, failed=outcome in FAULTY)


def _call_soon(loop: asyncio.AbstractEventLoop, act: Callable[..., None], *args: object) -> None:
    """From the heartbeat's thread: act on the worker's loop."""
    loop.call_soon_threadsafe(act, *args)
