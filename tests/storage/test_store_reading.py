"""Reading many tasks at once, for those who follow them."""

from __future__ import annotations

from app.domain.task import Json, new_task_id
from app.storage.store import OMITTED_BYTES
from tests.storage.scene import OWNER, RESULT, Scene


async def test_what_is_newer_than_what_is_known_is_read_as_a_single_one_is(scene: Scene) -> None:
    queued, parked, done = await scene.queued(), await scene.parked(), await scene.running()
    await scene.store.finish(done, RESULT)
    ids = [queued.task_id, parked.task_id, done.task_id]
    read = await scene.store.newer({(OWNER, task_id): 0 for task_id in ids})
    singly = [await scene.store.get(OWNER, task_id) for task_id in ids]
    assert sorted((newer.state for newer in read), key=lambda state: state.task.task_id) == sorted(
        (state for state in singly if state), key=lambda state: state.task.task_id
    )
    known = {(OWNER, newer.state.task.task_id): newer.state.task.version for newer in read}
    assert await scene.store.newer(known) == []
    await scene.store.cancel(OWNER, queued.task_id)
    [newer] = await scene.store.newer(known)
    assert newer.state.task.task_id == queued.task_id


async def test_another_owner_s_task_is_neither_readable_nor_newer(scene: Scene) -> None:
    task = await scene.queued()
    assert await scene.store.readable(OWNER, [task.task_id, new_task_id()]) == {task.task_id}
    assert await scene.store.readable("mallory", [task.task_id]) == set()
    assert await scene.store.newer({("mallory", task.task_id): 0}) == []


async def test_an_expired_task_is_neither_readable_nor_newer(scene: Scene) -> None:
    task = await scene.queued()
    await scene.store.cancel(OWNER, task.task_id)
    assert await scene.store.readable(OWNER, [task.task_id]) == {task.task_id}
    await scene.connection.execute("UPDATE perdure.tasks SET expires_at = now()")
    assert await scene.store.readable(OWNER, [task.task_id]) == set()
    assert await scene.store.newer({(OWNER, task.task_id): 0}) == []


async def test_a_large_outcome_is_not_brought_along(scene: Scene) -> None:
    small, large = await scene.running(), await scene.running()
    await scene.store.finish(small, RESULT)
    await scene.store.fail(large, Json(f'{{"code":1,"message":"{"x" * OMITTED_BYTES}"}}'), "It broke")
    read = await scene.store.newer({(OWNER, claim.task_id): 0 for claim in (small, large)})
    omitted = {newer.state.task.task_id: newer for newer in read}
    assert (omitted[small.task_id].omitted, omitted[small.task_id].state.result) == (False, RESULT)
    assert (omitted[large.task_id].omitted, omitted[large.task_id].state.error) == (True, None)
