"""Waiting for a task to change: with a listener, in the gaps of its hearing, and without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.domain.task import new_task_id
from app.storage.database import Database
from app.storage.listener import Listener
from app.storage.notifier import CHANGED, Notifier
from app.storage.store import Store
from app.storage.watches import HEARING_SECONDS, Watch, Watches
from tests.storage.scene import OWNER, Scene
from tests.support.cable import cable_to
from tests.support.waiting import eventually

AT_ONCE = 0.8 * HEARING_SECONDS
"""Less than a poll takes: whoever comes back within it was woken."""


@asynccontextmanager
async def hearing_watches(url: str) -> AsyncIterator[tuple[Watches, Listener]]:
    """Watches whose listener hears, and looks for a lost connection only when one is lost."""
    listener = Listener(url, ping_seconds=60.0, reconnect_seconds=0.01)
    watches = Watches(listener)
    running = asyncio.create_task(listener.run())
    try:
        await until_hearing(listener, True)
        yield watches, listener
    finally:
        running.cancel()
        await asyncio.wait({running})


async def until_hearing(listener: Listener, hearing: bool) -> None:
    async def look() -> bool:
        return listener.hearing is hearing

    await eventually(look)


async def notify(connection: asyncpg.Connection[Any], *ids: UUID) -> None:
    await connection.execute("SELECT pg_notify($1, $2)", CHANGED, " ".join(map(str, ids)))


async def woken(watch: Watch) -> bool:
    """Whether the watch comes back before it would by polling."""
    try:
        async with asyncio.timeout(AT_ONCE):
            await watch.wait()
    except TimeoutError:
        return False
    return True


async def test_a_change_wakes_a_waiter_at_once(db_url: str, connection: asyncpg.Connection[Any]) -> None:
    async with hearing_watches(db_url) as (watches, _), Database(db_url, connections=2) as database:
        notifier = Notifier(database)
        telling = asyncio.create_task(notifier.run())
        scene = Scene(Store(database, notifier), connection)
        task = await scene.queued()
        with watches.on(task.task_id) as watch:
            await watch.wait(0.0)  # of its creation it may hear, or not
            waiting = asyncio.create_task(woken(watch))
            await scene.store.cancel(OWNER, task.task_id)
            assert await waiting
        telling.cancel()
        await asyncio.wait({telling})


async def test_a_change_between_the_look_and_the_wait_is_not_missed(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    async with hearing_watches(db_url) as (watches, _):
        task_id, heard = new_task_id(), new_task_id()
        with watches.on(task_id) as watch, watches.on(heard) as marker:
            await notify(connection, task_id, heard)
            assert await woken(marker)
            assert await woken(watch)


async def test_all_who_wait_for_a_task_are_woken_and_nobody_else(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    async with hearing_watches(db_url) as (watches, _):
        task_id, other = new_task_id(), new_task_id()
        with watches.on(task_id) as one, watches.on(other) as bystander, watches.on(task_id) as two:
            waiting = [asyncio.create_task(woken(watch)) for watch in (one, two)]
            left = asyncio.create_task(bystander.wait())
            await notify(connection, task_id)
            assert await asyncio.gather(*waiting) == [True, True]
            assert not left.done()
            left.cancel()


async def test_who_waits_for_any_task_is_woken_by_each_and_by_a_gap(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    async with hearing_watches(db_url) as (watches, _):
        with watches.on_any() as watch, watches.on_any() as other:
            for _ in range(2):
                await notify(connection, new_task_id())
                assert all(await asyncio.gather(woken(watch), woken(other)))
            kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perdure listener'"
            await connection.execute(f"{kill} AND datname = current_database()")
            assert await woken(watch)
        with watches.on(marker := new_task_id()) as heard:
            await notify(connection, marker)
            await heard.wait()
        assert not watch._woken.is_set()


async def test_one_wait_is_woken_by_one_change(db_url: str, connection: asyncpg.Connection[Any]) -> None:
    async with hearing_watches(db_url) as (watches, _):
        task_id = new_task_id()
        with watches.on(task_id) as watch:
            await notify(connection, task_id)
            await watch.wait()
            again = asyncio.create_task(watch.wait())
            with watches.on(marker := new_task_id()) as heard:
                await notify(connection, marker)
                await heard.wait()
            assert not again.done()
            again.cancel()


async def test_what_changes_while_the_listener_is_deaf_wakes_its_waiters_once_it_hears_again(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    async with cable_to(db_url) as cable, hearing_watches(cable.url) as (watches, listener):
        task_id = new_task_id()
        with watches.on(task_id) as watch, watches.on(new_task_id()) as other:
            waiting = asyncio.gather(watch.wait(), other.wait())
            await cable.pull_out()
            await until_hearing(listener, False)
            await notify(connection, task_id)  # nobody hears it
            assert not waiting.done()
            await cable.plug_in()
            async with asyncio.timeout(AT_ONCE):
                await waiting


async def test_a_killed_listener_listens_again_and_wakes_its_waiters(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    async with hearing_watches(db_url) as (watches, _):
        task_id = new_task_id()
        with watches.on(task_id) as watch:
            kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perdure listener'"
            await connection.execute(f"{kill} AND datname = current_database()")
            await notify(connection, task_id)
            assert await woken(watch)


@pytest.mark.parametrize("listens", [False, True])
async def test_where_nothing_is_heard_it_looks_soon_and_then_less_and_less_often(db_url: str, listens: bool) -> None:
    listener = Listener(db_url) if listens else None  # it does not run
    watches = Watches(listener, poll_seconds=0.15)
    loop = asyncio.get_running_loop()
    with watches.on(new_task_id()) as watch:
        times = [loop.time()]
        for _ in range(4):
            async with asyncio.timeout(10):
                await watch.wait()
            times.append(loop.time())
    pauses = [after - before for before, after in pairwise(times)]
    assert all(pause >= due - 0.005 for pause, due in zip(pauses, [0.05, 0.1, 0.15, 0.15], strict=True))
    assert times[-1] - times[0] < HEARING_SECONDS


async def test_a_change_is_found_without_a_listener(scene: Scene) -> None:
    watches = Watches(None, poll_seconds=0.05)
    task = await scene.queued()
    with watches.on(task.task_id) as watch:
        cancelling = asyncio.create_task(scene.store.cancel(OWNER, task.task_id))
        async with asyncio.timeout(10):
            while not (await scene.state(task)).task.status.terminal:
                await watch.wait()
        await cancelling


async def test_it_waits_no_longer_than_it_is_told(db_url: str) -> None:
    async with hearing_watches(db_url) as (watches, _):
        with watches.on(new_task_id()) as watch:
            async with asyncio.timeout(AT_ONCE):
                await watch.wait(0.01)
                await watch.wait(0.0)


async def test_who_has_left_is_forgotten_however_it_left(db_url: str, connection: asyncpg.Connection[Any]) -> None:
    async with hearing_watches(db_url) as (watches, _):
        task_id, started = new_task_id(), asyncio.Event()

        async def wait() -> None:
            with watches.on(task_id) as watch:
                started.set()
                await watch.wait()

        with watches.on(task_id) as stays:
            leaving = asyncio.create_task(wait())
            await started.wait()
            leaving.cancel()
            await asyncio.wait({leaving})
            with pytest.raises(ZeroDivisionError), watches.on(task_id):
                _ = 1 / 0
            assert watches._waiting == {task_id: {stays}}
            await notify(connection, task_id)
            assert await woken(stays)
        assert watches._waiting == {}


# -- many tasks -------------------------------------------------------------------------------------------------------


async def test_of_many_tasks_those_that_changed_are_told_once_however_often(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    ids = {new_task_id() for _ in range(5)}
    async with hearing_watches(db_url) as (watches, _):
        with watches.on_all(ids) as changes:
            assert set(changes.take(3)) | set(changes.take(3)) == ids  # at first all have changed
            assert changes.take(3) == []
            one, *_ = ids
            for _ in range(3):
                await notify(connection, one, new_task_id())
            await asyncio.wait_for(changes.wait(60), AT_ONCE)
            await heard_all(watches, connection)
            assert changes.take(3) == [one]
            assert changes.take(3) == []
        assert watches._waiting == {}


async def test_after_a_gap_all_of_many_tasks_may_have_changed_but_those_that_were_forgotten(
    db_url: str, connection: asyncpg.Connection[Any]
) -> None:
    ids = [new_task_id() for _ in range(5)]
    async with hearing_watches(db_url) as (watches, listener):
        with watches.on_all(ids) as changes:
            changes.take(5)
            changes.forget(ids[0])
            kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perdure listener'"
            await connection.execute(f"{kill} AND datname = current_database()")
            await until_hearing(listener, False)
            await asyncio.wait_for(changes.wait(60), AT_ONCE)
            assert set(changes.take(9)) == set(ids[1:])


@pytest.mark.parametrize("busy", [False, True])
async def test_many_tasks_are_looked_at_by_the_clock_though_single_ones_change_all_the_time(busy: bool) -> None:
    ids = {new_task_id() for _ in range(3)}
    watches = Watches(None, poll_seconds=0.1)
    loop = asyncio.get_running_loop()
    with watches.on_all(ids) as changes:
        one, *_ = changes.take(3)
        started = loop.time()
        async with asyncio.timeout(10):
            while set(changes.take(3)) != ids:
                if busy:
                    loop.call_later(0.01, changes.changed, one)
                await changes.wait(60)
        assert loop.time() - started >= 0.095


async def test_the_wait_for_many_tasks_ends_in_time_and_when_it_is_told_to() -> None:
    with Watches(None, poll_seconds=60).on_all([new_task_id()]) as changes:
        changes.take(1)
        async with asyncio.timeout(10):
            await changes.wait(0.01)
            changes.wake()
            await changes.wait(60)
        assert changes.take(1) == []


async def heard_all(watches: Watches, connection: asyncpg.Connection[Any]) -> None:
    """Wait until all is heard that was told before."""
    with watches.on(marker := new_task_id()) as watch:
        await notify(connection, marker)
        assert await woken(watch)
